package apptainer_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// local is a client that may open what lies below dir.
func local(dir string) apptainer.Registry {
	r := quick()
	r.Open = apptainer.FilesBelow(dir)
	return r
}

// archiveFile is one file of a tar file in a test.
type archiveFile struct {
	name, link string
	content    []byte
}

func writeTar(tb testing.TB, path string, files ...archiveFile) {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.content))}
		if f.link != "" {
			header = &tar.Header{Typeflag: tar.TypeSymlink, Name: f.name, Linkname: f.link, Mode: 0o777}
		}
		if err := w.WriteHeader(header); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write(f.content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// parts are an image's configuration and its layers uncompressed.
func parts(tb testing.TB, img v1.Image) (config []byte, layers [][]byte) {
	tb.Helper()
	config, err := img.RawConfigFile()
	if err != nil {
		tb.Fatal(err)
	}
	all, err := img.Layers()
	if err != nil {
		tb.Fatal(err)
	}
	for _, l := range all {
		r, err := l.Uncompressed()
		if err != nil {
			tb.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			tb.Fatal(err)
		}
		layers = append(layers, data)
	}
	return config, layers
}

// saved writes an archive as docker save did until version 24, where a layer
// that comes twice is a link the second time, or as it does since.
func saved(tb testing.TB, path string, since25 bool, images map[string]v1.Image) {
	tb.Helper()
	var files []archiveFile
	manifest := []map[string]any{}
	for tag, img := range images {
		config, layers := parts(tb, img)
		hash, _, err := v1.SHA256(bytes.NewReader(config))
		if err != nil {
			tb.Fatal(err)
		}
		configName := hash.Hex + ".json"
		if since25 {
			configName = "blobs/sha256/" + hash.Hex
		}
		item := map[string]any{"Config": configName, "RepoTags": []string{tag}}
		files = append(files, archiveFile{name: configName, content: config})
		var names []string
		seen := map[string]string{}
		for i, data := range layers {
			digest, _, err := v1.SHA256(bytes.NewReader(data))
			if err != nil {
				tb.Fatal(err)
			}
			file := archiveFile{name: fmt.Sprintf("%s-%d/layer.tar", hash.Hex, i), content: data}
			if since25 {
				file.name = "blobs/sha256/" + digest.Hex
			} else if first := seen[digest.Hex]; first != "" {
				file = archiveFile{name: file.name, link: "../" + first}
			}
			seen[digest.Hex] = file.name
			files, names = append(files, file), append(names, file.name)
		}
		item["Layers"] = names
		manifest = append(manifest, item)
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		tb.Fatal(err)
	}
	writeTar(tb, path, append(files, archiveFile{name: "manifest.json", content: data})...)
}

func gzipFile(tb testing.TB, from, to string) {
	tb.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		tb.Fatal(err)
	}
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := errors.Join(w.Close(), os.WriteFile(to, buf.Bytes(), 0o600)); err != nil {
		tb.Fatal(err)
	}
}

// everywhere puts an image in each kind of place, and gives its references.
func everywhere(tb testing.TB, dir string, img v1.Image) map[string]string {
	tb.Helper()
	refs := map[string]string{"registry": imagetest.Start(tb).Push(tb, "x", img)}
	saved(tb, filepath.Join(dir, "old.tar"), false, map[string]v1.Image{"debian:12": img})
	saved(tb, filepath.Join(dir, "new.tar"), true, map[string]v1.Image{"debian:12": img})
	gzipFile(tb, filepath.Join(dir, "old.tar"), filepath.Join(dir, "old.tar.gz"))
	tag, err := name.NewTag("debian:12")
	if err != nil {
		tb.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(dir, "crane.tar"), tag, img); err != nil {
		tb.Fatal(err)
	}
	p, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "v1"})); err != nil {
		tb.Fatal(err)
	}
	var files []archiveFile
	err = fs.WalkDir(os.DirFS(string(p)), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(string(p), path))
		files = append(files, archiveFile{name: "./" + path, content: data})
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	writeTar(tb, filepath.Join(dir, "layout.tar"), files...)
	for name, ref := range map[string]string{
		"docker save with gzip": "docker-archive:%s/old.tar.gz:debian:12",
		"docker save":           "docker-archive:%s/old.tar", "docker save by tag": "docker-archive:%s/old.tar:debian:12", "docker save 25": "docker-archive:%s/new.tar:@0",
		"crane": "docker-archive:%s/crane.tar", "layout": "oci:%s/layout", "layout by name": "oci:%s/layout:v1", "layout archive": "oci-archive:%s/layout.tar:v1",
	} {
		refs[name] = fmt.Sprintf(ref, dir)
	}
	return refs
}

