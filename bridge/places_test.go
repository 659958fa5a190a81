package bridge

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// slowDisk stages and collects: for ten hours what is large, for ten seconds the rest.
type slowDisk struct {
	Stager
	Collector

	mu    sync.Mutex
	ended map[string]time.Time
}

func isLarge(run codalab.RunBundle) bool { return strings.Contains(run.UUID, "large") }

func (d *slowDisk) work(ctx context.Context, run codalab.RunBundle) error {
	takes := 10 * time.Second
	if isLarge(run) {
		takes = 10 * time.Hour
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended[run.UUID] = time.Now()
	return nil
}

func (d *slowDisk) Stage(ctx context.Context, run codalab.RunBundle, _, _ string, _ func(string)) (spool.Inputs, error) {
	return spool.Inputs{}, d.work(ctx, run)
}

func (*slowDisk) Changed(context.Context, spool.Inputs) string { return "" }

func (*slowDisk) Measure(_ context.Context, run codalab.RunBundle, _ string, _ spool.ResultsMode) spool.MeasuredResults {
	return spool.MeasuredResults{Small: !isLarge(run)}
}

func (d *slowDisk) Collect(ctx context.Context, run codalab.RunBundle, _ string, _ spool.ResultsMode, _ func(string)) (string, error) {
	return "", d.work(ctx, run)
}

// crowd has owners want effects of a slowDisk.
type crowd struct {
	*testing.T
	*slowDisk

	bridge *Bridge
	runner *runner
	began  time.Time
}

func inCrowd(t *testing.T, do func(c crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{ended: map[string]time.Time{}}
		b := &Bridge{Config: Config{Service: &shows{}, Stager: d, Collector: d}}
		r, wait := startedRunner(t, b)
		defer wait()
		do(crowd{t, d, b, r, time.Now()})
	})
}

func (c crowd) want(k plan.Kind, owner, name string, n int) {
	for i := range n {
		bundle := fmt.Sprint(name, i)
		row := plan.Row{Bundle: bundle, Run: &codalab.RunBundle{UUID: bundle, OwnerID: owner}, Phase: plan.Collecting}
		c.runner.begin(plan.Effect{Kind: k, Row: &row})
		synctest.Wait()
	}
}

// within fails unless these effects have ended within so long.
func (c crowd) within(most time.Duration, name string, n int) {
	c.Helper()
	time.Sleep(most)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	late := 0
	for i := range n {
		if c.ended[fmt.Sprint(name, i)].IsZero() {
			late++
		}
	}
	if late > 0 {
		c.Errorf("%d of %d of %s have not ended after %s", late, n, name, most)
	}
}

// TestLongUploadsDoNotHoldSmallResultsUp: four uploads of ten hours held a small result for as long.
func TestLongUploadsDoNotHoldSmallResultsUp(t *testing.T) {
	t.Parallel()
	inCrowd(t, func(c crowd) {
		c.want(plan.Collect, "ann", "large", 20)
		c.want(plan.Collect, "ann", "own result ", 1)
		c.want(plan.Collect, "ben", "result ", 1)
		c.within(11*time.Second, "result ", 1)
		c.within(0, "own result ", 1)
		if waits := c.bridge.inbox.drain(); len(waits.news) == 0 {
			c.Error("the rows that wait were told nothing")
		}
	})
}

// TestLongUploadsOfOneOwnerLeavePlacesToOthers: also for results that are large.
func TestLongUploadsOfOneOwnerLeavePlacesToOthers(t *testing.T) {
	t.Parallel()
	inCrowd(t, func(c crowd) {
		c.want(plan.Collect, "ann", "large", 20)
		c.want(plan.Collect, "ben", "large, too ", 1)
		c.within(10*time.Hour+time.Second, "large, too ", 1)
	})
}

// TestManyResultsOfOneOwnerDoNotHoldAnothersUp: a thousand small results are ahead of one.
func TestManyResultsOfOneOwnerDoNotHoldAnothersUp(t *testing.T) {
	t.Parallel()
	inCrowd(t, func(c crowd) {
		c.want(plan.Collect, "ann", "many ", 1000)
		c.want(plan.Collect, "ben", "one ", 1)
		c.within(21*time.Second, "one ", 1)
	})
}

// TestStagingOfOneOwnerLeavesPlacesToOthers: one owner's bundles all wait for a download of ten hours.
func TestStagingOfOneOwnerLeavesPlacesToOthers(t *testing.T) {
	t.Parallel()
	inCrowd(t, func(c crowd) {
		c.bridge.places = newPlaces(func(k plan.Kind) int { return AtOnce(k) / 16 }, c.slowDisk, &c.bridge.inForce)
		c.want(plan.Stage, "ann", "large", 300)
		c.want(plan.Stage, "ben", "small ", 30)
		c.within(11*time.Second, "small ", 30)
	})
}

// TestKilledBundleGivesItsPlaceUp: it neither keeps a place nor waits for one.
func TestKilledBundleGivesItsPlaceUp(t *testing.T) {
	t.Parallel()
	inCrowd(t, func(c crowd) {
		c.want(plan.Collect, "ann", "large", 20)
		for i := range 19 {
			row := plan.Row{Bundle: fmt.Sprint("large", i), Run: &codalab.RunBundle{}, Phase: plan.Finalizing}
			show(c.bridge, row)
		}
		c.within(11*time.Hour, "large19", 0)
		if c.ended["large19"].IsZero() || len(c.ended) != 1 {
			c.Errorf("ended: %v, want the one that was not killed", c.ended)
		}
		if n := c.bridge.places.of[plan.Collect].Taken(); n != 0 {
			c.Errorf("%d places are taken", n)
		}
	})
}
