package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// begin wants an effect, and starts it where it may be.
func (r *runner) begin(e plan.Effect) {
	if r.active.begin(e) {
		r.start(e)
	}
}

// startedRunner returns a runner of b's effects. The caller calls wait.
func startedRunner(t *testing.T, b *Bridge) (r *runner, wait func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g, ctx := errgroup.WithContext(ctx)
	b.Log, b.Now = slog.New(slog.DiscardHandler), time.Now
	b.assemble()
	b.board.init()
	return b.runner(ctx, g), func() {
		cancel()
		_ = g.Wait()
	}
}

// disk is a shared disk that counts what it is asked for.
type disk struct {
	Spool

	mu            sync.Mutex
	reads, fences map[spool.AttemptName]int
	hang          chan struct{} // ReadRecords ends when it is closed
}

func newDisk() *disk {
	return &disk{reads: map[spool.AttemptName]int{}, fences: map[spool.AttemptName]int{}, hang: make(chan struct{})}
}

func (d *disk) count(of map[spool.AttemptName]int, attempt spool.AttemptName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of[attempt]++
}

func (d *disk) Prepare(spool.AttemptName, spool.Spec) error {
	return nil
}

func (d *disk) ReadRecords(_ string, attempt spool.AttemptName) (spool.Records, error) {
	d.count(d.reads, attempt)
	<-d.hang
	return spool.Records{}, nil
}

func (d *disk) Fence(_ context.Context, _ string, attempt spool.AttemptName, _ time.Time) (spool.Started, error) {
	d.count(d.fences, attempt)
	return spool.Started{Fenced: true}, nil
}

// A step may have read the inbox already when an effect ends. Without its outcome the row wants the
// effect again: results were uploaded twice.
func TestEffectIsActiveUntilAStepReadsItsOutcome(t *testing.T) {
	t.Parallel()
	b := &Bridge{}
	b.assemble()
	b.board.init()
	collect := plan.Effect{Kind: plan.Collect, Row: &plan.Row{Bundle: "0x1"}}
	if !b.decider.starter.active.begin(collect) {
		t.Fatal("the effect does not begin")
	}
	b.inbox.putEnded(collect, none)
	if b.decider.starter.active.begin(collect) {
		t.Error("the effect begins again, and nobody has read how it ended")
	}
	if in := b.decider.arrived(); len(in.news) != 1 || !b.decider.starter.active.begin(collect) {
		t.Errorf("%d news, and the effect does not begin again", len(in.news))
	}
}

func TestEffectWantedOnItsOwnOutcomeIsRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		b := &Bridge{Config: Config{Spool: d}}
		r, wait := startedRunner(t, b)
		defer wait()
		effect := plan.Effect{Kind: plan.Fence, Row: &plan.Row{Bundle: "0x1", Attempt: plan.Attempt{Number: 1, OnDisk: "1-b1"}}}
		r.begin(effect)
		for range 4 {
			<-b.inbox.arrived
			if news := b.decider.arrived().news; len(news) != 1 || news[0].Fenced == nil {
				t.Fatalf("heard %v", news)
			}
			r.begin(effect)
		}
		synctest.Wait()
		if d.fences["1-b1"] != 5 {
			t.Errorf("ran %d times, want 5", d.fences["1-b1"])
		}
	})
}

// hangingCollector collects until it is told to end.
type hangingCollector struct {
	Collector

	began, ended int
}

func (*hangingCollector) Measure(context.Context, codalab.RunBundle, string, spool.ResultsMode) spool.MeasuredResults {
	return spool.MeasuredResults{Small: true}
}

func (c *hangingCollector) Collect(ctx context.Context, _ codalab.RunBundle, _ string, _ spool.ResultsMode, _ func(string)) (string, error) {
	c.began++
	<-ctx.Done()
	c.ended++
	return "", ctx.Err()
}

func TestOneEffectOfAKindRunsForAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, collector := newDisk(), &hangingCollector{}
		b := &Bridge{Config: Config{Service: &shows{}, Spool: d, Collector: collector}}
		r, wait := startedRunner(t, b)
		defer wait()
		defer close(d.hang)
		first := plan.Row{Bundle: "0x1", Run: &codalab.RunBundle{}, Attempt: plan.Attempt{Number: 1, OnDisk: "1-b1"}, Phase: plan.Collecting}
		second := first
		second.Attempt.Number, second.OnDisk = 2, "2-b1"
		for range 3 {
			r.begin(plan.Effect{Kind: plan.ReadRecords, Row: &first})
			r.begin(plan.Effect{Kind: plan.Collect, Row: &first})
			r.begin(plan.Effect{Kind: plan.ReadRecords, Row: &second})
			synctest.Wait()
		}
		if diff := cmp.Diff(map[spool.AttemptName]int{"1-b1": 1, "2-b1": 1}, d.reads); diff != "" || collector.began != 1 {
			t.Errorf("%d collections, reads (-want +got):\n%s", collector.began, diff)
		}
		// A row that stays in its phase keeps its long effects; leaving it
		// ends them, and only them, and they have nothing to tell.
		show(b, first)
		synctest.Wait()
		if len(b.decider.starter.active.effects) != 3 || collector.ended != 0 {
			t.Errorf("%d effects run, want all", len(b.decider.starter.active.effects))
		}
		first.Phase = plan.Finalizing
		show(b, first)
		synctest.Wait()
		told := b.decider.arrived().news
		if collector.ended != 1 || len(b.decider.starter.active.effects) != 2 || len(told) != 1 || told[0].Collected != nil {
			t.Errorf("running: %v, want the reads", b.decider.starter.active.effects)
		}
	})
}

