package results

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/batch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// severalServer takes the results of several runs in one request, which takes a second.
type severalServer struct {
	*directoryServer

	fail   error          // of whole requests
	status map[string]int // of refused results

	mu       sync.Mutex
	requests [][]string
}

func (s *severalServer) UploadResults(ctx context.Context, worker string, in []client.RunResults) (answers []codalab.ResultsAnswer, err error) {
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	var uuids []string
	for _, one := range in {
		uuids = append(uuids, one.UUID)
		answer := codalab.ResultsAnswer{UUID: one.UUID, Status: s.status[one.UUID]}
		if answer.Status == 0 && s.fail == nil {
			if err := s.UploadContents(ctx, one.UUID, client.UploadOptions{}, bytes.NewReader(one.Archive)); err != nil {
				return nil, err
			}
		}
		if want := (codalab.Identity{UUID: one.UUID, Created: 7}).Lasting(); one.Identity != want || worker != "w" {
			err = fmt.Errorf("worker %s, identity %q, want %q", worker, one.Identity, want)
		}
		answers = append(answers, answer)
	}
	s.requests = append(s.requests, uuids)
	return answers, errors.Join(err, s.fail)
}

// tiny makes run directories at a server that takes several, and returns the server and their runs.
func tiny(t *testing.T, n int) (r *results, s *severalServer, runs []codalab.RunBundle) {
	t.Helper()
	r = left(t, map[string]string{"stdout": "out", "skipped.tmp": "x"})
	s = &severalServer{directoryServer: r.server, status: map[string]int{}}
	r.collector.Contents = s
	for i := range n {
		run := codalab.RunBundle{UUID: fmt.Sprintf("0x%032x", i+1), OwnerID: "0xa", Metadata: codalab.Metadata{"created": 7, "exclude_patterns": []any{"*.tmp"}}}
		dir := r.layout.RunDir(run.UUID, "1-b1")
		if i > 0 {
			must(t, os.MkdirAll(filepath.Dir(dir), 0o700))
			must(t, os.CopyFS(dir, os.DirFS(r.runDir)))
		}
		runs = append(runs, run)
	}
	return r, s, runs
}

// together measures the results of a run, and sends them with others if they are tiny.
func (r *results) together(run codalab.RunBundle, mode spool.ResultsMode) (details string, tiny, stored bool) {
	dir := r.layout.RunDir(run.UUID, "1-b1")
	m := r.collector.Measure(r.Context(), run, dir, mode)
	return m.Details, m.Tiny, m.Tiny && r.collector.CollectTogether(r.Context(), "w", run, dir)
}

func TestTinyResultsAreSentTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s, runs := tiny(t, 120)
		sent := 0
		r.collector.Sent = func(n int) { s.mu.Lock(); sent += n; s.mu.Unlock() }
		refused := runs[9].UUID
		s.status[refused] = 403
		var all sync.WaitGroup
		for _, run := range runs {
			all.Go(func() {
				details, tiny, stored := r.together(run, spool.ResultsUpload)
				if !tiny || stored == (run.UUID == refused) || stored && details != "3 bytes in 1 entry" {
					t.Errorf("%s: %q, tiny %t, stored %t", run.UUID, details, tiny, stored)
				}
			})
		}
		all.Wait()
		for _, run := range runs {
			at := filepath.Join(s.bundles, run.UUID)
			if run.UUID == refused {
				continue
			}
			if diff := cmp.Diff([]string{"stdout"}, names(t, at)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", run.UUID, diff)
			}
		}
		for _, one := range s.requests {
			if len(one) > codalab.MostResults {
				t.Errorf("a request has %d", len(one))
			}
		}
		if len(s.requests) > 7 || sent == 0 {
			t.Errorf("%d requests, %d bytes", len(s.requests), sent)
		}
	})
}

func TestOthersAreNotSentTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		large, many := map[string]string{"model": strings.Repeat("x", tinyBytes+1)}, map[string]string{}
		for i := range tinyEntries + 1 {
			many[fmt.Sprint(i)] = ""
		}
		for name, test := range map[string]struct {
			files  map[string]string
			mode   spool.ResultsMode
			change func(r *results, run *codalab.RunBundle)
			tiny   bool
		}{
			"large": {files: large}, "many": {files: many},
			"kept": {files: map[string]string{"a": "b"}, mode: spool.ResultsKeep},
			"more than the site allows": {
				files: map[string]string{"a": "12"}, change: func(r *results, _ *codalab.RunBundle) { r.collector.MaxBytes = func() int64 { return 1 } },
			},
			"gone": {change: func(r *results, _ *codalab.RunBundle) { must(r.T, os.Remove(r.runDir)) }},
			"a server without such requests": {
				files: map[string]string{"a": "b"}, change: func(r *results, _ *codalab.RunBundle) { r.collector.Contents = r.server },
			},
			"of an unknown time": {files: map[string]string{"a": "b"}, tiny: true, change: func(_ *results, run *codalab.RunBundle) { run.Metadata = nil }},
			"into the store": {files: map[string]string{"a": "b"}, change: func(r *results, run *codalab.RunBundle) {
				location := "x"
				r.collector.Store, run.Location = &Store{}, &location
			}},
		} {
			r := left(t, test.files)
			s := &severalServer{directoryServer: r.server}
			r.collector.Contents = s
			run := codalab.RunBundle{UUID: run1, Metadata: codalab.Metadata{"created": 7}}
			if test.change != nil {
				test.change(r, &run)
			}
			if test.mode == "" {
				test.mode = spool.ResultsUpload
			}
			details, tiny, stored := r.together(run, test.mode)
			if stored || tiny != test.tiny || !tiny && details != "" || len(s.requests) != 0 {
				t.Errorf("%s: %q, tiny %t, stored %t, requests %v", name, details, tiny, stored, s.requests)
			}
		}
	})
}

