package imagetest

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
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// ArchiveFile is one file of a tar file in a test.
type ArchiveFile struct {
	// Name is the file's; Link what it is a symbolic link to, or empty.
	Name, Link string
	// Content is what a file holds that is no link.
	Content []byte
}

// WriteTar writes a tar file.
func WriteTar(tb testing.TB, path string, files ...ArchiveFile) {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: 0o644, Size: int64(len(f.Content))}
		if f.Link != "" {
			header = &tar.Header{Typeflag: tar.TypeSymlink, Name: f.Name, Linkname: f.Link, Mode: 0o777}
		}
		if err := w.WriteHeader(header); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write(f.Content); err != nil {
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

// WriteSaved writes an archive as docker save did until version 24, where a layer
// that comes twice is a link the second time, or as it does since.
func WriteSaved(tb testing.TB, path string, since25 bool, images map[string]v1.Image) {
	tb.Helper()
	var files []ArchiveFile
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
		files = append(files, ArchiveFile{Name: configName, Content: config})
		var names []string
		seen := map[string]string{}
		for i, data := range layers {
			digest, _, err := v1.SHA256(bytes.NewReader(data))
			if err != nil {
				tb.Fatal(err)
			}
			file := ArchiveFile{Name: fmt.Sprintf("%s-%d/layer.tar", hash.Hex, i), Content: data}
			if since25 {
				file.Name = "blobs/sha256/" + digest.Hex
			} else if first := seen[digest.Hex]; first != "" {
				file = ArchiveFile{Name: file.Name, Link: "../" + first}
			}
			seen[digest.Hex] = file.Name
			files, names = append(files, file), append(names, file.Name)
		}
		item["Layers"] = names
		manifest = append(manifest, item)
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		tb.Fatal(err)
	}
	WriteTar(tb, path, append(files, ArchiveFile{Name: "manifest.json", Content: data})...)
}

// GzipFile compresses a file.
func GzipFile(tb testing.TB, from, to string) {
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

// Everywhere puts an image in each kind of place, in dir or in a registry, and
// gives its references.
func Everywhere(tb testing.TB, dir string, img v1.Image) map[string]string {
	tb.Helper()
	refs := map[string]string{"registry": Start(tb).Push(tb, "x", img)}
	WriteSaved(tb, filepath.Join(dir, "old.tar"), false, map[string]v1.Image{"debian:12": img})
	WriteSaved(tb, filepath.Join(dir, "new.tar"), true, map[string]v1.Image{"debian:12": img})
	GzipFile(tb, filepath.Join(dir, "old.tar"), filepath.Join(dir, "old.tar.gz"))
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
	var files []ArchiveFile
	err = fs.WalkDir(os.DirFS(string(p)), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(string(p), path))
		files = append(files, ArchiveFile{Name: "./" + path, Content: data})
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	WriteTar(tb, filepath.Join(dir, "layout.tar"), files...)
	for name, ref := range map[string]string{
		"docker save with gzip": "docker-archive:%s/old.tar.gz:debian:12",
		"docker save":           "docker-archive:%s/old.tar", "docker save by tag": "docker-archive:%s/old.tar:debian:12", "docker save 25": "docker-archive:%s/new.tar:@0",
		"crane": "docker-archive:%s/crane.tar", "layout": "oci:%s/layout", "layout by name": "oci:%s/layout:v1", "layout archive": "oci-archive:%s/layout.tar:v1",
	} {
		refs[name] = fmt.Sprintf(ref, dir)
	}
	return refs
}
