package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// gatherer is a collector that can send results together, each way in ten seconds, at a server that counts the questions for
// bundles.
type gatherer struct {
	*slowDisk
	BundleService

	tiny, stored bool

	mu                    sync.Mutex
	asked, together, gave int
	alone, most           int // under way, alone
	measured, measuring   int // of all, and the most at once
	measuredNow           int
}

func (g *gatherer) Standing(_ context.Context, bundle string) (codalab.Standing, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asked++; bundle == "gone" {
		return codalab.Standing{}, &codalab.Error{Status: http.StatusNotFound}
	}
	return codalab.Standing{}, nil
}

func (g *gatherer) Measure(context.Context, codalab.RunBundle, string, spool.ResultsMode) spool.MeasuredResults {
	g.mu.Lock()
	g.measured++
	g.measuredNow++
	g.measuring = max(g.measuring, g.measuredNow)
	g.mu.Unlock()
	time.Sleep(time.Millisecond)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.measuredNow--
	return spool.MeasuredResults{Small: true, Tiny: g.tiny, Details: "together"}
}

func (g *gatherer) CollectTogether(_ context.Context, worker string, _ codalab.RunBundle, _ string) (stored bool) {
	if worker != "b-cpu" {
		panic(worker)
	}
	time.Sleep(10 * time.Second)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.together++
	return g.stored
}

func (g *gatherer) Collect(context.Context, codalab.RunBundle, string, spool.ResultsMode, func(string)) (string, error) {
	g.mu.Lock()
	g.alone++
	g.most = max(g.most, g.alone)
	g.mu.Unlock()
	time.Sleep(10 * time.Second)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alone--
	return "alone", nil
}

func (g *gatherer) GiveUp(context.Context, codalab.RunBundle, string, spool.ResultsMode) (*spool.HeldResults, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gave++
	return nil, errors.New("no")
}

// collects collects the results of n bundles at the same time, and returns what became of them and how long that took.
func (g *gatherer) collects(t *testing.T, n int, change func(r *plan.Row)) (outcomes map[plan.Outcome]int, took time.Duration) {
	t.Helper()
	b := &Bridge{Config: Config{Name: "b", Service: g, Stager: g.slowDisk, Collector: g, Now: time.Now}}
	r, wait := startedRunner(t, b)
	began := time.Now()
	for i := range n {
		row := plan.Row{Bundle: fmt.Sprint("one ", i), Queue: "cpu", Run: &codalab.RunBundle{OwnerID: fmt.Sprint(i % 2)}, Phase: plan.Collecting}
		change(&row)
		r.begin(plan.Effect{Kind: plan.Collect, Row: &row})
	}
	outcomes = map[plan.Outcome]int{}
	for ended := 0; ended < n; {
		<-b.inbox.arrived
		in := b.inbox.drain()
		ended += len(in.ended)
		for _, news := range in.news {
			if news.Collected != nil {
				outcomes[*news.Collected]++
			}
		}
	}
	wait()
	return outcomes, time.Since(began)
}

func TestResultsThatAreStoredTogetherAreNotSentAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gatherer{slowDisk: &slowDisk{ended: map[string]time.Time{}}, tiny: true, stored: true}
		outcomes, took := g.collects(t, 100, func(*plan.Row) {})
		if outcomes[plan.Outcome{Details: "together"}] != 100 || g.asked != 0 || g.most != 0 || took > 25*time.Second {
			t.Errorf("outcomes %v after %v, %d questions, %d alone", outcomes, took, g.asked, g.most)
		}
	})
}

func TestResultsThatAreNotStoredTogetherAreSentAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tiny := range []bool{true, false} {
			g := &gatherer{slowDisk: &slowDisk{ended: map[string]time.Time{}}, tiny: tiny}
			outcomes, _ := g.collects(t, 100, func(*plan.Row) {})
			if outcomes[plan.Outcome{Details: "alone"}] != 100 || g.asked != 100 || g.most > AtOnce(plan.Collect) || g.most < 2 {
				t.Errorf("tiny %t: outcomes %v, %d questions, %d alone at once", tiny, outcomes, g.asked, g.most)
			}
			if g.measured != 100 || g.measuring > measuredAtOnce {
				t.Errorf("tiny %t: the results of 100 bundles were measured %d times, %d at once", tiny, g.measured, g.measuring)
			}
			outcomes, _ = g.collects(t, 1, func(r *plan.Row) { r.Bundle = "gone" })
			for o := range outcomes {
				if !o.Gone {
					t.Errorf("of a bundle that is gone: %+v", o)
				}
			}
		}
	})
}

func TestResultsThatAreGivenUpAreNotSentTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gatherer{slowDisk: &slowDisk{ended: map[string]time.Time{}}, tiny: true, stored: true}
		g.collects(t, 3, func(r *plan.Row) { r.GivesUp = true })
		if g.together != 0 || g.gave != 3 {
			t.Errorf("%d sent together, %d given up", g.together, g.gave)
		}
	})
}
