package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

func claimed(accepted bool, o plan.Outcome) plan.News {
	return plan.News{Claimed: &plan.Claimed{Outcome: o, Accepted: accepted}}
}

func TestClaimIsAskedUntilAnsweredAndAnotherWorkersBundleIsDropped(t *testing.T) {
	t.Parallel()
	fresh := rowIn(plan.Claiming)
	given(t, fresh).decide(plan.News{}).is(plan.Claiming, plan.Claim).decide(claimed(true, plan.Outcome{})).is(plan.Staging, plan.Stage)
	for name, no := range map[string]plan.News{
		"another worker": claimed(false, plan.Outcome{}), "403": claimed(false, plan.Outcome{Failure: "403", Final: true}),
	} {
		b := given(t, fresh).decide(no).is(plan.Claiming, plan.Confirm).decide(confirmed(epoch, codalab.StateRunning)).is(plan.Done, plan.Release)
		if !strings.Contains(b.row.Reason, name) {
			t.Errorf("reason %q, want it to say %q", b.row.Reason, name)
		}
	}
	gone := plan.Outcome{Failure: "404", Final: true, Gone: true}
	given(t, fresh).decide(claimed(false, gone)).is(plan.Done, plan.Release)
	b := given(t, fresh)
	for _, pause := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		b.decide(claimed(false, plan.Outcome{Failure: "502"})).is(plan.Claiming)
		if got := b.row.DueAt.Sub(b.now); got != time.Duration(pause)*time.Second {
			t.Fatalf("pause after try %d is %s, want %d s", b.row.FailedTries, got, pause)
		}
		b.decide(plan.News{}).is(plan.Claiming)
		b.now = b.row.DueAt
		b.decide(plan.News{}).is(plan.Claiming, plan.Claim)
	}
	// Offered again before it was forgotten: its files are being removed, and the server will offer it again.
	given(t, fresh).decide(claimed(false, gone)).decide(told(offered())).is(plan.Done, plan.Release)
}

// The server may have granted an earlier claim before the bridge died. Then the refused bundle is the bridge's.
func TestRefusedClaimIsAskedFor(t *testing.T) {
	t.Parallel()
	refused := func() *bench {
		return given(t, rowIn(plan.Claiming)).decide(claimed(false, plan.Outcome{})).is(plan.Claiming, plan.Confirm)
	}
	for _, c := range []struct {
		name  string
		shown plan.Confirmation
		want  plan.Phase
		wants []plan.Kind
	}{
		{"offline here", plan.Confirmation{State: codalab.StateWorkerOffline, Here: true}, plan.Staging, []plan.Kind{plan.Stage}},
		{"offline elsewhere", plan.Confirmation{State: codalab.StateWorkerOffline}, plan.Done, []plan.Kind{plan.Release}},
		{"preparing here", plan.Confirmation{State: codalab.StatePreparing, Here: true}, plan.Claiming, nil},
		{"preparing elsewhere", plan.Confirmation{State: codalab.StatePreparing}, plan.Done, []plan.Kind{plan.Release}},
		{"running here", plan.Confirmation{State: codalab.StateRunning, Here: true}, plan.Done, []plan.Kind{plan.Release}},
		{"on its way to a worker", plan.Confirmation{State: codalab.StateStarting}, plan.Claiming, nil},
		{"deleted", plan.Confirmation{Outcome: plan.Outcome{Failure: "404", Final: true, Gone: true}}, plan.Done, []plan.Kind{plan.Release}},
		{"not shown to us", plan.Confirmation{Outcome: plan.Outcome{Failure: "403", Final: true}}, plan.Done, []plan.Kind{plan.Release}},
		{"no answer", plan.Confirmation{Outcome: plan.Outcome{Failure: "502"}}, plan.Claiming, nil},
	} {
		c.shown.Asked = epoch
		b := refused().decide(plan.News{Confirmed: &c.shown})
		if b.row.Phase != c.want || !slices.Equal(b.kinds(), c.wants) {
			t.Errorf("%s: %s (%s), wants %v", c.name, b.row.Phase, b.row.Reason, b.kinds())
		}
	}
	// The answer to a question from before the new offer is out of date.
	b := refused().at(time.Second).decide(told(offered())).is(plan.Claiming, plan.Claim)
	b.decide(confirmed(epoch, codalab.StateRunning)).is(plan.Claiming, plan.Claim)
	b.decide(claimed(true, plan.Outcome{})).is(plan.Staging, plan.Stage)
}