// busyStager says a hundred times a second how far it is, for ten seconds.
type busyStager struct{}

func (busyStager) Stage(_ context.Context, _ codalab.RunBundle, _, _ string, progress func(string)) (spool.Inputs, error) {
	for range 1000 {
		progress("Pulling.")
		time.Sleep(10 * time.Millisecond)
	}
	return spool.Inputs{}, nil
}

func (busyStager) Changed(context.Context, spool.Inputs) string { return "" }

func TestProgressIsPassedOnOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &Bridge{Config: Config{Stager: busyStager{}, Now: time.Now}}
		b.assemble()
		b.board.init()
		heard := 0
		go b.doer.stage(t.Context(), plan.Row{Bundle: "0x1", Run: &codalab.RunBundle{}})
		for range 1500 {
			time.Sleep(10 * time.Millisecond)
			if len(b.decider.arrived().news) > 0 {
				heard++
			}
		}
		if heard != 10 {
			t.Errorf("heard %d times in ten seconds", heard)
		}
	})
}

// waitingStager waits for a download that one bundle does not want.
type waitingStager struct {
	Stager

	without string
}

func (s waitingStager) Stage(ctx context.Context, run codalab.RunBundle, _, _ string, _ func(string)) (spool.Inputs, error) {
	if run.UUID != s.without {
		<-ctx.Done()
	}
	return spool.Inputs{}, ctx.Err()
}

func TestBundlesThatWaitForADownloadDoNotHoldTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &Bridge{Config: Config{Stager: waitingStager{without: "0x999"}}}
		r, wait := startedRunner(t, b)
		defer wait()
		for i := range 1000 {
			bundle := fmt.Sprintf("0x%d", i)
			row := plan.Row{Bundle: bundle, Run: &codalab.RunBundle{UUID: bundle}, Phase: plan.Staging}
			r.begin(plan.Effect{Kind: plan.Stage, Row: &row})
		}
		synctest.Wait()
		if told := b.decider.arrived().news; len(told) != 1 || told[0].bundle != "0x999" || told[0].Staged == nil {
			t.Errorf("%d were staged, want the one that waits for nothing", len(told))
		}
	})
}

// slowSlurm takes a while for each submission.
type slowSlurm struct {
	sbatch.Scheduler

	made int
}

func (s *slowSlurm) Submit(context.Context, sbatch.Request) (sbatch.JobID, error) {
	time.Sleep(8 * time.Second)
	s.made++
	return sbatch.JobID(s.made), nil
}

// TestI2SubmissionThatHadToWaitIsNotMade: absence is judged from the time that
// a row was decided, so that an sbatch must not begin much later.
func TestI2SubmissionThatHadToWaitIsNotMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slurm := &slowSlurm{}
		b := &Bridge{Config: Config{Scheduler: slurm, Spool: newDisk()}}
		r, wait := startedRunner(t, b)
		defer wait()
		for _, bundle := range []string{"0x1", "0x2", "0x3", "0x4"} {
			row := plan.Row{Bundle: bundle, Run: &codalab.RunBundle{}, Attempt: plan.Attempt{Number: 1, SubmissionName: plan.SubmissionName(bundle), SubmittedAt: time.Now()}}
			r.begin(plan.Effect{Kind: plan.Submit, Row: &row})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		notMade := 0
		for _, n := range b.decider.arrived().news {
			end := n.Submitted
			if end.Refused && end.Retry && end.Job == 0 {
				notMade++
			}
		}
		if notMade != 2 || slurm.made != 2 {
			t.Errorf("%d jobs, %d not made; want those made that began in time", slurm.made, notMade)
		}
	})
}

func TestOutcomeIsFinalOnlyWhereTheErrorSaysSo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want plan.Outcome
	}{
		{nil, plan.Outcome{}},
		{errors.New("disk"), plan.Outcome{Failure: "disk"}},
		{&codalab.Error{Method: "PUT", Path: "/x", Status: 403, Message: "no"}, plan.Outcome{Failure: "PUT /x: 403 no", Final: true}},
		{&codalab.Error{Method: "PUT", Path: "/x", Status: 503, Message: "no"}, plan.Outcome{Failure: "PUT /x: 503 no"}},
	} {
		if got := outcome(c.err); got != c.want {
			t.Errorf("outcome of %v = %+v, want %+v", c.err, got, c.want)
		}
	}
}