func TestBlobsAreReadFromAnyByteWhereverTheyLie(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	twice := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("f", strings.Repeat("twice", 1000))))
	img := imagetest.Image(t, v1.Config{}, twice, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("g", "once"))), twice)
	for where, name := range everywhere(t, dir, img) {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			r := local(dir)
			resolved, err := r.Resolve(t.Context(), reference(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if pinned, err := r.Resolve(t.Context(), reference(t, resolved.Pinned())); err != nil || pinned.Digest != resolved.Digest || pinned.Pinned() != resolved.Pinned() {
				t.Errorf("%s resolves to %+v, %v", resolved.Pinned(), pinned, err)
			}
			again, err := r.Refresh(t.Context(), resolved)
			if err != nil || again != resolved {
				t.Errorf("refreshed to %+v, %v; want %+v", again, err, resolved)
			}
			layers, err := apptainer.Layers(t.Context(), r, resolved)
			if err != nil || len(layers) != 3 {
				t.Fatalf("%d layers, %v", len(layers), err)
			}
			for _, l := range layers {
				whole, err := apptainer.ReadBlob(t.Context(), r, resolved, l, 0)
				digest, _, _ := v1.SHA256(bytes.NewReader(whole))
				if err != nil || digest != l.Digest {
					t.Fatalf("%v, %s; want %s", err, digest, l.Digest)
				}
				for _, offset := range []int64{1, l.Size / 2, l.Size - 1, l.Size} {
					rest, err := apptainer.ReadBlob(t.Context(), r, resolved, l, offset)
					if err != nil || !bytes.Equal(rest, whole[offset:]) {
						t.Errorf("from byte %d: %d bytes, %v; want %d", offset, len(rest), err, l.Size-offset)
					}
				}
				if _, err := apptainer.ReadBlob(t.Context(), r, resolved, l, l.Size+1); err == nil {
					t.Error("read from behind the end")
				}
			}
		})
	}
}

func TestImagesInFilesAreConverted(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	dir := t.TempDir()
	img := imagetest.Image(t, v1.Config{Env: []string{"A=b"}},
		imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("f", "lower"))), imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("g", "upper"))))
	for where, name := range everywhere(t, dir, img) {
		r := local(dir)
		resolved, err := r.Resolve(t.Context(), reference(t, name))
		if err != nil {
			t.Fatal(where, err)
		}
		path := filepath.Join(t.TempDir(), "x.sif")
		if err := (apptainer.Converter{Registry: r}).Convert(t.Context(), resolved, path, nil); err != nil {
			t.Fatal(where, err)
		}
		if got := unsquash(t, path, "-cat", path, "f", "g"); got != "lowerupper" {
			t.Errorf("%s: it holds %q", where, got)
		}
		ready, err := local(filepath.Dir(path)).Resolve(t.Context(), reference(t, path))
		if err != nil || ready.Digest != "" || ready.Reference.Path() != path {
			t.Errorf("%s: the SIF resolves to %+v, %v", where, ready, err)
		}
		err = (apptainer.Converter{Registry: local(filepath.Dir(path))}).Convert(t.Context(), ready, path+"2", nil)
		wantImageError(t, err, false, "SIF")
		other := local(filepath.Dir(path))
		other.Architecture = "s390x"
		_, err = other.Resolve(t.Context(), reference(t, path))
		wantImageError(t, err, false, "it is made for linux/"+runtime.GOARCH+", not for linux/s390x")
	}
}

