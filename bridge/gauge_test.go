package bridge_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// gauge measures a disk as a test says.
type gauge struct {
	mu    sync.Mutex
	space spool.Space
	err   error
}

func (g *gauge) Space() (spool.Space, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.space, g.err
}

// shows has gigabytes be free from now on, or the disk not say it.
func (g *gauge) shows(gigabytes int64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.space, g.err = spool.Space{Free: gigabytes << 30, Total: 1 << 40}, err
}

// gauged has the site's bridges measure the disk, of which 50g are to stay
// free.
func (s *site) gauged(gigabytes int64) *gauge {
	g := &gauge{}
	g.shows(gigabytes, nil)
	s.alter = func(b *bridge.Bridge) { b.Gauge, b.Policy.LowWater = g, plan.LowWater{Bytes: 50 << 30} }
	return g
}

// takes reports whether the last check-in lets the server give out bundles.
func (s *site) takes() bool {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return s.server.last.CPUs > 0 && s.server.last.ExitAfterNumRuns > 0
}

// closed is why the last check-in takes no bundles.
func (s *site) closed() string {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return s.server.last.Closed
}

// says is a bundle's run_status, as the server has it.
func (s *site) says(bundle string) string {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return s.server.runs[bundle].RunStatus
}

func TestNothingIsClaimedBelowTheLowWater(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		g := s.gauged(100)
		s.startWith("sleep 3600", plan.Running)
		if !s.takes() {
			s.Error("the check-in takes no bundle, and there is room")
		}
		g.shows(12, nil)
		s.within(15*time.Second, "the server hears of it", func() bool { return !s.takes() })
		if got := s.closed(); got != "the site's disk has 12g free, below its low water of 50g" {
			s.Errorf("the check-in says %q", got)
		}
		s.offer(bundleID(2), "true") // on its way already
		for _, free := range []int64{12, 49, 51, 54} {
			g.shows(free, nil)
			time.Sleep(time.Minute)
			s.offerAgain()
			if r, ok := s.rows()[bundleID(2)]; ok || s.takes() {
				s.Errorf("with %dg free: row %v", free, r)
			}
		}
		s.within(10*time.Minute, "the server hears of a new figure", func() bool {
			return s.closed() == "the site's disk has 54g free, and new work begins again at 55g"
		})
		g.shows(1000, errors.New("stale file handle"))
		time.Sleep(time.Minute)
		if s.takes() {
			s.Error("a disk that cannot be measured counts as one with room")
		}
		g.shows(56, nil)
		s.within(15*time.Second, "the server hears of the room", func() bool { return s.takes() && s.closed() == "" })
		s.offerAgain()
		s.result(5*time.Second, bundleID(2))
		if r := s.rows()[bundleID(1)]; r.Phase != plan.Running {
			s.Errorf("what ran is %s: %s", r.Phase, r.Reason)
		}
	})
}

// registry is a Stager that may not answer.
type registry struct {
	fakeStager

	down atomic.Bool
}

func (r *registry) Stage(ctx context.Context, run codalab.RunBundle, reference, architecture string, progress func(string)) (spool.Inputs, error) {
	if r.down.Load() {
		return spool.Inputs{}, errors.New("no route to host")
	}
	return r.fakeStager.Stage(ctx, run, reference, architecture, progress)
}

func TestBridgeThatStartsBelowTheLowWaterNeverAsksForBundles(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.gauged(12)
		s.start()
		s.within(time.Second, "it checks in", func() bool {
			s.server.mu.Lock()
			defer s.server.mu.Unlock()
			return s.server.checkIns > 0
		})
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		if in := s.server.first; in.CPUs != 0 || in.FreeDiskBytes != 0 || in.ExitAfterNumRuns != 0 {
			s.Errorf("the first check-in tells %d CPUs, %d bytes, %d runs", in.CPUs, in.FreeDiskBytes, in.ExitAfterNumRuns)
		}
	})
}

func TestClaimedBundleSaysThatItWaitsForRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		g, r := s.gauged(100), &registry{}
		measured := s.alter
		s.alter = func(b *bridge.Bridge) {
			measured(b)
			b.Stager = r
		}
		r.down.Store(true)
		s.startWith("true", plan.Staging)
		g.shows(12, nil)
		s.within(15*time.Second, "it says so", func() bool {
			return s.says(bundleID(1)) == "Waiting: the site's disk has 12g free, below its low water of 50g."
		})
		r.down.Store(false)
		g.shows(13, nil)
		s.within(6*time.Minute, "it says how much it is by now", func() bool { return strings.Contains(s.says(bundleID(1)), "13g free") })
		time.Sleep(time.Hour) // longer than staging is tried again
		s.stop()
		s.start() // by now the ledger says it
		time.Sleep(time.Minute)
		if r := s.rows()[bundleID(1)]; r.Phase != plan.Staging || r.Staged != nil {
			s.Errorf("it is %s: %s", r.Phase, r.Reason)
		}
		g.shows(100, nil)
		s.result(20*time.Second, bundleID(1))
	})
}

