package bridge

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
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
	in.putMessages("cpu", []codalab.Message{{Type: codalab.MessageRun, Bundle: &codalab.RunBundle{UUID: "0x" + strings.Repeat("1", 32)}}})
	select {
	case <-in.arrived:
	default:
		t.Error("no token though there is something to take")
	}
	got := in.drain()
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
	if got = in.drain(); len(got.offers)+len(got.news) != 0 {
		t.Errorf("taken again: %v", got)
	}
}

func TestPaceAllowsABurstAndThenTwoASecond(t *testing.T) {
	t.Parallel()
	p := newPace(Pace{}, time.Minute).submits
	now := time.Unix(1_800_000_000, 0)
	if got := budget(p, now); got != 20 {
		t.Fatalf("budget %d at first, want 20", got)
	}
	if !p.AllowN(now, 20) || budget(p, now) != 0 {
		t.Fatalf("budget %d after the burst", budget(p, now))
	}
	made := 0
	for end := now.Add(time.Minute); now.Before(end); now = now.Add(refill(p, now)) {
		n := budget(p, now)
		if !p.AllowN(now, n) {
			t.Fatalf("%d submissions are not allowed", n)
		}
		made += n
	}
	if made < 118 || made > 121 {
		t.Errorf("%d submissions in the minute after the burst, want 120", made)
	}
	if got := budget(p, now.Add(-time.Hour)); got < 0 || got > 1 {
		t.Errorf("budget %d when the clock went back", got)
	}
	if got := budget(p, now.Add(time.Hour)); got != 20 {
		t.Errorf("budget %d after an hour, want the burst", got)
	}
}

func TestStepWaitsForWhatMayComeWithoutNews(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	staged := plan.Row{Phase: plan.Staging, Staged: &spool.Inputs{}}
	for name, c := range map[string]struct {
		row   plan.Row
		spent int
		want  time.Duration
	}{
		"nothing":              {plan.Row{Phase: plan.Running}, 15, idle},
		"a row that is due":    {plan.Row{Phase: plan.Claiming, DueAt: now.Add(3 * time.Second)}, 15, 3 * time.Second},
		"the rate":             {staged, DefaultPace().Burst, 500 * time.Millisecond},
		"room in a full queue": {staged, 15, idle},
	} {
		b := &Bridge{}
		b.assemble()
		b.board.init()
		b.decider.jobs.observed = true
		b.decider.pace.submits.AllowN(now, c.spent)
		c.row.Run = &codalab.RunBundle{}
		b.decider.rows.put(&c.row)
		if got := b.decider.wait(now); got != c.want {
			t.Errorf("%s: waits %s, want %s", name, got, c.want)
		}
	}
}

// show publishes a copy of a row.
func show(b *Bridge, r plan.Row) {
	b.decider.starter.active.cancelOutdated(&r)
	b.board.publish(time.Unix(1_800_000_000, 0), &r)
}

// following returns a policy in force.
func following(p plan.Policy) *inForce {
	f := &inForce{}
	f.set(&p)
	return f
}

// A stand-alone worker offers the part of its host that a run does not use while its inputs, or the files with which it
// goes on, are brought to the disk.
func TestRunsWithoutAJobAreKnown(t *testing.T) {
	t.Parallel()
	staged, verdict := &spool.Inputs{}, &plan.Verdict{}
	files := plan.Resumption{From: "1-b1"}
	for name, test := range map[string]struct {
		row  plan.Row
		want bool
	}{
		"inputs":    {plan.Row{Phase: plan.Staging}, true},
		"ready":     {plan.Row{Phase: plan.Staging, Staged: staged}, false},
		"files":     {plan.Row{Phase: plan.Staging, Staged: staged, Resumption: files}, true},
		"stopped":   {plan.Row{Phase: plan.Staging, StopVerdict: verdict}, false},
		"runs":      {plan.Row{Phase: plan.Running, Staged: staged}, false},
		"collected": {plan.Row{Phase: plan.Collecting, Staged: staged}, true},
	} {
		if isJobless(&test.row) {
			t.Errorf("%s: a run of a bridge has no part of a host", name)
		}
		if test.row.Standalone = true; isJobless(&test.row) != test.want {
			t.Errorf("%s: without a job %v", name, !test.want)
		}
	}
}
