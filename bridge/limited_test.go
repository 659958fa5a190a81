package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/report"
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
	largest  int  // of the check-ins that it took, in bytes
	takes    bool // the last check-in lets the server give out bundles
	closed   string
}

func (s *limited) CheckIn(ctx context.Context, _ string, in codalab.CheckIn) ([]codalab.Message, error) {
	data, err := json.Marshal(in)
	if err != nil {
		s.Error(err)
	}
	s.mu.Lock()
	s.takes, s.closed = in.CPUs > 0, in.Closed
	if len(data) > s.most {
		s.refused++
		s.mu.Unlock()
		return nil, &codalab.Error{Status: http.StatusRequestEntityTooLarge, Message: "Request to large"}
	}
	s.largest = max(s.largest, len(data))
	if now := time.Now(); s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(len(in.Reports)) * s.each)
	done := s.free
	s.mu.Unlock()
	const patience, hold = time.Minute, 5 * time.Second
	if time.Until(done)+hold > patience { // the server applies them all the same
		time.AfterFunc(time.Until(done), func() { s.apply(in.Reports) })
		time.Sleep(patience)
		return nil, errors.New("the server does not answer")
	}
	time.Sleep(time.Until(done))
	s.apply(in.Reports)
	time.Sleep(hold)
	return nil, ctx.Err()
}

func (s *limited) apply(runs []codalab.RunReport) {
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

// longestSilence returns the longest time so far for which the server heard nothing of one of n runs.
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

// verdictOf returns when a bundle's verdict was applied.
func (s *limited) verdictOf(bundle string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdicts[bundle]
}

// runningRow returns a row of a running bundle. Its report is as large as a real one's.
func runningRow(n int) plan.Row {
	row := cpuRow(fmt.Sprintf("0x%032x", n), plan.Running)
	begun := time.Unix(1_800_000_000, 123_456_789)
	row.OfferedAt, row.Job.ID = begun, 4_711_000
	row.Times = plan.Times{Preparing: begun, CleaningUp: begun.Add(time.Minute), Uploading: begun.Add(time.Hour)}
	row.Staged = &spool.Inputs{PinnedReference: "sha256:" + strings.Repeat("0", 64)}
	return row
}

// atLimited runs a test in a bubble while a bridge with some runs checks in. A check-in may have most
// bytes, and the server needs each for a run.
func atLimited(t *testing.T, runs, most int, each time.Duration, test func(b *Bridge, s *limited)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &limited{T: t, most: most, each: each, applied: map[string]time.Time{}, verdicts: map[string]time.Time{}}
		b := bridgeAt(s)
		for n := range runs {
			row := runningRow(n)
			b.board.resume(&row)
		}
		whileCheckingIn(t, b, func() { test(b, s) })
	})
}

// Both servers refuse a request of more than 8 MiB. CodaLab's own calls a run offline when it has heard
// nothing of it for a minute.
func TestTenThousandRunsAreEachReportedWithinAMinute(t *testing.T) {
	t.Parallel()
	const runs = 12_000
	atLimited(t, runs, 8<<20, time.Millisecond, func(_ *Bridge, s *limited) {
		time.Sleep(2 * time.Minute)
		if silence := s.longestSilence(runs); silence > 50*time.Second || s.refused > 0 {
			t.Errorf("the server did not hear of a run for %s, and refused %d check-ins", silence, s.refused)
		}
	})
}

// Of the check-ins that the server may hold, those with old reports leave one to urgent reports.
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
			if took := s.verdictOf(ended.Bundle).Sub(shown); took < 0 || took > 2*time.Second {
				t.Errorf("verdict %d arrived after %s", n, took)
			}
		}
	})
}

// After a check-in with many new states others wait for a quarter of a second. A state that comes later does not.
func TestStateAfterManyWaitsForNoLongerThanTheyTook(t *testing.T) {
	t.Parallel()
	atLimited(t, 0, 8<<20, 0, func(b *Bridge, s *limited) {
		time.Sleep(20 * time.Second)
		end := func(n int) string {
			ended := runningRow(n)
			ended.Phase, ended.ReportCount = plan.Finalizing, 1
			show(b, ended)
			return ended.Bundle
		}
		for n := range 100 {
			end(n)
		}
		begun := time.Now()
		time.Sleep(30 * time.Millisecond)
		soon := end(100)
		time.Sleep(4 * time.Second)
		shown := time.Now()
		late := end(101)
		time.Sleep(time.Second)
		if took := s.verdictOf(soon).Sub(begun); took < 200*time.Millisecond || took > 300*time.Millisecond {
			t.Errorf("a state that comes right after a hundred others is reported %s after them", took)
		}
		if took := s.verdictOf(late).Sub(shown); took < 0 || took > 30*time.Millisecond {
			t.Errorf("a state that comes seconds later is reported after %s", took)
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
		b := bridgeAt(s)
		for n := range 2 {
			show(b, runningRow(n))
		}
		g, ctx := errgroup.WithContext(t.Context())
		g.Go(func() error { return b.checkIns(g, plan.Queue{Name: "cpu"}).run(ctx) })
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
		if took := s.verdictOf(ended.Bundle).Sub(reported); took < 0 || took > 30*time.Second {
			t.Errorf("the verdict arrived after %s", took)
		}
	})
}

func TestCheckInsAreLargerAgainWhenTheServerIsQuickAgain(t *testing.T) {
	t.Parallel()
	atLimited(t, 2_000, 8<<20, 100*time.Millisecond, func(_ *Bridge, s *limited) {
		most := func() int {
			s.mu.Lock()
			s.largest = 0
			s.mu.Unlock()
			time.Sleep(5 * time.Minute)
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.largest
		}
		most()
		if got := most(); got > report.MostBytes/2 {
			t.Errorf("the slow server gets %d bytes", got)
		}
		s.mu.Lock()
		s.each = time.Millisecond
		s.mu.Unlock()
		most()
		if got := most(); got <= report.MostBytes/2 {
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
					if s.takes != want || strings.HasPrefix(s.closed, "the server is slow to take the reports") == want {
						t.Errorf("the bridge asks for bundles: %t; %s", s.takes, s.closed)
					}
					s.mu.Unlock()
				}
				if late := b.Condition().LateQueues; slices.Contains(late, "cpu") == want {
					t.Errorf("the queues %v are said to be late", late)
				}
			})
		})
	}
}