func TestImageInAFileIsChosenByNameOrRefusedInWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := tiny(t, "a"), tiny(t, "b")
	saved(t, filepath.Join(dir, "two.tar"), false, map[string]v1.Image{"a:1": a, "host:5000/b:2": b})
	p, err := layout.Write(filepath.Join(dir, "two"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for name, img := range map[string]v1.Image{"one": a, "two": b} {
		if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})); err != nil {
			t.Fatal(err)
		}
	}
	list := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: a, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: b, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}})
	if _, err := layout.Write(filepath.Join(dir, "platforms"), list); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text.tar"), []byte(strings.Repeat("text", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	gzipFile(t, filepath.Join(dir, "text.tar"), filepath.Join(dir, "text.tar.gz"))
	gzipFile(t, filepath.Join(dir, "two.tar"), filepath.Join(dir, "short.tar.gz"))
	if err := os.Truncate(filepath.Join(dir, "short.tar.gz"), 300); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.tar"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "out.tar")); err != nil {
		t.Fatal(err)
	}
	writeTar(t, filepath.Join(dir, "circle.tar"), archiveFile{name: "manifest.json", link: "other"}, archiveFile{name: "other", link: "manifest.json"})
	writeTar(t, filepath.Join(dir, "lean.tar"), archiveFile{name: "manifest.json", content: []byte(`[{"Config":"c","Layers":["../../etc/passwd"]}]`)},
		archiveFile{name: "c", content: []byte(`{"rootfs":{"diff_ids":["sha256:` + strings.Repeat("0", 64) + `"]}}`)})
	short, err := layout.Write(filepath.Join(dir, "short"), mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: a}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := a.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(string(short), "blobs", config.Algorithm, config.Hex), 10); err != nil {
		t.Fatal(err)
	}
	for name, words := range map[string]string{
		"oci:" + string(short):                                                     "is of 10 bytes, not ",
		"docker-archive:" + dir + "/two.tar:a:1":                                   "",
		"docker-archive:" + dir + "/two.tar:host:5000/b:2":                         "",
		"docker-archive:" + dir + "/two.tar:@1":                                    "",
		"docker-archive:" + dir + "/two.tar":                                       "it holds 2 images: add :NAME for one of ",
		"docker-archive:" + dir + "/two.tar:a:1@sha256:" + strings.Repeat("0", 64): "the archive has changed: it holds sha256:",
		"oci:" + dir + "/two:one@sha256:" + strings.Repeat("0", 64):                "no such file or directory",
		"docker-archive:" + dir + "/two.tar:c":                                     "it has no image docker.io/library/c:latest, only ",
		"docker-archive:" + dir + "/two.tar:@2":                                    "it has no image @2",
		"docker-archive:" + dir + "/none.tar":                                      "no such file or directory",
		"docker-archive:" + dir + "/text.tar":                                      "is not a tar file",
		"docker-archive:" + dir + "/short.tar.gz":                                  "unexpected EOF",
		"docker-archive:" + dir + "/text.tar.gz":                                   "it is not a tar file, or compressed otherwise than with gzip",
		"docker-archive:" + dir + "/pipe.tar":                                      "is not a regular file",
		"docker-archive:" + dir + "/out.tar":                                       "path escapes",
		"docker-archive:" + dir + "/circle.tar":                                    "leads nowhere",
		"docker-archive:" + dir + "/lean.tar":                                      "there is no ../../etc/passwd in it",
		"docker-archive:/etc/passwd":                                               "images in /etc may not be used here",
		"oci:" + dir + "/two:one":                                                  "",
		"oci:" + dir + "/two:@1":                                                   "",
		"oci:" + dir + "/two":                                                      "it holds several images: add :NAME for one of one, two",
		"oci:" + dir + "/two:three":                                                `it has no image "three", only one, two`,
		"oci:" + dir + "/platforms":                                                "",
		"oci:" + dir + "/none":                                                     "no such file or directory",
		dir + "/none.sif":                                                          "no such file or directory",
	} {
		r := local(dir)
		img, err := r.Resolve(t.Context(), reference(t, name))
		if err == nil {
			_, err = apptainer.Layers(t.Context(), r, img)
		}
		if words == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if words != "" {
			wantImageError(t, err, false, words)
		}
	}
	_, err = quick().Resolve(t.Context(), reference(t, "docker-archive:"+dir+"/two.tar:a:1"))
	wantImageError(t, err, false, "images in files may not be used here")
}

// The archives were saved by these programs of one image, amd64, of layers that
// hold the files f, g and f.
func TestArchivesOfDockerAndPodmanAreRead(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	r := local(dir)
	r.Architecture = "amd64"
	for _, name := range []string{
		"docker-archive:%s/docker-20.10.24/docker-archive.tar", "docker-archive:%s/docker-20.10.24/docker-archive.tar:other:1",
		"docker-archive:%s/podman-4.3.1/docker-archive.tar:localhost/debian:12", "oci-archive:%s/podman-4.3.1/oci-archive.tar:localhost/debian:12",
	} {
		img, err := r.Resolve(t.Context(), reference(t, fmt.Sprintf(name, dir)))
		if err != nil {
			t.Error(err)
			continue
		}
		layers, err := apptainer.Layers(t.Context(), r, img)
		if err != nil || len(layers) != 3 || layers[0].Digest != layers[2].Digest {
			t.Errorf("%s: %v, %v", name, layers, err)
			continue
		}
		for _, l := range layers {
			data, err := apptainer.ReadBlob(t.Context(), r, img, l, 0)
			digest, _, _ := v1.SHA256(bytes.NewReader(data))
			if err != nil || digest != l.Digest {
				t.Errorf("%s: a layer is %s, %v; want %s", name, digest, err, l.Digest)
			}
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"schemaVersion": 2, "config": {"mediaType": "application/vnd.oci.image.config.v1+json"}, "layers": []}`))
	f.Add([]byte(`{"schemaVersion": 2, "manifests": [{"digest": "sha256:` + strings.Repeat("0", 64) + `", "platform": {"os": "linux", "architecture": "arm", "variant": "v6"}}, null]}`))
	f.Add([]byte(`{"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.index.v1+json"}]}`))
	f.Add([]byte(`{"schemaVersion": 1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := apptainer.ReadManifest(t.Context(), raw); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q is not one line", err)
		}
	})
}

func FuzzArchive(f *testing.F) {
	names, err := filepath.Glob("testdata/*/*.tar")
	if err != nil || len(names) != 3 {
		f.Fatal(names, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.tar"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		r := local(dir)
		r.Architecture = "amd64"
		for _, kind := range []string{"docker-archive:", "oci-archive:"} {
			img, err := r.Resolve(t.Context(), reference(t, kind+dir+"/x.tar"))
			if err != nil {
				continue
			}
			layers, err := apptainer.Layers(t.Context(), r, img)
			if err != nil {
				continue
			}
			for _, l := range layers {
				if data, err := apptainer.ReadBlob(t.Context(), r, img, l, 0); err == nil && int64(len(data)) != l.Size {
					t.Errorf("%s gives %d bytes of a layer of %d", kind, len(data), l.Size)
				}
			}
		}
	})
}