// The bridge asks a registry again only at the time that it names, but after some hours if that time is too far away.
func TestRegistryThatWantsToBeLeftAloneIs(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]time.Duration{0: time.Second, time.Millisecond: time.Second, 20 * time.Minute: 20 * time.Minute, 1000 * time.Hour: 6 * time.Hour} {
		b := given(t, rowIn(plan.Staging), func(r *plan.Row) { r.Staged = nil })
		b.decide(plan.News{Staged: &plan.StageEnd{Outcome: plan.Outcome{Failure: "429", Outage: true, After: after}}}).is(plan.Staging)
		if got := b.row.DueAt.Sub(b.now); got != want {
			t.Errorf("asked to wait for %v, it waits for %v, want %v", after, got, want)
		}
		due := b.row.DueAt
		if b.decide(restarted); !b.row.DueAt.Equal(due) {
			t.Errorf("asked to wait for %v, it waits for %v after a restart, want %v", after, b.row.DueAt.Sub(b.now), want)
		}
	}
}

// The bridge waits a day for the end of an outage. Neither the outage nor hours of work before the first failure use
// up the patience with the bundle's own failures.
func TestOutageWhileStagingIsWaitedOut(t *testing.T) {
	t.Parallel()
	unstaged := func(r *plan.Row) { r.Staged = nil }
	fails := func(outage bool) plan.News {
		return plan.News{Staged: &plan.StageEnd{Outcome: plan.Outcome{Failure: "the server does not answer", Outage: outage}}}
	}
	b := given(t, rowIn(plan.Staging), unstaged)
	for at := 10 * time.Hour; at <= 33*time.Hour; at += time.Hour { // it had worked for ten hours
		b.at(at).decide(fails(true)).is(plan.Staging)
	}
	for range 5 {
		b.at(40 * time.Hour).decide(fails(false)).is(plan.Staging)
	}
	b.at(40*time.Hour + 6*time.Minute).decide(fails(false)).is(plan.Finalizing)
	b.verdict(spool.CausePlatform, "The server does not answer.")
	b = given(t, rowIn(plan.Staging), unstaged)
	for range 6 {
		b.decide(fails(true)).is(plan.Staging)
	}
	b.at(24*time.Hour + time.Second).decide(fails(true)).is(plan.Finalizing)
	if b = given(t, rowIn(plan.Staging), unstaged).decide(fails(true)).decide(plan.News{Staged: &plan.StageEnd{}}); !b.row.FailingSince.IsZero() || b.row.FailedByOutage {
		t.Error("what was staged is still troubled")
	}
}

// A bundle that fails for two causes in turns gets more patience, but not without end.
func TestStagingThatFailsByTurnsIsGivenUp(t *testing.T) {
	t.Parallel()
	fails := func(outage bool) plan.News {
		return plan.News{Staged: &plan.StageEnd{Outcome: plan.Outcome{Failure: "no", Outage: outage}}}
	}
	b := given(t, rowIn(plan.Staging), func(r *plan.Row) { r.Staged = nil })
	at := time.Duration(0)
	for ; at <= 72*time.Hour; at += 4 * time.Minute {
		b.at(at).decide(fails(at%(8*time.Minute) == 0)).is(plan.Staging)
	}
	b.at(at).decide(fails(false)).is(plan.Finalizing)
}

// CodaLab's own worker counts the tries of a download (cl-worker --download-dependencies-max-retries).
func TestTriesOfStagingAreBoundedWhereAWorkerCountsThem(t *testing.T) {
	t.Parallel()
	failures := func(tries int, o plan.Outcome) int {
		p := policy()
		p.StageTries = tries
		r := rowIn(plan.Staging)
		r.Staged = nil
		now := epoch
		for n := 1; n <= 20; n++ {
			r, _ = p.Next(now, r, plan.News{Staged: &plan.StageEnd{Outcome: o}})
			if r.Phase != plan.Staging {
				return n
			}
			now = r.DueAt
		}
		return 0
	}
	broken, outage := plan.Outcome{Failure: "the archive is broken"}, plan.Outcome{Failure: "no answer", Outage: true}
	if got := failures(4, broken); got != 4 {
		t.Errorf("given up after %d failures, want 4", got)
	}
	if got := failures(1, broken); got != 1 {
		t.Errorf("given up after %d failures, want 1", got)
	}
	if got := failures(4, outage); got != 0 {
		t.Errorf("an outage is given up after %d failures", got)
	}
}
