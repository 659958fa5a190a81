package source_test

import (
	"bytes"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// cutting is a writer that breaks the connection after a number of bytes.
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

func TestBlobIsGoneOnWithWhereItsConnectionBroke(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rest func(r *http.Request) // what the registry makes of the request for the rest
		good bool
	}{
		"the rest":           {func(*http.Request) {}, true},
		"all of it again":    {func(r *http.Request) { r.Header.Del("Range") }, false},
		"another part of it": {func(r *http.Request) { r.Header.Set("Range", "bytes=7-") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			img, blob, data := noise(t, reg, "noisy", 6<<20)
			var sent atomic.Int64
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, blob.Digest.String()) {
					return false
				}
				if r.Header.Get("Range") != "" {
					test.rest(r)
				}
				http.ServeContent(&cutting{w, &sent, 2 << 20}, r, "", time.Time{}, bytes.NewReader(data))
				return true
			}
			got, err := source.ReadBlob(t.Context(), imagetest.Source(), img, blob, 0)
			if (err == nil) != test.good || test.good && (!bytes.Equal(got, data) || sent.Load() > int64(len(data))+1<<20) {
				t.Errorf("%d of %d bytes, %v, with %d bytes sent", len(got), len(data), err, sent.Load())
			}
		})
	}
}
