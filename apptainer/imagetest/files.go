package imagetest

import (
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

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// WriteTar writes a tar file.
func WriteTar(tb testing.TB, path string, files ...File) {
	tb.Helper()
	testenv.Must(tb, os.WriteFile(path, TarStream(tb, files...), 0o600))
}

// WriteSaved writes an archive as docker save does since version 25, or as earlier versions did.
// Those wrote a repeated layer as a link.
func WriteSaved(tb testing.TB, path string, since25 bool, images map[string]v1.Image) {
	tb.Helper()
	var files []File
	manifest := []map[string]any{}
	for tag, img := range images {
		config, err := img.RawConfigFile()
		testenv.Must(tb, err)
		hash, _, err := v1.SHA256(bytes.NewReader(config))
		testenv.Must(tb, err)
		configName := hash.Hex + ".json"
		if since25 {
			configName = "blobs/sha256/" + hash.Hex
		}
		files = append(files, Regular(configName, string(config)))
		layers, err := img.Layers()
		testenv.Must(tb, err)
		var names []string
		first := map[v1.Hash]string{}
		for i, l := range layers {
			diffID, err := l.DiffID()
			testenv.Must(tb, err)
			r, err := l.Uncompressed()
			testenv.Must(tb, err)
			data, err := io.ReadAll(r)
			testenv.Must(tb, err)
			file := Regular(fmt.Sprintf("%s-%d/layer.tar", hash.Hex, i), string(data))
			if since25 {
				file.Name = "blobs/sha256/" + diffID.Hex
			} else if first[diffID] != "" {
				file = Symlink(file.Name, "../"+first[diffID])
			}
			first[diffID] = file.Name
			files, names = append(files, file), append(names, file.Name)
		}
		manifest = append(manifest, map[string]any{"Config": configName, "RepoTags": []string{tag}, "Layers": names})
	}
	data, err := json.Marshal(manifest)
	testenv.Must(tb, err)
	WriteTar(tb, path, append(files, Regular("manifest.json", string(data)))...)
}

// GzipFile compresses a file.
func GzipFile(tb testing.TB, from, to string) {
	tb.Helper()
	data, err := os.ReadFile(from)
	testenv.Must(tb, err)
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err = w.Write(data)
	testenv.Must(tb, errors.Join(err, w.Close(), os.WriteFile(to, buf.Bytes(), 0o600)))
}

// Everywhere writes an image to a registry and, in dir, to files of each kind. It returns the
// references by kind.
func Everywhere(tb testing.TB, dir string, img v1.Image) map[string]string {
	tb.Helper()
	in := func(name string) string { return filepath.Join(dir, name) }
	WriteSaved(tb, in("old.tar"), false, map[string]v1.Image{"debian:12": img})
	WriteSaved(tb, in("new.tar"), true, map[string]v1.Image{"debian:12": img})
	GzipFile(tb, in("old.tar"), in("old.tar.gz"))
	tag, err := name.NewTag("debian:12")
	testenv.Must(tb, err)
	testenv.Must(tb, tarball.WriteToFile(in("crane.tar"), tag, img))
	p, err := layout.Write(in("layout"), empty.Index)
	testenv.Must(tb, err)
	testenv.Must(tb, p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "v1"})))
	var files []File
	testenv.Must(tb, fs.WalkDir(os.DirFS(string(p)), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(string(p), path))
		files = append(files, Regular("./"+path, string(data)))
		return err
	}))
	WriteTar(tb, in("layout.tar"), files...)
	return map[string]string{
		"registry":              Start(tb).Push(tb, "x", img),
		"docker save":           "docker-archive:" + in("old.tar"),
		"docker save by tag":    "docker-archive:" + in("old.tar:debian:12"),
		"docker save with gzip": "docker-archive:" + in("old.tar.gz:debian:12"),
		"docker save 25":        "docker-archive:" + in("new.tar:@0"),
		"crane":                 "docker-archive:" + in("crane.tar"),
		"layout":                "oci:" + in("layout"),
		"layout by name":        "oci:" + in("layout:v1"),
		"layout archive":        "oci-archive:" + in("layout.tar:v1"),
	}
}
