package bridge_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// fakeStager has everything there already.
type fakeStager struct{}

func (fakeStager) Stage(_ context.Context, _ codalab.RunBundle, reference, _ string, progress func(string)) (spool.Inputs, error) {
	progress("Looking for " + reference + ".")
	return spool.Inputs{SIF: "/cache/" + reference, PinnedReference: "a/b@sha256:1"}, nil
}

func (fakeStager) Changed(context.Context, spool.Inputs) string { return "" }

// site is a bridge among its doubles, with a real ledger and a real shared
// directory.
type site struct {
	*testing.T
	slurm  *fakeSlurm
	server *fakeServer
	shared spool.Layout
	path   string
	queue  plan.Queue
	book   *ledger.Ledger
	bridge *bridge.Bridge // the one that was started last
	stop   func()
	ended  chan error // what Run has returned

	dryRun bool                   // orphans are not cancelled
	ends   error                  // what Run ends with
	alter  func(b *bridge.Bridge) // is called before Run
}

// newSite is called in a synctest bubble; dir was made outside of it.
func newSite(t *testing.T, dir string) *site {
	t.Helper()
	s := &site{T: t, server: newFakeServer(), shared: spool.Layout(filepath.Join(dir, "shared")), path: filepath.Join(dir, "ledger.db")}
	s.queue = plan.Queue{Name: "cpu", Tag: "cpu", DefaultTime: time.Hour}
	ctx, cancel := context.WithCancel(context.Background())
	s.slurm = &fakeSlurm{ctx: ctx}
	t.Cleanup(func() {
		cancel()
		s.slurm.wg.Wait()
	})
	for _, d := range s.shared.Directories() {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *site) policy() plan.Policy {
	return plan.Policy{
		Bridge: s.book.ID, Owner: "ann", Layout: s.shared, Worker: sbatch.Program{Path: "/bin/cl-worker"},
		Queues:      map[string]plan.Queue{"cpu": s.queue},
		SubmitGrace: 90 * time.Second, OrphanGrace: 3 * time.Minute, CancelOrphans: !s.dryRun, RecordAge: 5 * time.Minute, Accounting: true, Settle: 10 * time.Second,
		StuckFor: 5 * time.Second, StagePatience: 5 * time.Minute, OutagePatience: 24 * time.Hour, CollectPatience: 72 * time.Hour, QuotaPatience: 7 * 24 * time.Hour, MaxAttempts: 3,
		LongestAckPause: 10 * time.Minute, KeepAfterAck: time.Hour,
	}
}

// start starts a bridge on the site's ledger. It is stopped at the latest when
// the test ends.
func (s *site) start() {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	book, err := ledger.Open(ctx, s.path)
	if err != nil {
		s.Fatal(err)
	}
	s.book = book
	b := &bridge.Bridge{Config: bridge.Config{
		Policy: s.policy(), Name: "ann-login1", Hostname: "login1",
		Ledger: book, Scheduler: observed(slowly{s.slurm}), Service: s.server, Spool: spool.Disk{Layout: s.shared, Bridge: book.ID}, Carrier: spool.Disk{Layout: s.shared, Bridge: book.ID},
		Stager: fakeStager{}, Collector: s.server, Now: time.Now,
		Log:          slog.New(slog.NewTextHandler(s.Output(), nil)),
		ObserveEvery: 6 * time.Second, DoorbellEvery: 350 * time.Millisecond, ReadEvery: 5 * time.Second,
	}}
	if s.alter != nil {
		s.alter(b)
	}
	s.bridge = b
	done := make(chan error, 1)
	s.ended = done
	go func() { done <- b.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, s.ends) {
			s.Errorf("bridge ended: %v, want %v", err, s.ends)
		}
		if err := book.Close(); err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(s.stop)
}

// observed is a Slurm as the bridge asks it.
func observed(slurm sbatch.Scheduler) *sbatch.Observer {
	return &sbatch.Observer{Scheduler: slurm, Interval: 6 * time.Second, Now: time.Now, Random: func() float64 { return 0 }}
}

// startWith starts a bridge and offers bundle 1 to it, and waits until its row is in a phase.
func (s *site) startWith(command string, p plan.Phase) string {
	s.Helper()
	s.start()
	s.offer(bundleID(1), command)
	s.phase(2*time.Second, bundleID(1), p)
	return bundleID(1)
}

// wantFailure fails the test unless a run ended with a failure in these words.
func (s *site) wantFailure(run codalab.RunReport, words string) {
	s.Helper()
	if run.FailureMessage == nil {
		s.Errorf("bundle %s did not fail, want %q", run.UUID, words)
	} else if !strings.Contains(*run.FailureMessage, words) {
		s.Errorf("bundle %s failed with %q, want %q", run.UUID, *run.FailureMessage, words)
	}
}

// offer gives the bridge a bundle to run.
func (s *site) offer(bundle, command string) { s.offerWith(bundle, command, func(*codalab.Message) {}) }

// offerWith gives the bridge a bundle to run after alter has changed it.
func (s *site) offerWith(bundle, command string, alter func(*codalab.Message)) {
	m := codalab.Message{
		Type:      codalab.MessageRun,
		Bundle:    &codalab.RunBundle{UUID: bundle, Type: codalab.TypeRun, OwnerID: "1", Command: command, Metadata: codalab.Metadata{}},
		Resources: &codalab.Resources{CPUs: 1, ImageReference: "python:3"},
	}
	alter(&m)
	s.server.change(func() { s.server.unclaimed[bundle] = m })
	s.server.send(m)
}

// offerAgain sends what was offered and not claimed, as a server does after a
// while.
func (s *site) offerAgain() {
	var lost []codalab.Message
	s.server.change(func() { lost = slices.Collect(maps.Values(s.server.unclaimed)) })
	for _, m := range lost {
		s.server.send(m)
	}
}

// rows are the ledger's rows, by bundle.
func (s *site) rows() map[string]plan.Row {
	s.Helper()
	rows, err := s.book.Rows(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	out := map[string]plan.Row{}
	for _, r := range rows {
		out[r.Bundle] = r
	}
	return out
}

// within waits, in the bubble's time, until something holds.
func (s *site) within(limit time.Duration, what string, holds func() bool) {
	s.Helper()
	end := time.Now().Add(limit)
	for synctest.Wait(); !holds(); synctest.Wait() { // no part of the bridge is in the midst of a pass
		if time.Now().After(end) {
			for _, r := range s.rows() {
				s.Logf("%s: %s: %s (due %s)", r.Bundle, r.Phase, r.Reason, r.DueAt)
			}
			s.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// phase waits until a bundle's row is in a phase.
func (s *site) phase(limit time.Duration, bundle string, p plan.Phase) {
	s.Helper()
	s.within(limit, bundle+" is "+string(p), func() bool { return s.rows()[bundle].Phase == p })
}

// result waits until the server has a bundle's result.
func (s *site) result(limit time.Duration, bundle string) codalab.RunReport {
	s.Helper()
	var run codalab.RunReport
	s.within(limit, bundle+" has ended", func() bool {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		var ok bool
		run, ok = s.server.finished[bundle]
		return ok
	})
	return run
}

// bundleID differs from bundle to bundle in the part that a submission name has of it.
func bundleID(n int) string { return fmt.Sprintf("0x%012x%020x", n, n) }

func gunzip(t *testing.T, data []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
