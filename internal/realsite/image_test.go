package realsite_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// tools are names of busybox, which the image of the tests has.
var tools = []string{"sh", "cat", "dd", "echo", "env", "grep", "head", "hostname", "id", "ls", "nc", "sha256sum", "sleep", "tail", "test", "true", "wc"}

// imageArchive returns the archive of a small image, as `docker save` writes it. A guest is
// slow: Debian's own image would take it minutes to convert.
func imageArchive(t *testing.T, root string) []byte {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin/", "etc/", "lib64/", "lib/", "lib/x86_64-linux-gnu/", "tmp/"} {
		add(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	// busybox's date does not support nanoseconds.
	for _, path := range []string{"bin/busybox", "bin/date", "lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libc.so.6"} {
		content, err := os.ReadFile(filepath.Join(root, "root/usr", path))
		if err != nil {
			t.Fatal(err)
		}
		add(tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o755}, content)
	}
	for _, tool := range tools {
		add(tar.Header{Name: "bin/" + tool, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer.Bytes(), types.DockerUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	img, err = mutate.Config(img, v1.Config{Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("box:latest")
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := tarball.Write(tag, img, &archive); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}
