package bridge

import (
	"context"
	"errors"
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

func TestInboxGathersUntilItIsTaken(t *testing.T) {
	t.Parallel()
	var in inbox
	in.init()
	message := func(m codalab.MessageType) func(*plan.News) {
		return func(n *plan.News) { n.Messages = append(n.Messages, codalab.Message{Type: m}) }
	}
	in.put("0x1", message(codalab.MessageKill))
	in.put("0x2", func(n *plan.News) { n.Progress = "half" })
	in.put("0x1", message(codalab.MessageMarkFinalized))
	in.offer(offer{queue: "cpu"})
	select {
	case <-in.arrived:
	default:
		t.Error("no token though there is something to take")
	}
	offers, news := in.take()
	want := map[string]*plan.News{
		"0x1": {Messages: []codalab.Message{{Type: codalab.MessageKill}, {Type: codalab.MessageMarkFinalized}}},
		"0x2": {Progress: "half"},
	}
	if diff := cmp.Diff(want, news); diff != "" || len(offers) != 1 {
		t.Errorf("%d offers, news (-want +got):\n%s", len(offers), diff)
	}
	if offers, news = in.take(); len(offers)+len(news) != 0 {
		t.Errorf("taken again: %v, %v", offers, news)
	}
}

func TestPacerAllowsABurstAndThenTwoASecond(t *testing.T) {
	t.Parallel()
	var p pacer
	now := time.Unix(1_800_000_000, 0)
	if got := p.budget(now); got != 20 || p.empty() {
		t.Fatalf("budget %d at first, want 20", got)
	}
	p.spend(20)
	if got := p.budget(now); got != 0 || !p.empty() {
		t.Fatalf("budget %d after the burst", got)
	}
	made := 0
	for end := now.Add(time.Minute); now.Before(end); now = now.Add(p.refill()) {
		n := p.budget(now)
		p.spend(n)
		made += n
	}
	if made < 118 || made > 121 {
		t.Errorf("%d submissions in the minute after the burst, want 120", made)
	}
	if got := p.budget(now.Add(-time.Hour)); got < 0 || got > 1 {
		t.Errorf("budget %d when the clock went back", got)
	}
	if got := p.budget(now.Add(time.Hour)); got != 20 {
		t.Errorf("budget %d after an hour, want the burst", got)
	}
}

func TestStepWaitsForWhatMayComeWithoutNews(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	staged := plan.Row{Phase: plan.Staging, Staged: &spool.Inputs{}}
	for name, c := range map[string]struct {
		row    plan.Row
		tokens float64
		want   time.Duration
	}{
		"nothing":              {plan.Row{Phase: plan.Running}, 5, idle},
		"a row that is due":    {plan.Row{Phase: plan.Claiming, Due: now.Add(3 * time.Second)}, 5, 3 * time.Second},
		"the rate":             {staged, 0.5, 250 * time.Millisecond},
		"room in a full queue": {staged, 5, idle},
	} {
		b := &Bridge{rows: map[string]plan.Row{"0x1": c.row}, pacer: pacer{tokens: c.tokens, at: now}}
		if got := b.wait(now); got != c.want {
			t.Errorf("%s: waits %s, want %s", name, got, c.want)
		}
	}
}

// running starts effects that the test runs.
func running(t *testing.T) (e *effects, wait func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g, ctx := errgroup.WithContext(ctx)
	e = &effects{}
	e.start(ctx, g)
	return e, func() {
		cancel()
		_ = g.Wait()
	}
}

func TestEffectThatIsWantedByWhoHearsItsOutcomeIsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, wait := running(t)
		defer wait()
		effect := plan.Effect{Kind: plan.Close, Row: plan.Row{Bundle: "0x1", Attempt: 1}}
		ran := 0
		var again func(context.Context) func()
		again = func(context.Context) func() {
			ran++
			return func() { //nolint:contextcheck // the effect is over
				if ran < 5 {
					e.run(effect, again)
				}
			}
		}
		e.run(effect, again)
		synctest.Wait()
		if ran != 5 {
			t.Errorf("ran %d times, want 5", ran)
		}
	})
}

func TestOneEffectOfAKindRunsForAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, wait := running(t)
		defer wait()
		ran := map[string]int{}
		hang := func(name string) func(context.Context) func() {
			return func(ctx context.Context) func() {
				ran[name]++
				<-ctx.Done()
				return func() {}
			}
		}
		first := plan.Row{Bundle: "0x1", Attempt: 1, Phase: plan.Collecting}
		second := plan.Row{Bundle: "0x1", Attempt: 2, Phase: plan.Collecting}
		for range 3 {
			e.run(plan.Effect{Kind: plan.Look, Row: first}, hang("look"))
			synctest.Wait()
			e.run(plan.Effect{Kind: plan.Collect, Row: first}, hang("collect"))
			synctest.Wait()
			e.run(plan.Effect{Kind: plan.Look, Row: second}, hang("second look"))
			synctest.Wait()
		}
		if diff := cmp.Diff(map[string]int{"look": 1, "collect": 1, "second look": 1}, ran); diff != "" {
			t.Errorf("ran (-want +got):\n%s", diff)
		}
		// A row that stays in its phase keeps its long effects; leaving it
		// ends them, and only them.
		e.outlived(first)
		synctest.Wait()
		if len(e.running) != 3 {
			t.Errorf("%d effects run, want all", len(e.running))
		}
		first.Phase = plan.Finalizing
		e.outlived(first)
		synctest.Wait()
		if _, ok := e.running[effectKey{plan.Collect, "0x1", 1}]; ok || len(e.running) != 2 {
			t.Errorf("running: %v, want the looks", e.running)
		}
	})
}

// busyStager says a hundred times a second how far it is, for ten seconds.
type busyStager struct{}

func (busyStager) Stage(_ context.Context, _ codalab.RunBundle, _ string, progress func(string)) (spool.Inputs, error) {
	for range 1000 {
		progress("Pulling.")
		time.Sleep(10 * time.Millisecond)
	}
	return spool.Inputs{}, nil
}

func TestProgressIsPassedOnOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &Bridge{Stager: busyStager{}}
		b.inbox.init()
		heard := 0
		go b.stage(t.Context(), plan.Row{Bundle: "0x1"})
		for range 1500 {
			time.Sleep(10 * time.Millisecond)
			if _, news := b.inbox.take(); len(news) > 0 {
				heard++
			}
		}
		if heard != 10 {
			t.Errorf("heard %d times in ten seconds", heard)
		}
	})
}

// slowSlurm takes a while for each submission.
type slowSlurm struct {
	Scheduler

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
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		slurm := &slowSlurm{}
		b := &Bridge{Scheduler: slurm, Policy: plan.Policy{Layout: layout(t, dir)}}
		e, wait := running(t)
		defer wait()
		var ends []plan.Submission
		for _, bundle := range []string{"0x1", "0x2", "0x3", "0x4"} {
			r := plan.Row{Bundle: bundle, Attempt: 1, Mark: plan.Mark(bundle), Submitted: time.Now()}
			e.run(plan.Effect{Kind: plan.Submit, Row: r}, func(ctx context.Context) func() {
				ends = append(ends, b.submit(ctx, r))
				return func() {}
			})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(ends) != 4 || slurm.made != 2 {
			t.Fatalf("%d answers, %d jobs; want 4, and the 2 that began in time", len(ends), slurm.made)
		}
		for _, end := range ends[2:] {
			if !end.Refused || !end.Retry || end.Job != 0 {
				t.Errorf("submission that came late: %+v", end)
			}
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

func TestUsageAloneIsNotWorthACheckIn(t *testing.T) {
	t.Parallel()
	var r reports
	told := func() bool {
		select {
		case <-r.changed("cpu"):
			return true
		default:
			return false
		}
	}
	r.set("cpu", codalab.Run{UUID: "0x1", State: codalab.StateRunning})
	if !told() {
		t.Error("a new run is not told")
	}
	r.set("cpu", codalab.Run{UUID: "0x1", State: codalab.StateRunning, ContainerTimeTotal: 7, MemoryUsage: 0.5})
	if told() {
		t.Error("usage was told by itself")
	}
	if got := r.list("cpu")[0].ContainerTimeTotal; got != 7 {
		t.Errorf("the next check-in tells of %v seconds, want 7", got)
	}
	r.set("cpu", codalab.Run{UUID: "0x1", State: codalab.StateFinalizing, ContainerTimeTotal: 7})
	if !told() {
		t.Error("a change of state is not told")
	}
}
