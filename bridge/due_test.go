package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// limited is a server that takes check-ins up to a size, applies the reports of all of them one
// after another, and holds each for 5 s after that, as CodaLab's own does. Its client gives up
// after a minute.
type limited struct {
	BundleService
	*testing.T

	most int           // bytes of a check-in
	each time.Duration // to apply a report

	mu       sync.Mutex
	free     time.Time            // when the reports that came are applied
	applied  map[string]time.Time // when the last report of a run was
	verdicts map[string]time.Time
	longest  time.Duration // between two reports of a run
	refused  int
	offers   bool // the last check-in lets the server give out bundles
}

func (s *limited) CheckIn(ctx context.Context, _ string, in codalab.CheckIn) ([]codalab.Message, error) {
	data, err := json.Marshal(in)
	if err != nil {
		s.Error(err)
	}
	s.mu.Lock()
	s.offers = in.CPUs > 0
	if len(data) > s.most {
		s.refused++
		s.mu.Unlock()
		return nil, &codalab.Error{Status: http.StatusRequestEntityTooLarge, Message: "Request to large"}
	}
	if now := time.Now(); s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(len(in.Runs)) * s.each)
	done := s.free
	s.mu.Unlock()
	const patience, hold = time.Minute, 5 * time.Second
	if time.Until(done)+hold > patience { // the server applies them all the same
		time.AfterFunc(time.Until(done), func() { s.apply(in.Runs) })
		time.Sleep(patience)
		return nil, errors.New("the server does not answer")
	}
	time.Sleep(time.Until(done))
	s.apply(in.Runs)
	time.Sleep(hold)
	return nil, ctx.Err()
}

func (s *limited) apply(runs []codalab.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, run := range runs {
		if before, ok := s.applied[run.UUID]; ok {
			s.longest = max(s.longest, now.Sub(before))
		}
		s.applied[run.UUID] = now
		if run.State == codalab.StateFinalizing {
			s.verdicts[run.UUID] = now
			delete(s.applied, run.UUID)
		}
	}
}

func (s *limited) Standing(context.Context, string) (codalab.Standing, error) {
	return codalab.Standing{}, nil
}

// longestSilence returns the longest time so far for which the server did not hear of a run of these many.
func (s *limited) longestSilence(runs int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.applied) != runs {
		s.Errorf("the server has heard of %d of %d runs", len(s.applied), runs)
	}
	longest := s.longest
	for _, at := range s.applied {
		longest = max(longest, time.Since(at))
	}
	return longest
}

// atLimited runs a test in a bubble while a bridge with some runs checks in. A check-in may have most
// bytes, and the server needs each for a run. The bridge must not end.
func atLimited(t *testing.T, runs, most int, each time.Duration, test func(b *Bridge, s *limited)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &limited{T: t, most: most, each: each, applied: map[string]time.Time{}, verdicts: map[string]time.Time{}}
		b := &Bridge{Name: "b", Service: s, Log: slog.New(slog.DiscardHandler), Now: time.Now}
		b.view.init()
		b.inbox.init()
		for n := range runs {
			row := runningRow(n)
			b.resume(&row)
		}
		ctx, cancel := context.WithCancel(t.Context())
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return b.keepCheckedIn(ctx, g, plan.Queue{Name: "cpu"}) })
		test(b, s)
		if ctx.Err() != nil {
			t.Errorf("the bridge ended: %v", context.Cause(ctx))
		}
		cancel()
		_ = g.Wait() // it was cancelled
	})
}

// runningRow is a row whose report is as large as a real one's.
func runningRow(n int) plan.Row {
	row := cpuRow(fmt.Sprintf("0x%032x", n), plan.Running)
	begun := time.Unix(1_800_000_000, 123_456_789)
	row.OfferedAt = begun
	row.Times = plan.Times{Preparing: begun, CleaningUp: begun.Add(time.Minute), Uploading: begun.Add(time.Hour)}
	row.Staged = &spool.Inputs{ImageDigest: "sha256:" + strings.Repeat("0", 64)}
	return row
}

// Both servers refuse a request of more than 8 MiB. CodaLab's own calls a run offline of which it
// has heard nothing for a minute.
func TestTenThousandRunsAreEachReportedWithinAMinute(t *testing.T) {
	t.Parallel()
	const runs = 12_000
	atLimited(t, runs, 8<<20, time.Millisecond, func(_ *Bridge, s *limited) {
		time.Sleep(2 * time.Minute)
		if silence := s.longestSilence(runs); silence > 45*time.Second || s.refused > 0 {
			t.Errorf("the server did not hear of a run for %s, and refused %d check-ins", silence, s.refused)
		}
	})
}

