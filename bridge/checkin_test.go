package bridge

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/report"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// holds is a server that holds each check-in for as long as a test wants, and answers
// it with no message. It shows each bundle as if no report of it had come.
type holds struct {
	BundleService

	hold []time.Duration // of the first check-ins, and of all others the last one

	mu       sync.Mutex
	fails    int // the number of the check-in that fails in the end
	checkIns int
	reports  map[string]int // of each run
}

func (s *holds) CheckIn(ctx context.Context, _ string, in codalab.CheckIn) ([]codalab.Message, error) {
	s.mu.Lock()
	s.checkIns++
	number, fails := s.checkIns, s.checkIns == s.fails
	for _, run := range in.Reports {
		s.reports[run.UUID]++
	}
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.hold[min(number, len(s.hold))-1]):
	}
	if fails {
		return nil, errors.New("connection reset")
	}
	return nil, nil
}

func (s *holds) Standing(context.Context, string) (codalab.Standing, error) {
	return codalab.Standing{State: codalab.StateStarting}, nil
}

// seen is how many check-ins came, and how many of them reported a run.
func (s *holds) seen(bundle string) (checkIns, reports int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkIns, s.reports[bundle]
}

// checkingIn runs a test in a bubble while a bridge checks in at a server, which
// holds the first check-ins for these times, and the others for the last of them.
func checkingIn(t *testing.T, hold []time.Duration, test func(b *Bridge, s *holds)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &holds{hold: hold, reports: map[string]int{}}
		b := bridgeAt(s)
		whileCheckingIn(t, b, func() { test(b, s) })
	})
}

// bridgeAt returns a bridge of a server that can check in, and do nothing else.
func bridgeAt(s BundleService) *Bridge {
	b := &Bridge{Config: Config{Name: "b", Service: s, Log: slog.New(slog.DiscardHandler), Now: time.Now}}
	b.assemble()
	b.board.init()
	return b
}

// whileCheckingIn runs a test while a bridge checks in, which must not end.
func whileCheckingIn(t *testing.T, b *Bridge, test func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.checkIns(g, plan.Queue{Name: "cpu"}).run(ctx) })
	test()
	if ctx.Err() != nil {
		t.Errorf("the bridge ended: %v", context.Cause(ctx))
	}
	cancel()
	_ = g.Wait() // it was cancelled
}

// One check-in hangs. The others report the other runs in time, though news of a run
// that has to wait for the hanging one wakes the bridge as well.
func TestRunIsReportedInTimeWhileACheckInHangs(t *testing.T) {
	t.Parallel()
	checkingIn(t, []time.Duration{5 * time.Second, time.Hour}, func(b *Bridge, s *holds) {
		show(b, cpuRow("0x1", plan.Running))
		time.Sleep(6 * time.Second)
		two := cpuRow("0x2", plan.Staging)
		show(b, two)
		time.Sleep(time.Second)
		two.Phase, two.CommandBegan = plan.Running, true
		show(b, two)
		time.Sleep(time.Second)
		if checkIns, reports := s.seen("0x2"); checkIns != 3 || reports != 1 {
			t.Fatalf("%d check-ins, %d with the second run; want 3 and 1", checkIns, reports)
		}
		time.Sleep(report.RefreshEvery)
		if _, reports := s.seen("0x1"); reports != 2 {
			t.Errorf("the first run was reported %d times in %s, want 2", reports, report.RefreshEvery+8*time.Second)
		}
	})
}

func TestReportWhoseCheckInFailedIsSentAgainWhileANewerOneHangs(t *testing.T) {
	t.Parallel()
	checkingIn(t, []time.Duration{5 * time.Second, 2 * time.Second, time.Hour}, func(b *Bridge, s *holds) {
		s.mu.Lock()
		s.fails = 2
		s.mu.Unlock()
		time.Sleep(4 * time.Second)
		show(b, cpuRow("0x1", plan.Running))
		time.Sleep(2 * time.Second)
		show(b, cpuRow("0x2", plan.Running))
		time.Sleep(4 * time.Second)
		if checkIns, reports := s.seen("0x1"); checkIns != 4 || reports != 2 {
			t.Errorf("%d check-ins, %d with the run whose report may be lost; want 4 and 2", checkIns, reports)
		}
	})
}

func TestServerThatHoldsOnlyOneCheckInIsNotHammered(t *testing.T) {
	t.Parallel()
	checkingIn(t, []time.Duration{5 * time.Second, time.Hour, time.Millisecond}, func(b *Bridge, s *holds) {
		time.Sleep(6 * time.Second)
		show(b, cpuRow("0x1", plan.Running))
		time.Sleep(time.Minute)
		if checkIns, _ := s.seen("0x1"); checkIns > 65 {
			t.Errorf("%d check-ins in a minute", checkIns)
		}
	})
}

// A report may begin to wait for a proof just as the last proof arrives.
func TestProofIsAskedForThatCameToBeMissingMeanwhile(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	s := &holds{}
	r.Service = s
	row := cpuRow("0x1", plan.Running)
	show(r.Bridge, row)
	r.checkIn("0x1 running")
	ctx, cancel := context.WithCancel(t.Context())
	g, _ := errgroup.WithContext(ctx)
	c := r.checkIns(g, r.queue)
	c.proving = true
	c.endProving(ctx)
	if c.proving {
		t.Error("asks for proofs, and none is missing")
	}
	row.Phase, row.ReportCount = plan.Finalizing, 1
	show(r.Bridge, row)
	c.endProving(ctx)
	if !c.proving {
		t.Error("does not ask for the proof that is missing")
	}
	cancel()
	_ = g.Wait() // its only error is that it was cancelled
}
