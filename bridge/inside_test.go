package bridge

import (
	"context"
	"errors"
	"log/slog"
	"strings"
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
	in.deliver("cpu", []codalab.Message{{Type: codalab.MessageRun, Bundle: &codalab.RunBundle{UUID: "0x" + strings.Repeat("1", 32)}}})
	select {
	case <-in.arrived:
	default:
		t.Error("no token though there is something to take")
	}
	got := in.take()
	news := map[string]plan.News{}
	for _, n := range got.news {
		news[n.bundle] = n.News
	}
	want := map[string]plan.News{
		"0x1": {Messages: []codalab.Message{{Type: codalab.MessageKill}, {Type: codalab.MessageMarkFinalized}}},
		"0x2": {Progress: "half"},
	}
	if diff := cmp.Diff(want, news); diff != "" || len(got.offers) != 1 || len(got.news) != 2 {
		t.Errorf("%d offers, news (-want +got):\n%s", len(got.offers), diff)
	}
	if got = in.take(); len(got.offers)+len(got.news) != 0 {
		t.Errorf("taken again: %v", got)
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
		b := &Bridge{rows: newRows(1), pacer: pacer{tokens: c.tokens, at: now}}
		b.rows.put(c.row)
		if got := b.wait(now); got != c.want {
			t.Errorf("%s: waits %s, want %s", name, got, c.want)
		}
	}
}

// begin wants an effect, and starts it where it may be.
func (r *runner) begin(e plan.Effect) {
	if r.bridge.running.begin(e) {
		r.start(e)
	}
}

// startedRunner returns a runner of b's effects. The caller calls wait.
func startedRunner(t *testing.T, b *Bridge) (r *runner, wait func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g, ctx := errgroup.WithContext(ctx)
	b.Log, b.Now = slog.New(slog.DiscardHandler), time.Now
	b.inbox.init()
	b.view.init()
	return newRunner(ctx, b, g), func() {
		cancel()
		_ = g.Wait()
	}
}

// disk is a shared disk that counts what it is asked for.
type disk struct {
	Spool

	mu            sync.Mutex
	looks, closes map[int]int   // by attempt
	prepare       time.Duration // how long Prepare takes
	hang          chan struct{} // Look ends when it is closed
}

func newDisk() *disk {
	return &disk{looks: map[int]int{}, closes: map[int]int{}, hang: make(chan struct{})}
}

func (d *disk) count(of map[int]int, attempt int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of[attempt]++
}

func (d *disk) Prepare(spool.Spec) error {
	time.Sleep(d.prepare)
	return nil
}

func (d *disk) Look(_ string, attempt int) (spool.Records, error) {
	d.count(d.looks, attempt)
	<-d.hang
	return spool.Records{}, nil
}

func (d *disk) Close(_ context.Context, _ string, attempt int, _ time.Time) (spool.Started, error) {
	d.count(d.closes, attempt)
	return spool.Started{Closed: true}, nil
}

func TestEffectThatIsWantedByWhoHearsItsOutcomeIsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		b := &Bridge{Spool: d}
		r, wait := startedRunner(t, b)
		defer wait()
		effect := plan.Effect{Kind: plan.Close, Row: plan.Row{Bundle: "0x1", Attempt: 1}}
		r.begin(effect)
		for range 4 {
			<-b.inbox.arrived
			if news := b.inbox.take().news; len(news) != 1 || news[0].Closed == nil {
				t.Fatalf("heard %v", news)
			}
			r.begin(effect)
		}
		synctest.Wait()
		if d.closes[1] != 5 {
			t.Errorf("ran %d times, want 5", d.closes[1])
		}
	})
}

// hangingCollector collects until it is told to end.
type hangingCollector struct{ began, ended int }

func (c *hangingCollector) Collect(ctx context.Context, _ codalab.RunBundle, _ string) error {
	c.began++
	<-ctx.Done()
	c.ended++
	return ctx.Err()
}

func TestOneEffectOfAKindRunsForAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, collector := newDisk(), &hangingCollector{}
		b := &Bridge{Spool: d, Collector: collector}
		r, wait := startedRunner(t, b)
		defer wait()
		defer close(d.hang)
		first := plan.Row{Bundle: "0x1", Run: &codalab.RunBundle{}, Attempt: 1, Phase: plan.Collecting}
		second := first
		second.Attempt = 2
		for range 3 {
			r.begin(plan.Effect{Kind: plan.Look, Row: first})
			r.begin(plan.Effect{Kind: plan.Collect, Row: first})
			r.begin(plan.Effect{Kind: plan.Look, Row: second})
			synctest.Wait()
		}
		if diff := cmp.Diff(map[int]int{1: 1, 2: 1}, d.looks); diff != "" || collector.began != 1 {
			t.Errorf("%d collections, looks (-want +got):\n%s", collector.began, diff)
		}
		// A row that stays in its phase keeps its long effects; leaving it
		// ends them, and only them, and they have nothing to tell.
		b.publish(first)
		synctest.Wait()
		if len(b.running.effects) != 3 || collector.ended != 0 {
			t.Errorf("%d effects run, want all", len(b.running.effects))
		}
		first.Phase = plan.Finalizing
		b.publish(first)
		synctest.Wait()
		if collector.ended != 1 || len(b.running.effects) != 2 || len(b.inbox.take().news) != 0 {
			t.Errorf("running: %v, want the looks", b.running.effects)
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
		b := &Bridge{Stager: busyStager{}, Now: time.Now}
		b.inbox.init()
		heard := 0
		go b.stage(t.Context(), plan.Row{Bundle: "0x1", Run: &codalab.RunBundle{}})
		for range 1500 {
			time.Sleep(10 * time.Millisecond)
			if len(b.inbox.take().news) > 0 {
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
	synctest.Test(t, func(t *testing.T) {
		slurm := &slowSlurm{}
		b := &Bridge{Scheduler: slurm, Spool: newDisk()}
		r, wait := startedRunner(t, b)
		defer wait()
		for _, bundle := range []string{"0x1", "0x2", "0x3", "0x4"} {
			row := plan.Row{Bundle: bundle, Run: &codalab.RunBundle{}, Attempt: 1, Mark: plan.Mark(bundle), Submitted: time.Now()}
			r.begin(plan.Effect{Kind: plan.Submit, Row: row})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		notMade := 0
		for _, n := range b.inbox.take().news {
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

func TestUsageAloneIsNotWorthACheckIn(t *testing.T) {
	t.Parallel()
	b := &Bridge{Name: "b"}
	b.view.init()
	told := func() bool {
		select {
		case <-b.view.news("cpu"):
			return true
		default:
			return false
		}
	}
	at := time.Unix(1_800_000_000, 0)
	row := plan.Row{Bundle: "0x1", Queue: "cpu", Phase: plan.Running}
	b.publish(row)
	if !told() {
		t.Error("a new run is not told")
	}
	row.Status = &spool.Status{At: at.Add(7 * time.Second), CommandStarted: at}
	b.publish(row)
	if told() {
		t.Error("usage was told by itself")
	}
	if got := b.CheckIn(plan.Queue{Name: "cpu"}, 1).Runs[0].ContainerTimeTotal; got != 7 {
		t.Errorf("the next check-in tells of %v seconds, want 7", got)
	}
	row.Phase = plan.Finalizing
	b.publish(row)
	if !told() {
		t.Error("a change of state is not told")
	}
	b.publish(plan.Row{Bundle: "0x2", Queue: "gpu", Phase: plan.Running})
	if told() {
		t.Error("another queue's run was told")
	}
}
