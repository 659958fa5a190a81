package apptainer_test

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/apptainer"
)

// testRegistry is a real registry on a loopback address.
type testRegistry struct {
	host string
	// intercept, when set, may answer a request in the registry's place.
	intercept func(w http.ResponseWriter, r *http.Request) (done bool)
	requests  chan string
}

func startRegistry(tb testing.TB) *testRegistry {
	tb.Helper()
	reg := &testRegistry{requests: make(chan string, 1000)}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case reg.requests <- r.Method + " " + r.URL.Path:
		default:
		}
		if reg.intercept != nil && reg.intercept(w, r) {
			return
		}
		handler.ServeHTTP(w, r)
	}))
	tb.Cleanup(srv.Close)
	reg.host = strings.TrimPrefix(srv.URL, "http://")
	return reg
}

// push publishes an image and gives the name to ask for it by.
func (r *testRegistry) push(tb testing.TB, repo string, img v1.Image) string {
	tb.Helper()
	ref, err := name.ParseReference(r.host + "/" + repo)
	if err != nil {
		tb.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		tb.Fatal(err)
	}
	return ref.String()
}

// quick is a client that does not wait long.
func quick() apptainer.Registry { return apptainer.Registry{RetryDelay: time.Millisecond} }

func resolve(tb testing.TB, name string) apptainer.Image {
	tb.Helper()
	ref, err := apptainer.ParseReference(name)
	if err != nil {
		tb.Fatal(err)
	}
	img, err := quick().Resolve(tb.Context(), ref)
	if err != nil {
		tb.Fatal(err)
	}
	return img
}

// file is one entry of a layer in a test.
type file struct {
	tar.Header

	content string
}

func regular(name, content string) file {
	return file{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}, content}
}

func executable(name, content string) file {
	f := regular(name, content)
	f.Mode = 0o755
	return f
}

func directory(name string) file {
	return file{tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, ""}
}

func symlink(name, target string) file {
	return file{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, ""}
}

func hardlink(name, target string) file {
	return file{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}, ""}
}

// tarStream is a layer uncompressed.
func tarStream(tb testing.TB, files ...file) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		if f.ModTime.IsZero() {
			f.ModTime = time.Unix(1_000_000_000, 0)
		}
		if err := w.WriteHeader(&f.Header); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write([]byte(f.content)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func gzipLayer(tb testing.TB, stream []byte) v1.Layer {
	tb.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(stream)), nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return layer
}

// image builds one of this machine's platform.
func image(tb testing.TB, config v1.Config, layers ...v1.Layer) v1.Image {
	tb.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		tb.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		tb.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	img, err = mutate.ConfigFile(img, file)
	if err != nil {
		tb.Fatal(err)
	}
	return img
}
