package apptainer_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// cutting is a writer that counts, and breaks the connection when it has let
// left bytes through.
type cutting struct {
	http.ResponseWriter
	sent *atomic.Int64
	left int64
}

func (c *cutting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(int64(len(p)), c.left)])
	c.sent.Add(int64(n))
	if c.left -= int64(n); c.left == 0 {
		panic(http.ErrAbortHandler)
	}
	return n, err
}

func TestPullGoesOnWhereItsConnectionBroke(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	noise := make([]byte, 6<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	layer := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("noise", string(noise))))
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(compressed)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		rest func(r *http.Request) // what the registry makes of the request for the rest
		most int64
		good bool
	}{
		"the rest":           {func(*http.Request) {}, int64(len(data)) + 1<<20, true},
		"all of it again":    {func(r *http.Request) { r.Header.Del("Range") }, 1 << 40, false},
		"another part of it": {func(r *http.Request) { r.Header.Set("Range", "bytes=7-") }, 1 << 40, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			img := resolve(t, reg.Push(t, "noisy", imagetest.Image(t, v1.Config{}, layer)))
			var sent atomic.Int64
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, digest.String()) {
					return false
				}
				if r.Header.Get("Range") != "" {
					test.rest(r)
				}
				http.ServeContent(&cutting{w, &sent, 2 << 20}, r, "", time.Time{}, bytes.NewReader(data))
				return true
			}
			c := apptainer.Converter{Registry: quick()}
			err := c.Convert(t.Context(), img, filepath.Join(t.TempDir(), "image.sif"), func(apptainer.Progress) {})
			if (err == nil) != test.good || sent.Load() > test.most {
				t.Errorf("%v, with %s", err, fmt.Sprintf("%d of %d bytes sent", sent.Load(), len(data)))
			}
		})
	}
}
