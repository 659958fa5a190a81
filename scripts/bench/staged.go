package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// countingProxy is a proxy before a server that counts the contents of bundles
// that the server sends.
type countingProxy struct{ bytes, answers atomic.Int64 }

func (p *countingProxy) handler(server string) http.Handler {
	to := must(url.Parse(server))
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodGet && strings.Contains(r.Request.URL.Path, "/contents/blob/") {
				p.answers.Add(1)
				r.Body = &countingBody{ReadCloser: r.Body, count: &p.bytes}
			}
			return nil
		},
		FlushInterval: -1,
		ErrorLog:      testsite.Quiet(), // check-ins end with the bridge
	}
}

type countingBody struct {
	io.ReadCloser
	count *atomic.Int64
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count.Add(int64(n))
	return n, err
}

const gigabyte = 1_000_000_000

// benchStaging measures staging on a whole site: the number of downloads of a dependency
// that 64 bundles share, and the time between an allocation's start and its command's if
// image and dependency were not cached.
func benchStaging(ctx context.Context, dir string) {
	var proxy countingProxy
	stop := func() {}
	defer func() { stop() }()
	via := ""
	s := startSite(ctx, testsite.Options{Via: func(server string) string {
		if via == "" {
			var err error
			via, stop, err = testsite.Serve(ctx, proxy.handler(server))
			check(err)
		}
		return "http://" + via
	}})
	defer func() { _ = s.Close() }() // the figures are printed before
	s.benchShared(ctx, &proxy)
	s.benchCold(ctx, dir)
}

func (s *site) benchShared(ctx context.Context, proxy *countingProxy) {
	s.upload(ctx, "big", gigabyte)
	bytes, answers := proxy.bytes.Load(), proxy.answers.Load()
	var runs []string
	for range 64 {
		runs = append(runs, s.cl(ctx, "run", "d:big", "wc -c < d", "--request-queue", "cpu"))
	}
	for _, uuid := range runs {
		s.cl(ctx, "wait", uuid)
	}
	bytes, answers = proxy.bytes.Load()-bytes, proxy.answers.Load()-answers
	figure{name: "disk/downloads_for_64_jobs", value: float64(answers), unit: "downloads", bar: 1}.print()
	figure{name: "disk/bytes_for_64_jobs", value: float64(bytes) / 1e9, unit: "GB", against: "its_size", base: 1, bar: 1.01}.print()
}

// benchCold measures runs of an image of 1 GB on a dependency of 2 GB, with an
// empty cache.
func (s *site) benchCold(ctx context.Context, dir string) {
	s.upload(ctx, "huge", 2*gigabyte)
	image, stop := s.serveLargeImage(ctx, dir)
	defer stop()
	var held, waited []float64
	for range 3 {
		check(s.StopBridge())
		removeAllIn(filepath.Join(s.Shared, "cache"))
		check(s.StartBridge(ctx))
		t := s.bundle(ctx, "d:huge", "--request-docker-image", image)
		held, waited = append(held, t.held), append(waited, t.first)
	}
	figure{name: "disk/allocation_before_command_cold", value: median(held), unit: "s", bar: 0.3}.print()
	figure{name: "disk/cold_until_command", value: median(waited), unit: "s"}.print()
}

// upload makes a bundle of random bytes.
func (s *site) upload(ctx context.Context, name string, size int64) {
	path := filepath.Join(s.Dir, "home", name)
	writeRandom(path, size)
	s.cl(ctx, "upload", name)
	check(os.Remove(path))
}

func writeRandom(path string, size int64) {
	f := must(os.Create(path))
	random := must(os.Open("/dev/urandom"))
	defer func() { _ = random.Close() }() // only read
	must(io.CopyN(f, random, size))
	check(f.Close())
}

func removeAllIn(dir string) {
	for _, e := range must(os.ReadDir(dir)) {
		check(os.RemoveAll(filepath.Join(dir, e.Name())))
	}
}

// serveLargeImage serves the site's image with one more layer of 1 GB.
func (s *site) serveLargeImage(ctx context.Context, dir string) (image string, stop func()) {
	base := must(remote.Image(must(name.ParseReference(s.Image, name.Insecure)), remote.WithContext(ctx)))
	check(os.MkdirAll(filepath.Join(dir, "layer/opt"), 0o755))
	writeRandom(filepath.Join(dir, "layer/opt/weights"), gigabyte)
	layer := filepath.Join(dir, "layer.tar")
	program(ctx, "tar", "-C", filepath.Join(dir, "layer"), "-cf", layer, "opt")
	large := must(mutate.AppendLayers(base, must(tarball.LayerFromFile(layer, tarball.WithCompressionLevel(1)))))
	return serveImage(ctx, registry.NewDiskBlobHandler(dir), "large", large)
}

// serveImage serves an image from a registry with these blobs, and returns its name.
func serveImage(ctx context.Context, blobs registry.BlobHandler, repository string, img v1.Image) (image string, stop func()) {
	image, stop, err := testsite.ServeImage(ctx, blobs, repository, img)
	check(err)
	return image, stop
}