// Otherwise bundles that fill the disk with their inputs would wait for one another.
func TestBundleThatHasItsInputsIsSubmittedBelowTheLowWater(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		g := s.gauged(100)
		s.queue.MaxInFlight = 1
		s.startWith("sleep 60", plan.Running)
		s.offer(bundleID(2), "true")
		s.within(2*time.Second, "its inputs are there", func() bool { return s.rows()[bundleID(2)].Staged != nil })
		g.shows(12, nil)
		s.result(2*time.Minute, bundleID(2))
	})
}

// The disk is really full, and then has room again.
func TestFullDiskIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.SmallDisk(t, dir, "size=1m,mode=0700")
	// The ledger is on a disk of its own.
	book := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, dir)
		s.path = book
		s.start()
		s.offer(bundleID(1), "true")
		s.result(10*time.Second, bundleID(1))
		filler := filepath.Join(dir, "filler")
		if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); err == nil {
			t.Fatal("the disk is larger than it should be")
		}
		s.offer(bundleID(2), "true")
		s.within(time.Minute, "it says that there is no room", func() bool {
			return s.says(bundleID(2)) == "The site's disk has no room for what the job reads: no space left on device."
		})
		time.Sleep(40 * time.Minute) // an hour later the first bundle's results go, and make room
		if r := s.rows()[bundleID(2)]; r.Phase != plan.Submitting || r.Attempt.Number != 1 || s.slurm.submits != 1 {
			s.Errorf("after a while it is %s in attempt %d, %d submissions", r.Phase, r.Attempt.Number, s.slurm.submits)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if run := s.result(2*time.Minute, bundleID(2)); run.ExitCode == nil || *run.ExitCode != 0 {
			s.Errorf("result %+v", run)
		}
	})
}

// The bridge ends, as it must not act on what it cannot save, and the next one goes
// on where the ledger is.
func TestLedgerOnAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	dir, small := t.TempDir(), t.TempDir()
	testenv.SmallDisk(t, small, "size=2m,mode=0700")
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, dir)
		s.path = filepath.Join(small, "ledger.db")
		s.ends = sqldb.ErrFull
		s.startWith("sleep 60", plan.Running)
		filler := filepath.Join(small, "filler")
		if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); err == nil {
			t.Fatal("the disk is larger than it should be")
		}
		s.offer(bundleID(2), "true")
		time.Sleep(2 * time.Minute) // the bundle ends meanwhile
		s.stop()
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		s.ends = nil
		s.start()
		s.offerAgain()
		for n := 1; n <= 2; n++ {
			if run := s.result(2*time.Minute, bundleID(n)); run.ExitCode == nil || *run.ExitCode != 0 {
				s.Errorf("bundle %d ended as %+v", n, run)
			}
		}
		s.stop()
		if s.slurm.submits != 2 {
			s.Errorf("%d submissions", s.slurm.submits)
		}
	})
}

// hung is a gauge of a disk that stops to answer, and a Stager of one.
type hung struct {
	gauge
	fakeStager

	mu   sync.Mutex
	over chan struct{} // closed when it answers again
}

func (h *hung) wait() {
	h.mu.Lock()
	over := h.over
	h.mu.Unlock()
	if over != nil {
		<-over
	}
}

// hang makes each call wait until answer is called.
func (h *hung) hang() (answer func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	over := make(chan struct{})
	h.over = over
	return func() { close(over) }
}

func (h *hung) Space() (spool.Space, error) {
	h.wait()
	return h.gauge.Space()
}

func (h *hung) Stage(ctx context.Context, run codalab.RunBundle, reference, architecture string, progress func(string)) (spool.Inputs, error) {
	progress("Downloading dependency a.")
	h.wait()
	return h.fakeStager.Stage(ctx, run, reference, architecture, progress)
}

