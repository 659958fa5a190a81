package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// imageDir is a directory of this process that everybody can read.
var imageDir string

// testImage is the SIF of a small image, for all tests of this process.
var testImage = sync.OnceValues(func() (string, error) {
	path := filepath.Join(imageDir, "image.sif")
	if err := buildImage(context.Background(), path); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o644)
})

// image returns it.
func image(t *testing.T) string {
	t.Helper()
	path, err := testImage()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// makeImage makes an image of some of this host's programs.
func makeImage() (v1.Image, error) {
	var layer bytes.Buffer
	if err := writeLayer(&layer, "sh", "cat", "ls", "env", "sleep", "head", "id", "readlink", "tail", "touch", "stat", "ln", "chown", "setpriv", "mkdir", "mkfifo", "chmod", "rm", "date", "df", "free", "hostname", "seq", "dd", "nproc", "wc"); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: "amd64",
		Config: v1.Config{Env: []string{"PATH=/bin", "FROM_IMAGE=yes"}, Entrypoint: []string{"/bin/no-such-entrypoint"}},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: diffIDs(img)},
	})
}

// buildImage makes a SIF of it.
func buildImage(ctx context.Context, path string) error {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	img, err := makeImage()
	if err != nil {
		return err
	}
	tag := strings.TrimPrefix(server.URL, "http://") + "/test/image:1"
	ref, err := name.ParseReference(tag)
	if err != nil {
		return err
	}
	if err := remote.Write(ref, img); err != nil {
		return err
	}
	reference, err := source.ParseReference(tag)
	if err != nil {
		return err
	}
	resolved, err := imagetest.Source().Resolve(ctx, reference)
	if err != nil {
		return err
	}
	return apptainer.Converter{Source: imagetest.Source()}.Convert(ctx, resolved, path, nil)
}

func diffIDs(img v1.Image) []v1.Hash {
	config, err := img.ConfigFile()
	if err != nil {
		return nil
	}
	return config.RootFS.DiffIDs
}

// writeLayer packs programs into /bin, with the libraries that they need. Absolute paths are files that stay at their place.
func writeLayer(w io.Writer, programs ...string) error {
	files := map[string]string{} // in the image, from the host
	for _, p := range programs {
		if filepath.IsAbs(p) {
			files[p[1:]] = p
			continue
		}
		host, err := filepath.EvalSymlinks("/bin/" + p)
		if err != nil {
			return err
		}
		files["bin/"+p] = host
		if err := addLibraries(files, host); err != nil {
			return err
		}
	}
	tw := tar.NewWriter(w)
	for _, dir := range []string{"bin", "etc", "tmp", "usr"} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	for inside, host := range files {
		data, err := os.ReadFile(host)
		if err != nil {
			return err
		}
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: inside, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return err
		}
		if _, err := tw.Write(data); err != nil {
			return err
		}
	}
	return tw.Close()
}

// addLibraries adds the libraries and the loader of a dynamically linked program.
func addLibraries(files map[string]string, program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if section := f.Section(".interp"); section != nil {
		data, err := section.Data()
		if err != nil {
			return err
		}
		loader := strings.TrimRight(string(data), "\x00")
		files[strings.TrimPrefix(loader, "/")] = loader
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, lib := range libraries {
		found, err := filepath.Glob("/lib/*/" + lib)
		if err != nil || len(found) == 0 {
			if _, known := files["lib64/"+lib]; known {
				continue // the loader itself
			}
			return fmt.Errorf("no library %s for %s", lib, program)
		}
		inside := strings.TrimPrefix(found[0], "/")
		if _, known := files[inside]; known {
			continue
		}
		files[inside] = found[0]
		if err := addLibraries(files, found[0]); err != nil {
			return err
		}
	}
	return nil
}
