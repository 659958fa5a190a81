package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestI6ServerIsAskedForALostAcknowledgement(t *testing.T) {
	t.Parallel()
	answer := func(o plan.Outcome, s codalab.State) plan.News {
		return plan.News{Confirmed: &plan.Confirmation{Outcome: o, Asked: epoch.Add(firstQuestion), State: s}}
	}
	asked := func() *bench {
		return given(t, rowIn(plan.Finalizing)).at(firstQuestion).decide(plan.News{}).is(plan.Finalizing, plan.Confirm)
	}
	given(t, rowIn(plan.Finalizing)).at(firstQuestion - time.Second).decide(plan.News{}).is(plan.Finalizing)
	for _, s := range []codalab.State{codalab.StateReady, codalab.StateFailed, codalab.StateKilled} {
		if b := asked().decide(answer(plan.Outcome{}, s)).is(plan.Done); b.row.KeepUntil != b.now.Add(24*time.Hour) {
			t.Errorf("%s: files are kept until %s, want for a day", s, b.row.KeepUntil)
		}
	}
	for s, reports := range map[codalab.State]int{
		codalab.StatePreparing: 2, codalab.StateRunning: 2, codalab.StateWorkerOffline: 2,
		codalab.StateStarting: 1, codalab.StateFinalizing: 1, codalab.StateStaged: 1, "dormant": 1, "": 1,
	} {
		b := asked().decide(answer(plan.Outcome{}, s)).is(plan.Finalizing)
		if b.row.ReportCount != reports || b.row.DueAt != b.now.Add(firstQuestion) {
			t.Errorf("%s: reported %d times, due %s, want %d and the next question in 15 s", s, b.row.ReportCount, b.row.DueAt, reports)
		}
	}
	// A question that failed does not tell the state.
	b := asked().decide(answer(plan.Outcome{Failure: "502"}, codalab.StateReady)).is(plan.Finalizing)
	b.now = b.row.DueAt
	b.decide(plan.News{}).is(plan.Finalizing, plan.Confirm)
	b.decide(answer(plan.Outcome{Failure: "403", Final: true}, "")).is(plan.Finalizing)
	asked().decide(answer(plan.Outcome{Failure: "404", Final: true, Gone: true}, "")).is(plan.Done)
	// An acknowledgement outranks the server's answer.
	late := answer(plan.Outcome{}, codalab.StateRunning)
	late.Messages = told(ack).Messages
	asked().decide(late).is(plan.Done)
	asked().decide(told(ack)).decide(answer(plan.Outcome{}, codalab.StateRunning)).is(plan.Done)
}

// The pauses between the questions grow up to LongestAckPause.
func TestServerThatIsSlowToAcknowledgeIsAskedLessAndLess(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Finalizing))
	var pauses []time.Duration
	for range 8 {
		b.now = b.row.DueAt
		b.decide(plan.News{}).is(plan.Finalizing, plan.Confirm).decide(confirmed(b.now, codalab.StateFinalizing)).is(plan.Finalizing)
		pauses = append(pauses, b.row.DueAt.Sub(b.now))
	}
	want := []time.Duration{
		15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute,
	}
	if diff := cmp.Diff(want, pauses); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

// The verdict may have been lost: the bridge asks the server at once, and reports the verdict again only if the
// server does not have it.
func TestI6VerdictOfUnknownFateIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]plan.News{"no answer to the check-in": {Unanswered: true}, "a restart": {Restarted: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := given(t, rowIn(plan.Finalizing)).at(time.Second).decide(n).is(plan.Finalizing, plan.Confirm)
			if b.row.ReportCount != 1 {
				t.Fatal("reported again before the server was asked")
			}
			got := *b
			if got.decide(confirmed(b.now, codalab.StateFinalizing)).is(plan.Finalizing); got.row.ReportCount != 1 {
				t.Error("reported again to a server that has the verdict")
			}
			if b.decide(confirmed(b.now, codalab.StateRunning)).is(plan.Finalizing); b.row.ReportCount != 2 {
				t.Error("not reported again to a server that has not got the verdict")
			}
		})
	}
}

// The answer to a question from before the report, or from before the acknowledgement, proves nothing about
// either.
func TestI6OldAnswerDoesNotRepeatAReport(t *testing.T) {
	t.Parallel()
	before := epoch.Add(-time.Second)
	b := given(t, rowIn(plan.Finalizing)).decide(confirmed(before, codalab.StateRunning)).is(plan.Finalizing)
	if b.row.ReportCount != 1 {
		t.Error("an old answer had the verdict reported again")
	}
	// The server was asked during the upload, and both answers come at once.
	n := confirmed(epoch, codalab.StateRunning)
	n.Collected = &plan.Outcome{}
	if b := given(t, rowIn(plan.Collecting)).at(time.Second).decide(n).is(plan.Finalizing); b.row.ReportCount != 1 {
		t.Errorf("%d reports, want one", b.row.ReportCount)
	}
	given(t, rowIn(plan.Collecting)).decide(confirmed(before, codalab.StateReady)).is(plan.Collecting, plan.Collect)
	given(t, rowIn(plan.Done)).decide(confirmed(before, codalab.StateWorkerOffline)).is(plan.Done)
	given(t, rowIn(plan.Done)).decide(confirmed(epoch, codalab.StateWorkerOffline)).is(plan.Collecting, plan.Collect)
}

// keptEnough lets a row's time to keep its files run out. The bridge asks the server once more before it removes
// them.
func keptEnough(r *plan.Row) { r.DueAt, r.KeepUntil = time.Time{}, epoch }

func TestI6FilesAreKeptUntilTheServerWasAsked(t *testing.T) {
	t.Parallel()
	last := func() *bench {
		return given(t, rowIn(plan.Done), keptEnough).decide(plan.News{}).is(plan.Done, plan.Confirm)
	}
	answer := func(o plan.Outcome) plan.News {
		return plan.News{Confirmed: &plan.Confirmation{Outcome: o, Asked: epoch}}
	}
	for _, s := range []codalab.State{codalab.StateReady, "dormant", ""} {
		last().decide(confirmed(epoch, s)).is(plan.Done, plan.Release)
	}
	for _, s := range []codalab.State{
		codalab.StateStaged, codalab.StateStarting, codalab.StatePreparing, codalab.StateRunning, codalab.StateFinalizing,
	} {
		last().decide(confirmed(epoch, s)).is(plan.Done)
	}
	last().decide(answer(plan.Outcome{Failure: "502"})).is(plan.Done)
	last().decide(answer(plan.Outcome{Failure: "404", Final: true, Gone: true})).is(plan.Done, plan.Release)
	last().decide(answer(plan.Outcome{Failure: "403", Final: true})).is(plan.Done, plan.Release)
}

// A bridge that is restarted every minute keeps results for at most a day longer.
func TestRestartsDoNotKeepResultsForEver(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Done)).at(72*time.Hour).decide(restarted).is(plan.Done, plan.Confirm)
	if b.row.KeepUntil != b.now.Add(time.Hour) {
		t.Errorf("kept until %s, want for an hour", b.row.KeepUntil)
	}
	b = given(t, rowIn(plan.Done)).at(24*time.Hour - time.Minute)
	for range 7 * 24 * 60 {
		b.now = b.now.Add(time.Minute)
		b.decide(restarted)
	}
	if kept := b.row.KeepUntil.Sub(epoch); kept < 48*time.Hour || kept > 49*time.Hour {
		t.Errorf("kept for %s, want two days", kept)
	}
}