func TestDiskThatDoesNotAnswerIsSaidOnceAndWhenItIsOver(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		disk := &hung{}
		disk.shows(100, nil)
		var log strings.Builder
		s.alter = func(b *bridge.Bridge) {
			b.Gauge, b.Stager, b.Policy.LowWater = disk, disk, plan.LowWater{Bytes: 50 << 30}
			b.Log = slog.New(slog.NewTextHandler(io.MultiWriter(&log, s.Output()), nil))
		}
		s.startWith("sleep 3600", plan.Running)
		answer := disk.hang()
		s.offer(bundleID(2), "true")
		s.within(20*time.Second, "the server hears of it", func() bool {
			return !s.takes() && strings.HasPrefix(s.closed(), "the site's shared disk has not answered since ")
		})
		s.within(time.Second, "what waits for it says so", func() bool {
			return strings.HasPrefix(s.says(bundleID(2)), "Waiting: the site's shared disk has not answered since ")
		})
		if low := s.bridge.Condition().DiskLow; low != s.closed() {
			s.Errorf("the condition says %q", low)
		}
		time.Sleep(73 * time.Second)
		disk.shows(100, errors.New("stale file handle"))
		answer()
		time.Sleep(time.Minute)
		if s.takes() || !strings.HasPrefix(s.closed(), "the site's shared disk has not answered since ") || strings.Contains(log.String(), "answers again") {
			s.Errorf("a disk that answers with an error only counts as one that answers: %q", s.closed())
		}
		disk.shows(100, nil)
		s.within(15*time.Second, "bundles are taken again", func() bool { return s.takes() && s.closed() == "" })
		s.result(20*time.Second, bundleID(2))
		if r := s.rows()[bundleID(1)]; r.Phase != plan.Running {
			s.Errorf("what ran is %s: %s", r.Phase, r.Reason)
		}
		s.stop()
		for _, line := range []string{`level=WARN msg="the shared disk does not answer; `, `level=INFO msg="the shared disk answers again" waited=2m`} {
			if n := strings.Count(log.String(), line); n != 1 {
				s.Errorf("%d lines %s", n, line)
			}
		}
	})
}

// slowSpool is a Spool on a disk that stops to answer.
type slowSpool struct {
	bridge.Spool

	disk *hung
}

func (s slowSpool) Prepare(name spool.AttemptName, spec spool.Spec) error {
	s.disk.wait()
	return s.Spool.Prepare(name, spec)
}

func TestBundleWhoseJobWaitsForADiskThatHangsSaysSo(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		disk := &hung{}
		disk.shows(100, nil)
		s.alter = func(b *bridge.Bridge) { b.Gauge, b.Spool = disk, slowSpool{b.Spool, disk} }
		answer := disk.hang()
		s.start()
		s.offer(bundleID(1), "true")
		time.Sleep(time.Minute) // it starts on a disk that hangs
		if r, ok := s.rows()[bundleID(1)]; ok {
			s.Errorf("it was claimed: %s", r.Phase)
		}
		answer()
		s.within(20*time.Second, "bundles are taken", s.takes)
		answer = disk.hang()
		s.offerAgain()
		s.within(20*time.Second, "it says that it waits", func() bool {
			return s.rows()[bundleID(1)].Phase == plan.Submitting && strings.HasPrefix(s.says(bundleID(1)), "Waiting: the site's shared disk has not answered since ")
		})
		answer()
		s.result(20*time.Second, bundleID(1))
	})
}

// stuckSurvey is a Scheduler whose survey of the nodes does not return, also after its context's end. The start of a
// program is so, if the new process closes a file of a disk that hangs.
type stuckSurvey struct {
	sbatch.Scheduler

	disk *hung // hangs from the first survey on
	over chan struct{}
}

func (s stuckSurvey) Partitions(context.Context) ([]sbatch.Partition, error) {
	answer := s.disk.hang()
	<-s.over
	answer()
	return nil, errors.New("no controller")
}

func TestDiskThatHangsDuringTheFirstSurveyIsSaid(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		disk, said, over := &hung{}, make(chan struct{}, 9), make(chan struct{})
		disk.shows(100, nil)
		s.alter = func(b *bridge.Bridge) {
			b.Gauge, b.Scheduler = disk, stuckSurvey{b.Scheduler, disk, over}
			b.Log = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
				if strings.Contains(string(line), "the shared disk does not answer") {
					said <- struct{}{}
				}
				return s.Output().Write(line)
			}), nil))
		}
		s.start()
		select {
		case <-said:
		case <-time.After(time.Minute):
			s.Error("nothing is said of the disk for a minute")
		}
		close(over)
		s.stop()
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
