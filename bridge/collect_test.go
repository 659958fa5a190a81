package bridge_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/results"
)

// patient is a collector that says how far it is, and takes its time after
// another has done the work.
type patient struct {
	bridge.Collector

	takes time.Duration
	asked []spool.ResultsMode
}

func (c *patient) Collect(ctx context.Context, run codalab.RunBundle, runDir string, mode spool.ResultsMode, progress func(string)) (string, error) {
	c.asked = append(c.asked, mode)
	if _, err := c.Collector.Collect(ctx, run, runDir, mode, func(string) {}); err != nil {
		return "", err
	}
	progress("Uploading results: 1.2g of 3.4g at 80m/s.")
	select {
	case <-time.After(c.takes):
		return "3.4g in 12 entries", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// readOut asks for a bundle's output and returns the answer.
func (s *site) readOut(bundle string, socket int64) string {
	s.Helper()
	s.server.send(codalab.Message{
		Type: codalab.MessageRead, UUID: bundle, SocketID: socket, Path: "stdout", ReadArgs: &codalab.ReadArgs{Type: codalab.ReadFile},
	})
	answered := func() bool {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		return s.server.data[socket] != nil || s.server.replies[socket].ErrorMessage != ""
	}
	s.within(2*time.Second, "the read is answered", answered)
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if said := s.server.replies[socket].ErrorMessage; said != "" {
		return said
	}
	return gunzip(s.T, s.server.data[socket])
}

// nowhere takes an upload and keeps nothing.
type nowhere struct{ results.Uploads }

func (nowhere) UploadContents(_ context.Context, _ string, _ client.UploadOptions, body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}

func TestFilesAreReadableWhileTheyAreCollectedAndAfter(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]spool.ResultsMode{
		"uploaded": spool.ResultsUpload, "kept": spool.ResultsKeep, "moved into the server's store": spool.ResultsUpload,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.queue.ResultsMode = mode
				s.server.deaf = true
				bundle := bundleID(1)
				collector := &results.Collector{Contents: nowhere{}, Layout: s.shared, Now: time.Now}
				var location *string
				if name == "moved into the server's store" {
					collector.Store = &results.Store{Dir: filepath.Join(filepath.Dir(string(s.shared)), "store")}
					place := filepath.Join(collector.Store.Dir, "bundles", bundle)
					location = &place
					// What is kept of an earlier life is none of this one's.
					if err := errors.Join(os.MkdirAll(place, 0o700), os.Mkdir(s.shared.KeptDir(bundle), 0o700)); err != nil {
						s.Fatal(err)
					}
				}
				c := &patient{Collector: collector, takes: 5 * time.Second}
				s.alter = func(b *bridge.Bridge) { b.Collector = c }
				s.start()
				s.offerWith(bundle, "true", func(m *codalab.Message) { m.Bundle.Location = location })
				for i, phase := range []plan.Phase{plan.Collecting, plan.Finalizing} {
					s.phase(10*time.Second, bundle, phase)
					if got := s.readOut(bundle, int64(i+1)); got != hello(bundle, 1) {
						s.Errorf("read while %s: %q", phase, got)
					}
				}
				s.stop()
				if len(c.asked) != 1 || c.asked[0] != mode {
					s.Errorf("collected as %q, want %q", c.asked, mode)
				}
			})
		})
	}
}

func TestUploadIsToldInRunStatusAndAtItsEndInTheHistory(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.alter = func(b *bridge.Bridge) { b.Collector = &patient{Collector: s.server, takes: 5 * time.Second} }
		s.start()
		bundle := bundleID(1)
		s.offer(bundle, "true")
		s.within(5*time.Second, "the upload is told of", func() bool {
			s.server.mu.Lock()
			defer s.server.mu.Unlock()
			run := s.server.runs[bundle]
			return run.RunStatus == "Uploading results: 1.2g of 3.4g at 80m/s." && run.State == codalab.StateRunning
		})
		s.result(10*time.Second, bundle)
		s.phase(time.Minute, bundle, plan.Done)
		history, err := s.book.History(s.Context(), bundle)
		if err != nil {
			s.Fatal(err)
		}
		told := false
		for _, e := range history {
			told = told || e.Reason == "the results are with the server: 3.4g in 12 entries"
		}
		if !told {
			s.Errorf("history %+v does not say what was uploaded", history)
		}
		s.stop()
	})
}
