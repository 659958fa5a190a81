package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// askedTurns answers questions for places: the first job of each question is the last in the queue.
type askedTurns struct {
	calls int
	asked int // jobs of the last question
	fails bool
}

func (a *askedTurns) turns(_ context.Context, ids []sbatch.JobID) (map[sbatch.JobID]sbatch.Turn, error) {
	a.calls, a.asked = a.calls+1, len(ids)
	if a.fails {
		return nil, errors.New("slurm_load_jobs error: Unable to contact slurm controller")
	}
	turns := map[sbatch.JobID]sbatch.Turn{}
	for _, id := range ids {
		turns[id] = sbatch.Turn{Partition: "cpu", Ahead: 12}
	}
	return turns, nil
}

// waitingRow is a row whose job is pending for a reason.
func waitingRow(i int, reason string, now time.Time) plan.Row {
	r := plan.Row{Bundle: bundleName(i), Phase: plan.Queued, PhaseSince: now}
	r.Attempt = plan.Attempt{Number: 1, OnDisk: "1-b1b2b3", SubmissionName: plan.SubmissionName("cl-ann-" + r.Bundle), SubmittedAt: now, Prepared: true}
	r.Job = sbatch.Job{ID: sbatch.JobID(i + 1), Name: string(r.SubmissionName), State: sbatch.StatePending, Reason: reason, Submitted: now.Truncate(time.Second)}
	return r
}

// The controller feels each question for the jobs of all users.
func TestPlacesOfAllWaitingJobsCostOneQuestionAMinute(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10, 1_000, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				now := time.Now().Round(0)
				slurm, asked := &sameJobs{}, &askedTurns{}
				rows := make([]plan.Row, n)
				for i := range rows {
					rows[i] = waitingRow(i, "Priority", now)
					slurm.jobs = append(slurm.jobs, rows[i].Job)
				}
				b := openedWith(t, Config{Spool: &quietDisk{}, Scheduler: slurm, Now: time.Now, ObserveEvery: 6 * time.Second, Turns: asked.turns}, rows)
				ctx, cancel := context.WithCancel(t.Context())
				g, ctx := errgroup.WithContext(ctx)
				r := b.runner(ctx, g)
				g.Go(func() error { return b.loop(ctx, r) })
				g.Go(func() error { return b.slurm.run(ctx, b.Now) })
				time.Sleep(10*time.Minute - time.Second)
				synctest.Wait()
				if asked.calls != 10 || asked.asked != n {
					t.Errorf("%d questions in ten minutes, the last for %d jobs", asked.calls, asked.asked)
				}
				if turn := b.decider.rows.get(bundleName(n - 1)).Turn; turn != (sbatch.Turn{Partition: "cpu", Ahead: 12}) {
					t.Errorf("the last row has the place %+v", turn)
				}
				cancel()
				_ = g.Wait()
			})
		})
	}
}

func TestPlacesAreAskedForOnlyWhereTheyMeanSomething(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason        string
		hidden, fails bool
		calls         int
	}{
		"in the queue":                   {reason: "Priority", calls: 1},
		"at a limit":                     {reason: "QOSMaxJobsPerUserLimit"},
		"held":                           {reason: "JobHeldUser"},
		"where users are hidden":         {reason: "Priority", hidden: true},
		"without an answer, none is old": {reason: "Priority", fails: true, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, asked := time.Unix(1_800_000_000, 0), &askedTurns{fails: c.fails}
			w := turnWatch{ask: asked.turns, view: &view{}, inbox: &inbox{}, log: slog.New(slog.DiscardHandler), hidden: c.hidden}
			w.view.init()
			w.inbox.init()
			r := waitingRow(0, c.reason, now)
			r.Turn = sbatch.Turn{Partition: "cpu", Ahead: 40}
			w.view.put(now, &r)
			w.askIfDue(t.Context(), now)
			w.askIfDue(t.Context(), now.Add(turnsEvery-time.Second))
			if asked.calls != c.calls {
				t.Errorf("%d questions, want %d", asked.calls, c.calls)
			}
			news := w.inbox.drain().news
			if c.fails && (len(news) != 1 || *news[0].Turn != (sbatch.Turn{})) {
				t.Errorf("the old place stays: %+v", news)
			}
		})
	}
}
