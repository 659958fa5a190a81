// Package imagetest makes images and serves them from a registry, for tests.
package imagetest

import (
	"archive/tar"
	"bytes"
	"io"
	"log/slog"
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

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Registry is a real registry on a loopback address.
type Registry struct {
	// Host is its address and port.
	Host string
	// Intercept, when set, may answer a request in the registry's place.
	Intercept func(w http.ResponseWriter, r *http.Request) (done bool)
	// Requests receives the first thousand requests ("GET /v2/…").
	Requests chan string
}

// Start starts a registry that ends with the test.
func Start(tb testing.TB) *Registry {
	tb.Helper()
	reg := &Registry{Requests: make(chan string, 1000)}
	handler := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case reg.Requests <- r.Method + " " + r.URL.Path:
		default:
		}
		if reg.Intercept != nil && reg.Intercept(w, r) {
			return
		}
		handler.ServeHTTP(w, r)
	}))
	tb.Cleanup(srv.Close)
	reg.Host = strings.TrimPrefix(srv.URL, "http://")
	return reg
}

// Push publishes an image and returns its name.
func (r *Registry) Push(tb testing.TB, repo string, img v1.Image) string {
	tb.Helper()
	ref, err := name.ParseReference(r.Host + "/" + repo)
	testenv.Must(tb, err)
	testenv.Must(tb, remote.Write(ref, img))
	return ref.String()
}

// PushIndex publishes a list of images, one for each platform, and returns its name.
func (r *Registry) PushIndex(tb testing.TB, repo string, platforms map[string]v1.Image) string {
	tb.Helper()
	var index v1.ImageIndex = empty.Index
	for platform, img := range platforms {
		p, err := v1.ParsePlatform(platform)
		testenv.Must(tb, err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: p}})
	}
	return r.PushList(tb, repo, index)
}

// PushList publishes a list with its images and returns its name.
func (r *Registry) PushList(tb testing.TB, repo string, index v1.ImageIndex) string {
	tb.Helper()
	ref, err := name.ParseReference(r.Host + "/" + repo)
	testenv.Must(tb, err)
	testenv.Must(tb, remote.WriteIndex(ref, index))
	return ref.String()
}

// File is one entry of a layer in a test.
type File struct {
	tar.Header

	content string
}

// Regular returns a file of mode 0644.
func Regular(name, content string) File {
	return File{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}, content}
}

// Executable returns a file of mode 0755.
func Executable(name, content string) File {
	f := Regular(name, content)
	f.Mode = 0o755
	return f
}

// Directory returns a directory of mode 0755.
func Directory(name string) File {
	return File{tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, ""}
}

// Symlink returns a symbolic link.
func Symlink(name, target string) File {
	return File{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, ""}
}

// Hardlink returns another name for a file in the same or a lower layer.
func Hardlink(name, target string) File {
	return File{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}, ""}
}

// TarStream returns an uncompressed layer.
func TarStream(tb testing.TB, files ...File) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		if f.ModTime.IsZero() {
			f.ModTime = time.Unix(1_000_000_000, 0)
		}
		testenv.Must(tb, w.WriteHeader(&f.Header))
		_, err := io.WriteString(w, f.content)
		testenv.Must(tb, err)
	}
	testenv.Must(tb, w.Close())
	return buf.Bytes()
}

// GzipLayer compresses a tar stream.
func GzipLayer(tb testing.TB, stream []byte) v1.Layer {
	tb.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(stream)), nil
	})
	testenv.Must(tb, err)
	return layer
}

// Image builds an image for this machine's platform.
func Image(tb testing.TB, config v1.Config, layers ...v1.Layer) v1.Image {
	tb.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	testenv.Must(tb, err)
	file, err := img.ConfigFile()
	testenv.Must(tb, err)
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	img, err = mutate.ConfigFile(img, file)
	testenv.Must(tb, err)
	return img
}

// Tiny returns an image with one small file.
func Tiny(tb testing.TB, content string) v1.Image {
	tb.Helper()
	return Image(tb, v1.Config{}, GzipLayer(tb, TarStream(tb, Regular("f", content))))
}