// Check-ins with old reports leave one of those that may be held to what is urgent.
func TestVerdictDoesNotWaitForThousandsOfOldReports(t *testing.T) {
	t.Parallel()
	atLimited(t, 8_000, 8<<20, time.Millisecond, func(b *Bridge, s *limited) {
		time.Sleep(20 * time.Second)
		for n := range 16 {
			ended := runningRow(8_000 + n)
			ended.Phase, ended.ReportCount = plan.Finalizing, 1
			show(b, ended)
			shown := time.Now()
			time.Sleep(5300 * time.Millisecond)
			if took := s.verdicts[ended.Bundle].Sub(shown); took < 0 || took > 2*time.Second {
				t.Errorf("verdict %d arrived after %s", n, took)
			}
		}
	})
}

// A restarted bridge reports all of its runs at once.
func TestCheckInThatIsTooLargeIsSentInParts(t *testing.T) {
	t.Parallel()
	const runs = 60
	atLimited(t, runs, 4_000, 0, func(_ *Bridge, s *limited) { // some five runs
		time.Sleep(3 * time.Minute)
		if silence := s.longestSilence(runs); silence > 45*time.Second || s.refused > 8 {
			t.Errorf("the server did not hear of a run for %s, and refused %d check-ins", silence, s.refused)
		}
	})
}

// A server that refuses a check-in of one run is not asked again at once.
func TestBridgeThatMayReportNothingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &limited{T: t, most: 100}
		b := &Bridge{Name: "b", Service: s, Log: slog.New(slog.DiscardHandler), Now: time.Now}
		b.view.init()
		b.inbox.init()
		for n := range 2 {
			show(b, runningRow(n))
		}
		g, ctx := errgroup.WithContext(t.Context())
		g.Go(func() error { return b.keepCheckedIn(ctx, g, plan.Queue{Name: "cpu"}) })
		var refused *codalab.Error
		if err := g.Wait(); !errors.As(err, &refused) || !refused.TooLarge() || s.refused != 2 {
			t.Errorf("%d check-ins, then %v", s.refused, err)
		}
	})
}

// A server that needs a tenth of a second for a run cannot answer six hundred within a minute.
func TestSlowServerGetsSmallerCheckIns(t *testing.T) {
	t.Parallel()
	const runs = 300
	atLimited(t, runs, 8<<20, 100*time.Millisecond, func(b *Bridge, s *limited) {
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		s.longest = 0
		s.mu.Unlock()
		ended := runningRow(0)
		ended.Phase, ended.ReportCount = plan.Finalizing, 1
		show(b, ended)
		reported := time.Now()
		time.Sleep(3 * time.Minute)
		if silence := s.longestSilence(runs - 1); silence > 58*time.Second {
			t.Errorf("the server did not hear of a run for %s", silence)
		}
		if took := s.verdicts[ended.Bundle].Sub(reported); took < 0 || took > 30*time.Second {
			t.Errorf("the verdict arrived after %s", took)
		}
	})
}

func TestCheckInsAreLargerAgainWhenTheServerIsQuickAgain(t *testing.T) {
	t.Parallel()
	atLimited(t, 2_000, 8<<20, 100*time.Millisecond, func(b *Bridge, s *limited) {
		most := func() int {
			b.view.mu.Lock()
			defer b.view.mu.Unlock()
			return b.view.reportsOf("cpu").size.most
		}
		time.Sleep(5 * time.Minute)
		if got := most(); got > mostBytes/4 {
			t.Errorf("the slow server gets %d bytes", got)
		}
		s.mu.Lock()
		s.each = time.Millisecond
		s.mu.Unlock()
		time.Sleep(5 * time.Minute)
		if got := most(); got < mostBytes/2 {
			t.Errorf("the quick server gets %d bytes", got)
		}
	})
}

// CodaLab's own server applies some fifty reports a second. With more live runs than it can hear of
// within a minute, it would call them offline by turns.
func TestBridgeClaimsNoMoreThanItCanReport(t *testing.T) {
	t.Parallel()
	for runs, want := range map[int]bool{500: true, 3000: false} {
		t.Run(fmt.Sprint(runs), func(t *testing.T) {
			t.Parallel()
			atLimited(t, runs, 8<<20, 20*time.Millisecond, func(b *Bridge, s *limited) {
				time.Sleep(2 * time.Minute)
				for range 30 {
					time.Sleep(2 * time.Second)
					s.mu.Lock()
					if s.offers != want {
						t.Errorf("the bridge asks for bundles: %t", s.offers)
					}
					s.mu.Unlock()
				}
				if late := b.Heartbeat().Late; slices.Contains(late, "cpu") == want {
					t.Errorf("the queues %v are said to be late", late)
				}
			})
		})
	}
}