// Results come before and after the server's refusal, and while its request is under way.
func TestServerWithoutRequestsForSeveralRunsIsAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s, runs := tiny(t, 60)
		s.fail = errors.ErrUnsupported
		var all sync.WaitGroup
		for i, run := range runs {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				if _, tiny, stored := r.together(run, spool.ResultsUpload); !tiny || stored {
					t.Errorf("%s: tiny %t, stored %t", run.UUID, tiny, stored)
				}
			})
		}
		all.Wait()
		if len(s.requests) != 1 {
			t.Errorf("%d requests", len(s.requests))
		}
	})
}

func TestFailedRequestForSeveralRunsStoresNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s, runs := tiny(t, 1)
		again := func(fail error, requests int) {
			t.Helper()
			s.fail = fail
			if _, tiny, stored := r.together(runs[0], spool.ResultsUpload); !tiny || stored != (fail == nil) {
				t.Errorf("%v: tiny %t, stored %t", fail, tiny, stored)
			}
			if len(s.requests) != requests {
				t.Errorf("%d requests, want %d", len(s.requests), requests)
			}
		}
		again(&codalab.Error{Message: "connection reset"}, 1)
		again(fmt.Errorf("upload: %w", errors.ErrUnsupported), 2)
		again(errors.ErrUnsupported, 2)
		time.Sleep(batch.AloneFor)
		again(nil, 3)
		if !slices.Equal(s.requests[2], []string{run1}) {
			t.Errorf("requests %v", s.requests)
		}
	})
}

// Whichever run is given up during a request, the results of the others are stored.
func TestRunThatIsGivenUpLeavesTheRequestToTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 8
		for gone := range n {
			r, s, runs := tiny(t, n+1)
			r.collector.Contents = &cancelledServer{s}
			first := runs[n]
			if runs = runs[:n]; !r.collector.CollectTogether(t.Context(), "w", first, r.layout.RunDir(first.UUID, "1-b1")) { // now the server is known
				t.Fatal("not stored")
			}
			var all sync.WaitGroup
			stored, cancels := make([]bool, n), make([]context.CancelFunc, n)
			for i, run := range runs {
				ctx, cancel := context.WithCancel(t.Context())
				cancels[i] = cancel
				all.Go(func() { stored[i] = r.collector.CollectTogether(ctx, "w", run, r.layout.RunDir(run.UUID, "1-b1")) })
				synctest.Wait()
			}
			time.Sleep(2500 * time.Millisecond) // the first two are sent alone, the others together after them
			cancels[gone]()
			all.Wait()
			for i := range stored {
				if want := i != gone || gone < 2; stored[i] != want {
					t.Errorf("run %d is given up: stored %v", gone, stored)
					break
				}
				cancels[i]()
			}
		}
	})
}

// cancelledServer is a severalServer that stores nothing of a request that is cancelled.
type cancelledServer struct{ *severalServer }

func (s *cancelledServer) UploadResults(ctx context.Context, worker string, in []client.RunResults) ([]codalab.ResultsAnswer, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.severalServer.UploadResults(ctx, worker, in)
}

// A file that grows after it was measured must not fill the memory.
func TestArchiveOfTinyResultsIsBounded(t *testing.T) {
	t.Parallel()
	r, s, runs := tiny(t, 1)
	dir := r.layout.RunDir(runs[0].UUID, "1-b1")
	if m := r.collector.Measure(t.Context(), runs[0], dir, spool.ResultsUpload); !m.Tiny {
		t.Fatalf("%+v", m)
	}
	data := make([]byte, 4<<20)
	_, _ = rand.Read(data)
	must(t, os.WriteFile(filepath.Join(dir, "stdout"), data, 0o600))
	if r.collector.CollectTogether(t.Context(), "w", runs[0], dir) || len(s.requests) > 0 {
		t.Errorf("requests %v", s.requests)
	}
	var a archive
	for range 1000 {
		_, _ = a.Write(data[:1000])
	}
	if n := cap(a.bytes); n > 4*tinyBytes {
		t.Errorf("%d bytes are kept", n)
	}
}
