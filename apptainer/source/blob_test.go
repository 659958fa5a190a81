package source_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// noise pushes an image with a layer that does not compress, and returns the layer.
func noise(tb testing.TB, reg *imagetest.Registry, repo string, size int) (source.Image, v1.Descriptor, []byte) {
	tb.Helper()
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // never fails
	layer := imagetest.GzipLayer(tb, imagetest.TarStream(tb, imagetest.Regular("noise", string(content))))
	img := imagetest.Resolve(tb, reg.Push(tb, repo, imagetest.Image(tb, v1.Config{}, layer)))
	descriptors, err := source.Layers(tb.Context(), imagetest.Source(), img)
	must(tb, err)
	blob, err := layer.Compressed()
	must(tb, err)
	data, err := io.ReadAll(blob)
	must(tb, err)
	return img, descriptors[0], data
}

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

func TestBlobWithAnExpiredAddressIsRequestedAgain(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	img, blob, data := noise(t, reg, "private/x", 1<<20)
	var signed, stored atomic.Int64
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "":
			t.Errorf("the storage was shown %s", r.Header.Get("Authorization"))
		case r.URL.Query().Get("signature") != fmt.Sprint(signed.Load()):
			w.WriteHeader(http.StatusForbidden)
			return
		}
		signed.Add(1) // the address is valid for one request
		http.ServeContent(&cutting{w, &stored, 300 << 10}, r, "", time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(storage.Close)
	g := &gate{bearer: true}
	g.guard(reg)
	gated := reg.Intercept
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if gated(w, r) {
			return true
		}
		if !strings.HasSuffix(r.URL.Path, blob.Digest.String()) {
			return false
		}
		http.Redirect(w, r, fmt.Sprintf("%s/blob?signature=%d", storage.URL, signed.Load()), http.StatusTemporaryRedirect)
		return true
	}
	got, err := source.ReadBlob(t.Context(), as(t, reg.Host, "alice", "a-s3cret"), img, blob, 100)
	if err != nil || !bytes.Equal(got, data[100:]) {
		t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
	}
	if signed.Load() != 4 || stored.Load() > int64(len(data))+64<<10 {
		t.Errorf("%d addresses were asked for, and %d of %d bytes sent", signed.Load(), stored.Load(), len(data))
	}
}

func TestBlobIsResumedUntilNothingComes(t *testing.T) {
	t.Parallel()
	stop := func(r *http.Request) { <-r.Context().Done() }
	for name, test := range map[string]struct {
		each int64                 // bytes in one answer
		end  func(r *http.Request) // called before the connection ends
		rest func(h http.Header)   // changes the request for the rest
		good bool
		most int // answers
	}{
		"stalls":                  {200 << 10, stop, nil, true, 7},
		"breaks":                  {200 << 10, nil, nil, true, 7},
		"stalls at once":          {0, stop, nil, false, 4},
		"brings little each time": {1 << 10, nil, nil, false, 5},
		"knows no ranges":         {200 << 10, nil, func(h http.Header) { h.Del("Range") }, false, 5},
		"gives another part":      {200 << 10, nil, func(h http.Header) { h.Set("Range", "bytes=7-") }, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			img, blob, data := noise(t, reg, "x", 1<<20)
			var answers, sent atomic.Int64
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, blob.Digest.String()) {
					return false
				}
				answers.Add(1)
				if r.Header.Get("Range") != "" && test.rest != nil {
					test.rest(r.Header)
				}
				defer func() {
					_ = recover()
					_ = http.NewResponseController(w).Flush()
					if test.end != nil {
						test.end(r)
					}
					panic(http.ErrAbortHandler)
				}()
				http.ServeContent(&cutting{w, &sent, max(1, test.each)}, r, "", time.Time{}, bytes.NewReader(data))
				return true
			}
			r := imagetest.Source()
			if r.Stall = time.Hour; test.end != nil {
				r.Stall = time.Second // a busy machine may take a tenth of it to send what an answer has
			}
			got, err := source.ReadBlob(t.Context(), r, img, blob, 0)
			if (err == nil) != test.good || answers.Load() > int64(test.most) || test.good && (!bytes.Equal(got, data) || sent.Load() > int64(len(data))+300<<10) {
				t.Errorf("%d of %d bytes in %d answers of %d bytes together, %v", len(got), len(data), answers.Load(), sent.Load(), err)
			}
		})
	}
}

func TestBlobOfARegistryWithoutRangesIsReadFromItsBeginning(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]bool{"ignored": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			img, blob, data := noise(t, reg, "x", 100<<10)
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Range") != "" && refuse {
					return status(http.StatusRequestedRangeNotSatisfiable)(w, r)
				}
				r.Header.Del("Range")
				return false
			}
			got, err := source.ReadBlob(t.Context(), imagetest.Source(), img, blob, 70_000)
			if err != nil || !bytes.Equal(got, data[70_000:]) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

func TestBlobOfAnotherLengthIsRefused(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	img, blob, data := noise(t, reg, "x", 1000)
	for _, other := range [][]byte{data[:len(data)-1], append(bytes.Clone(data), 0)} {
		reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, blob.Digest.String()) {
				return false
			}
			_, _ = w.Write(other)
			return true
		}
		_, err := source.ReadBlob(t.Context(), imagetest.Source(), img, blob, 0)
		imagetest.WantError(t, err, false, fmt.Sprintf("the registry has %d bytes of it, not %d as its manifest says", len(other), len(data)))
	}
}
