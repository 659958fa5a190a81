package source_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// local returns a source that may open files below dir.
func local(dir string) source.Source {
	r := imagetest.Source()
	r.OpenFile = source.FilesBelow(dir)
	return r
}

func TestBlobsOfEveryStoreAreReadAtAnyOffset(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	twice := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("f", strings.Repeat("twice", 1000))))
	img := imagetest.Image(t, v1.Config{}, twice, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("g", "once"))), twice)
	for where, name := range imagetest.Everywhere(t, dir, img) {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			r := local(dir)
			resolved, err := r.Resolve(t.Context(), imagetest.Reference(t, name))
			must(t, err)
			if pinned, err := r.Resolve(t.Context(), imagetest.Reference(t, resolved.PinnedReference())); err != nil || pinned.Digest != resolved.Digest || pinned.PinnedReference() != resolved.PinnedReference() {
				t.Errorf("%s resolves to %+v, %v", resolved.PinnedReference(), pinned, err)
			}
			again, err := r.Refresh(t.Context(), resolved)
			if err != nil || again != resolved {
				t.Errorf("refreshed to %+v, %v; want %+v", again, err, resolved)
			}
			layers, err := source.Layers(t.Context(), r, resolved)
			if err != nil || len(layers) != 3 {
				t.Fatalf("%d layers, %v", len(layers), err)
			}
			for _, l := range layers {
				whole, err := source.ReadBlob(t.Context(), r, resolved, l, 0)
				digest, _, _ := v1.SHA256(bytes.NewReader(whole))
				if err != nil || digest != l.Digest {
					t.Fatalf("%v, %s; want %s", err, digest, l.Digest)
				}
				for _, offset := range []int64{1, l.Size / 2, l.Size - 1, l.Size} {
					rest, err := source.ReadBlob(t.Context(), r, resolved, l, offset)
					if err != nil || !bytes.Equal(rest, whole[offset:]) {
						t.Errorf("from byte %d: %d bytes, %v; want %d", offset, len(rest), err, l.Size-offset)
					}
				}
				if _, err := source.ReadBlob(t.Context(), r, resolved, l, l.Size+1); err == nil {
					t.Error("read from behind the end")
				}
			}
		})
	}
}

func TestImageInAFileIsChosenByNameOrRefusedInWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := imagetest.Tiny(t, "a"), imagetest.Tiny(t, "b")
	imagetest.WriteSaved(t, filepath.Join(dir, "two.tar"), false, map[string]v1.Image{"a:1": a, "host:5000/b:2": b})
	p, err := layout.Write(filepath.Join(dir, "two"), empty.Index)
	must(t, err)
	for name, img := range map[string]v1.Image{"one": a, "two": b} {
		must(t, p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})))
	}
	list := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: a, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: b, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}})
	if _, err := layout.Write(filepath.Join(dir, "platforms"), list); err != nil {
		t.Fatal(err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "text.tar"), []byte(strings.Repeat("text", 1000)), 0o600))
	imagetest.GzipFile(t, filepath.Join(dir, "text.tar"), filepath.Join(dir, "text.tar.gz"))
	imagetest.GzipFile(t, filepath.Join(dir, "two.tar"), filepath.Join(dir, "short.tar.gz"))
	must(t, os.Truncate(filepath.Join(dir, "short.tar.gz"), 300))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe.tar"), 0o600))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "out.tar")))
	imagetest.WriteTar(t, filepath.Join(dir, "circle.tar"), imagetest.Symlink("manifest.json", "other"), imagetest.Symlink("other", "manifest.json"))
	imagetest.WriteTar(t, filepath.Join(dir, "lean.tar"), imagetest.Regular("manifest.json", `[{"Config":"c","Layers":["../../etc/passwd"]}]`),
		imagetest.Regular("c", `{"rootfs":{"diff_ids":["sha256:`+strings.Repeat("0", 64)+`"]}}`))
	short, err := layout.Write(filepath.Join(dir, "short"), mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: a}))
	must(t, err)
	config, err := a.ConfigName()
	must(t, err)
	must(t, os.Truncate(filepath.Join(string(short), "blobs", config.Algorithm, config.Hex), 10))
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
		img, err := r.Resolve(t.Context(), imagetest.Reference(t, name))
		if err == nil {
			_, err = source.Layers(t.Context(), r, img)
		}
		if words == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if words != "" {
			imagetest.WantError(t, err, false, words)
		}
	}
	_, err = imagetest.Source().Resolve(t.Context(), imagetest.Reference(t, "docker-archive:"+dir+"/two.tar:a:1"))
	imagetest.WantError(t, err, false, "images in files may not be used here")
}

// These programs saved the archives. The image is for amd64, and its layers hold the
// files f, g and f.
func TestArchivesOfDockerAndPodmanAreRead(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("testdata")
	must(t, err)
	r := local(dir)
	r.Architecture = "amd64"
	for _, name := range []string{
		"docker-archive:%s/docker-20.10.24/docker-archive.tar", "docker-archive:%s/docker-20.10.24/docker-archive.tar:other:1",
		"docker-archive:%s/podman-4.3.1/docker-archive.tar:localhost/debian:12", "oci-archive:%s/podman-4.3.1/oci-archive.tar:localhost/debian:12",
	} {
		img, err := r.Resolve(t.Context(), imagetest.Reference(t, fmt.Sprintf(name, dir)))
		if err != nil {
			t.Error(err)
			continue
		}
		layers, err := source.Layers(t.Context(), r, img)
		if err != nil || len(layers) != 3 || layers[0].Digest != layers[2].Digest {
			t.Errorf("%s: %v, %v", name, layers, err)
			continue
		}
		for _, l := range layers {
			data, err := source.ReadBlob(t.Context(), r, img, l, 0)
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
		if err := source.ReadManifest(t.Context(), raw); err != nil && strings.Contains(err.Error(), "\n") {
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
		must(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "x.tar"), data, 0o600))
		r := local(dir)
		r.Architecture = "amd64"
		for _, kind := range []string{"docker-archive:", "oci-archive:"} {
			img, err := r.Resolve(t.Context(), imagetest.Reference(t, kind+dir+"/x.tar"))
			if err != nil {
				continue
			}
			layers, err := source.Layers(t.Context(), r, img)
			if err != nil {
				continue
			}
			for _, l := range layers {
				if data, err := source.ReadBlob(t.Context(), r, img, l, 0); err == nil && int64(len(data)) != l.Size {
					t.Errorf("%s gives %d bytes of a layer of %d", kind, len(data), l.Size)
				}
			}
		}
	})
}