// bundlesOf makes a check-in, answers it, and returns its bundles.
func (r *teller) bundlesOf() []string {
	r.Helper()
	in, number := r.CheckIn(r.queue)
	var bundles []string
	size := 0
	for _, run := range in.Runs {
		bundles = append(bundles, run.UUID)
		size += encodedSize(run)
	}
	if size > mostBytes {
		r.Errorf("a check-in has %d bytes of runs", size)
	}
	r.Answered(r.queue, number, nil)
	return bundles
}

func TestVerdictsAreReportedFirstAndThenNewStates(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	row := func(n int, phase plan.Phase, since time.Duration) plan.Row {
		row := cpuRow(fmt.Sprintf("0x%d", n), phase)
		row.PhaseSince, row.ReportCount = r.now.Add(since), 1
		return row
	}
	for n := range 6 {
		show(r.Bridge, row(n, plan.Queued, 0))
	}
	r.bundlesOf()
	r.now = r.now.Add(time.Second)
	words := row(0, plan.Queued, 0)
	words.Progress = "half"
	show(r.Bridge, words)
	show(r.Bridge, row(1, plan.Running, 2))
	show(r.Bridge, row(2, plan.Running, 1))
	show(r.Bridge, row(3, plan.Finalizing, 4))
	show(r.Bridge, row(4, plan.Finalizing, 3))
	if got, want := r.bundlesOf(), []string{"0x4", "0x3", "0x2", "0x1", "0x0"}; !slices.Equal(got, want) {
		t.Errorf("reported in the order %v, want %v", got, want)
	}
	r.now = r.now.Add(refreshEvery)
	if got, want := r.bundlesOf(), []string{"0x5", "0x0", "0x1", "0x2"}; !slices.Equal(got, want) {
		t.Errorf("refreshed in the order %v, want %v", got, want)
	}
}

// Thousands of bundles end at the same time, and others run on.
func TestManyVerdictsAndManyLiveRunsDoNotKeepEachOtherWaiting(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	const each = 3000
	for n := range 2 * each {
		show(r.Bridge, runningRow(n))
	}
	for left := 2 * each; left > 0; {
		left -= len(r.bundlesOf())
	}
	r.now = r.now.Add(refreshEvery)
	for n := range each {
		row := runningRow(n)
		row.Phase, row.ReportCount = plan.Finalizing, 1
		show(r.Bridge, row)
	}
	count := map[string]int{}
	for checkIns := 0; ; checkIns++ {
		bundles := r.bundlesOf()
		if len(bundles) == 0 {
			break
		}
		verdicts := 0
		for _, bundle := range bundles {
			count[bundle]++
			if bundle < runningRow(each).Bundle {
				verdicts++
			}
		}
		if live := len(bundles) - verdicts; checkIns < 4 && (verdicts < 200 || live < 200) {
			t.Errorf("check-in %d has %d verdicts and %d live runs", checkIns, verdicts, live)
		}
	}
	if len(count) != 2*each {
		t.Errorf("%d of %d runs were reported", len(count), 2*each)
	}
	for bundle, n := range count {
		if n != 1 {
			t.Errorf("%s was reported %d times", bundle, n)
		}
	}
}

// A server that refuses a check-in has not applied it: the bridge does not ask it for the bundles.
func TestRefusedCheckInCountsAsNotSent(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	one, two := cpuRow("0x1", plan.Running), cpuRow("0x2", plan.Running)
	show(r.Bridge, one)
	r.Answered(r.queue, r.checkIn("0x1 running"), nil)
	one.Phase, one.ReportCount = plan.Finalizing, 1
	show(r.Bridge, one)
	show(r.Bridge, two)
	refusal := &codalab.Error{Status: http.StatusRequestEntityTooLarge}
	if !r.Unanswered(r.queue, r.checkIn("0x1 finalizing", "0x2 running"), refusal) {
		t.Error("the next check-in is not smaller")
	}
	first, second := r.checkIn("0x1 finalizing"), r.checkIn("0x2 running")
	if r.Unanswered(r.queue, second, refusal) {
		t.Error("there is no smaller check-in than one of a single run")
	}
	r.Answered(r.queue, first, nil)
	if in := r.inbox.drain(); len(in.news) != 0 {
		t.Errorf("news: %+v", in.news)
	}
	r.checkIn("0x2 running")
}
