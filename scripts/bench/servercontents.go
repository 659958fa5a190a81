package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// contentsBench is a server to and from which curl sends contents.
type contentsBench struct {
	clServer

	dir, token string
	user       coreUser
}

func newContentsBench(ctx context.Context, dir string) contentsBench {
	token := makeUsers(ctx, filepath.Join(dir, "data"))["ann"]
	s := startServer(ctx, filepath.Join(dir, "data"))
	return contentsBench{s, dir, token, newCoreUser(ctx, signedIn(s.address, token), "")}
}

// upload uploads a file into a new bundle, and returns the bundle and the upload's duration.
func (b contentsBench) upload(ctx context.Context, file string) (uuid string, took float64) {
	made := must(b.user.CreateBundle(ctx, client.NewBundle{
		Worksheet: b.user.worksheet, Type: codalab.TypeDataset, WaitForUpload: true,
		Metadata: benchMetadata(codalab.TypeDataset, map[string]any{"name": "data"}),
	}))
	to := b.blob(made.UUID) + "?unpack=1&finalize_on_success=1&state_on_success=ready&filename=" + filepath.Base(file)
	return made.UUID, curlUpload(ctx, file, to, "--header", "Authorization: Bearer "+b.token)
}

// download downloads a bundle, and returns the duration.
func (b contentsBench) download(ctx context.Context, uuid string) float64 {
	return curlDownload(ctx, b.blob(uuid), "--header", "Authorization: Bearer "+b.token)
}

func (b contentsBench) blob(uuid string) string {
	return b.address + "/rest/bundles/" + uuid + "/contents/blob/"
}

// remove removes a bundle, so that the disk does not fill.
func (b contentsBench) remove(ctx context.Context, uuid string) {
	c := must(dial(ctx, b.address, nil))
	defer c.Close()
	check(c.call(request(http.MethodDelete, "/rest/bundles?force=1", b.token, []byte(`{"data": [{"type": "bundles", "id": "`+uuid+`"}]}`))))
}

// curlUpload sends a file in chunks, as CodaLab's client does. The answer must be a success.
func curlUpload(ctx context.Context, file, to string, options ...string) float64 {
	in := must(os.Open(file))
	defer func() { _ = in.Close() }() // only read
	cmd := exec.CommandContext(ctx, "curl", append(options, "--silent", "--show-error", "--fail-with-body", "--upload-file", "-", to)...)
	cmd.Stdin = in
	return seconds(func() { output(cmd) })
}

func curlDownload(ctx context.Context, from string, options ...string) float64 {
	cmd := exec.CommandContext(ctx, "curl", append(options, "--silent", "--show-error", "--fail-with-body", "--output", os.DevNull, from)...)
	return seconds(func() { output(cmd) })
}

// benchLargeFile compares the upload and the download of 2 GB in one file with a plain file server. The
// server flushes its files; the file server runs without and with a flush.
func benchLargeFile(ctx context.Context, dir string) {
	const size, rounds = 2e9, 3
	b := newContentsBench(ctx, dir)
	defer b.end()
	bare := startPart(ctx, "server-files", dir)
	defer bare.end()
	file, bareURL := filepath.Join(dir, "large.bin"), bare.said+"/bare.bin"
	makeLargeFile(file, size)
	var up, down, bareUp, bareDown, bareFlushed []float64
	for range rounds {
		program(ctx, "sync")
		uuid, took := b.upload(ctx, file)
		up, down = append(up, took), append(down, b.download(ctx, uuid))
		b.remove(ctx, uuid)
		program(ctx, "sync")
		took = curlUpload(ctx, file, bareURL)
		bareUp, bareFlushed = append(bareUp, took), append(bareFlushed, took+seconds(func() { program(ctx, "sync", "-f", dir) }))
		bareDown = append(bareDown, curlDownload(ctx, bareURL))
		check(os.Remove(filepath.Join(dir, "bare.bin")))
	}
	rate := func(took []float64) float64 { return size / 1e6 / median(took) }
	figure{name: "server/upload_2gb", value: rate(up), unit: "MB/s", against: "curl_to_bare_server", base: rate(bareUp)}.print()
	figure{name: "server/upload_2gb_flushed", value: rate(up), unit: "MB/s", against: "curl_to_bare_server_and_sync", base: rate(bareFlushed)}.print()
	figure{name: "server/download_2gb", value: rate(down), unit: "MB/s", against: "curl_from_bare_server", base: rate(bareDown)}.print()
}

// makeLargeFile writes a file of some MB again and again into one.
func makeLargeFile(path string, size int64) {
	parts := path + ".parts"
	makeFiles(parts, 1, 64<<20)
	block := must(os.ReadFile(filepath.Join(parts, "d00", "f0")))
	f := must(os.Create(path))
	for size > 0 {
		size -= int64(must(f.Write(block[:min(size, int64(len(block)))])))
	}
	check(errors.Join(f.Close(), os.RemoveAll(parts)))
}

// serveFiles is the part server-files: a server that stores and sends the files of a directory.
func serveFiles(ctx context.Context, dir string) {
	l := must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /{name}", func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Create(filepath.Join(dir, r.PathValue("name")))
		if err == nil {
			_, err = io.Copy(f, r.Body)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("GET /{name}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(dir, r.PathValue("name")))
	})
	site := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	var group errgroup.Group
	group.Go(func() error { return site.Serve(l) })
	fmt.Println("http://" + l.Addr().String())
	<-ctx.Done()
	_ = site.Close()
	if err := group.Wait(); !errors.Is(err, http.ErrServerClosed) {
		check(err)
	}
}

// benchSmallFiles compares the upload and the download of 100,000 small files as an archive with tar and
// pigz on the same files. The server compresses as pigz -1 does.
func benchSmallFiles(ctx context.Context, dir string) {
	const files, size, rounds = 100_000, 2048, 3
	b := newContentsBench(ctx, dir)
	defer b.end()
	tree, archive, to := filepath.Join(dir, "tree"), filepath.Join(dir, "small.tar.gz"), filepath.Join(dir, "unpacked")
	makeFiles(tree, files, size)
	sh := func(script string, args ...string) float64 {
		cmd := append([]string{"sh", "-c", script, "sh"}, args...)
		return seconds(func() { program(ctx, cmd...) })
	}
	sh(`tar -C "$1" -c . | pigz -1 >"$2"`, tree, archive)
	var up, down, unpack, pack []float64
	for range rounds {
		uuid, took := b.upload(ctx, archive)
		up, down = append(up, took), append(down, b.download(ctx, uuid))
		b.remove(ctx, uuid)
		check(os.Mkdir(to, 0o700))
		unpack = append(unpack, sh(`pigz -dc "$1" | tar -C "$2" -x`, archive, to))
		pack = append(pack, sh(`tar -C "$1" -c . | pigz -1 >/dev/null`, to))
		check(os.RemoveAll(to))
	}
	rate := func(took []float64) float64 { return files / median(took) }
	figure{name: "server/upload_100000_files", value: rate(up), unit: "files/s", against: "pigz_d_tar_x", base: rate(unpack)}.print()
	figure{name: "server/download_100000_files", value: rate(down), unit: "files/s", against: "tar_c_pigz_1", base: rate(pack)}.print()
}
