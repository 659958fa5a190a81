package apptainer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// blobs counts requests for layers and configurations.
func isBlob(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
}

func TestDamagedLayersAreRefused(t *testing.T) {
	t.Parallel()
	layer := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "content")))
	digest, err := layer.Digest()
	must(t, err)
	for _, tt := range []struct {
		name      string
		answer    func(w http.ResponseWriter)
		transient bool
		words     string
	}{
		{"other content", func(w http.ResponseWriter) { _, _ = w.Write(bytes.Repeat([]byte("x"), 100)) }, false, "layer 1 of 1"},
		{"connection lost", func(w http.ResponseWriter) {
			_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0})
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, true, "broke off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			img := imagetest.Resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, layer)))
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !isBlob(r) || !strings.HasSuffix(r.URL.Path, digest.Hex) {
					return false
				}
				tt.answer(w)
				return true
			}
			failedConversion(t, apptainer.Converter{Source: imagetest.Source()}, img, tt.transient, tt.words)
		})
	}
	t.Run("cut short but of the right digest", func(t *testing.T) {
		t.Parallel()
		blob, err := layer.Compressed()
		must(t, err)
		whole := new(bytes.Buffer)
		if _, err := whole.ReadFrom(blob); err != nil {
			t.Fatal(err)
		}
		img, err := mutate.Append(imagetest.Tiny(t, "base"), mutate.Addendum{Layer: static.NewLayer(whole.Bytes()[:whole.Len()/2], types.DockerLayer)})
		must(t, err)
		failedConversion(t, apptainer.Converter{Source: imagetest.Source()}, published(t, img), false, "its content is cut short")
	})
}

func TestCancelledConversionLeavesItsLayersForTheNext(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	for _, stage := range []apptainer.Stage{apptainer.Pulling, apptainer.Converting} {
		img := published(t, imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", strings.Repeat("content", 1<<20))))))
		ctx, cancel := context.WithCancel(t.Context())
		dir := t.TempDir()
		path := filepath.Join(dir, "x.sif")
		c := apptainer.Converter{Source: imagetest.Source()}
		err := c.Convert(ctx, img, path, func(p apptainer.Progress) {
			if p.Stage == stage {
				cancel()
			}
		})
		cancel()
		var e *source.ImageError
		if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || !e.Transient() {
			t.Errorf("cancelled while %s: error %v, want the context's", stage, err)
		}
		wantLeft(t, dir, true)
		must(t, c.Convert(t.Context(), img, path, nil))
		if got := unsquash(t, path, "-cat", path, "a"); got != strings.Repeat("content", 1<<20) {
			t.Errorf("cancelled while %s, and gone on with: the file has %d bytes", stage, len(got))
		}
		must(t, os.Remove(path))
		wantLeft(t, dir, false)
	}
}

// The next pull continues a failed one.
func TestPullContinuesWhereTheLastOneEnded(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	content := make([]byte, 8<<20)
	if _, err := rand.New(rand.NewSource(1)).Read(content); err != nil {
		t.Fatal(err)
	}
	stream := imagetest.TarStream(t, imagetest.Regular("a", string(content)))
	reg := imagetest.Start(t)
	layer := static.NewLayer(stream, types.OCIUncompressedLayer)
	img := imagetest.Resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, layer)))
	digest, err := layer.Digest()
	must(t, err)
	var away atomic.Bool
	var ranges []string // pulls ask one at a time
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !isBlob(r) || !strings.HasSuffix(r.URL.Path, digest.Hex) {
			return false
		}
		ranges = append(ranges, r.Header.Get("Range"))
		if !away.Load() {
			return false
		}
		if len(ranges) > 1 {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(stream)))
		_, _ = w.Write(stream[:4<<20])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "x.sif")
	c := apptainer.Converter{Source: imagetest.Source()}
	for name, spoil := range map[string]func(blob string) error{
		"as it was left": func(string) error { return nil },
		"damaged since":  func(blob string) error { return os.WriteFile(blob, make([]byte, 1<<20), 0o600) },
		"too long":       func(blob string) error { return os.WriteFile(blob, make([]byte, 16<<20), 0o600) },
	} {
		away.Store(true)
		ranges = nil
		imagetest.WantError(t, c.Convert(t.Context(), img, path, nil), true, "")
		left, err := filepath.Glob(filepath.Join(dir, "layers-*", "blobs", "sha256", "*"))
		if err != nil || len(left) != 1 {
			t.Fatalf("left %v, %v", left, err)
		}
		must(t, spoil(left[0]))
		away.Store(false)
		ranges = nil
		if err := c.Convert(t.Context(), img, path, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := fmt.Sprintf("bytes=%d-%d", 4<<20, len(stream)-1); name == "as it was left" && (len(ranges) != 1 || ranges[0] != want) {
			t.Errorf("asked for %q, want %q", ranges, want)
		}
		if got := unsquash(t, path, "-cat", path, "a"); got != string(content) {
			t.Errorf("%s: the file is another", name)
		}
		must(t, os.Remove(path))
		wantLeft(t, dir, false)
	}
}
