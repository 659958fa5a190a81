// Package recovery compares a ledger that was put back from an old copy with Slurm.
//
// A bridge does not run on such a ledger ([plan.ErrOutdated]): Slurm has jobs of the bridge that are newer, and
// the bridge must not touch jobs that it does not know. [Compare] lists those jobs and the fate of each.
// [Accept] raises the ledger's generation, the number of its last submission, to the highest in Slurm; then the
// bridge can run.
package recovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Findings are the findings of [Compare].
type Findings struct {
	Ledger string `json:"ledger"`
	Bridge string `json:"bridge"`
	// Generation is the number of the last submission that the ledger knew,
	// Highest that of the last one among the ledger's and Slurm's.
	Generation int64 `json:"generation"`
	Highest    int64 `json:"highest"`
	// Outdated is set when a bridge would not run on the ledger as it was.
	Outdated bool `json:"outdated"`
	// Accepted is set when [Accept] has raised the ledger's generation to Highest.
	Accepted bool  `json:"accepted"`
	Jobs     []Job `json:"jobs"`
}

// Job is a job of the bridge that the ledger does not know.
type Job struct {
	Job        sbatch.JobID `json:"job"`
	State      sbatch.State `json:"state"`
	Bundle     string       `json:"bundle"`
	Attempt    int          `json:"attempt"`
	Generation int64        `json:"generation"`
	Name       string       `json:"name"`
	// Phase is that of the bundle's row; empty where there is none.
	Phase plan.Phase `json:"phase,omitempty"`
	// Fate tells an operator the fate of the job once the bridge runs on the ledger.
	Fate string `json:"fate"`
}

// Scheduler is Slurm. *sbatch.Client is one.
type Scheduler interface {
	Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error)
}

// Compare finds the jobs in Slurm that the ledger, called name, does not know. A bridge may work on the ledger
// at the same time. Of the policy it needs Owner, CancelOrphans and OrphanGrace.
func Compare(ctx context.Context, now time.Time, policy plan.Policy, name string, book *ledger.Reader, slurm Scheduler) (Findings, error) {
	// Slurm is asked first: a row is saved before its job is submitted, so the ledger,
	// read later, knows every job of Slurm's answer.
	snapshot, err := slurm.Observe(ctx, now)
	if err != nil {
		return Findings{}, err
	}
	id, err := book.Bridge(ctx)
	if err != nil {
		return Findings{}, err
	}
	generation, err := book.Generation(ctx)
	if err != nil {
		return Findings{}, err
	}
	rows, err := book.Rows(ctx)
	if err != nil {
		return Findings{}, err
	}
	policy.Bridge = id
	found := Findings{Ledger: name, Bridge: id, Generation: generation, Highest: generation, Jobs: []Job{}}
	found.addJobs(policy, snapshot, plan.ByBundle(rows), tasksOf(rows))
	found.Outdated = found.Highest > generation // as plan.Policy.OrphanJobs finds it
	return found, nil
}

// addJobs adds the bridge's own jobs that its ledger does not know: those of submissions that the ledger
// lacks, and those that a row lacks. They are in the order of submission. row returns a bundle's row, nil
// for none.
func (f *Findings) addJobs(policy plan.Policy, snapshot sbatch.Snapshot, row func(bundle string) *plan.Row, tasks map[string]bool) {
	for _, j := range snapshot.Jobs {
		stamp, ok := plan.StampOf(j)
		if shared, ofArray := plan.SharedStampOf(j); ofArray && shared.Bridge == f.Bridge {
			f.addTask(policy, j, shared, tasks)
			continue
		}
		if !ok || stamp.Bridge != f.Bridge {
			continue
		}
		f.Highest = max(f.Highest, stamp.Generation)
		r := row(stamp.Bundle)
		own := r != nil && r.Stamped(j, stamp)
		if stamp.Generation <= f.Generation && (own || j.State.Ended()) {
			continue
		}
		what := "nothing: its bundle has found it by its records"
		if !own {
			r = cmp.Or(r, &plan.Row{})
			what = fate(policy, j.State, stamp, r)
		}
		f.Jobs = append(f.Jobs, Job{
			Job: j.ID, State: j.State, Bundle: stamp.Bundle, Attempt: stamp.Attempt, Generation: stamp.Generation,
			Name: termtext.Line(j.Name), Phase: r.Phase, Fate: what,
		})
	}
	slices.SortFunc(f.Jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Job, b.Job))
	})
}

// tasksOf returns the keys of the tasks that rows have.
func tasksOf(rows []plan.Row) map[string]bool {
	tasks := map[string]bool{}
	for _, r := range rows {
		if r.Shared {
			tasks[taskKey(r.Generation, r.Index)] = true
			tasks[packKey(r.Generation)] = tasks[packKey(r.Generation)] || r.Pack
		}
		if r.Begun != nil {
			tasks[r.Begun.Job] = true
		}
	}
	return tasks
}

func taskKey(generation int64, index int) string {
	return fmt.Sprintf("generation %d, %d", generation, index)
}

func packKey(generation int64) string { return fmt.Sprintf("generation %d, pack", generation) }

// addTask adds a task of an array, or a pack, that the ledger does not know. The list of members, which tells the bridge the bundles,
// may be on a disk that this machine does not have.
func (f *Findings) addTask(policy plan.Policy, j sbatch.Job, stamp plan.SharedStamp, tasks map[string]bool) {
	f.Highest = max(f.Highest, stamp.Generation)
	_, index, _ := j.ID.ArrayTask()
	key := taskKey(stamp.Generation, index)
	if stamp.Pack {
		key = packKey(stamp.Generation)
	}
	if stamp.Generation <= f.Generation && (tasks[key] || j.State.Ended()) {
		return
	}
	what := "taken up by its bundle if that waits to be submitted, else " + cancelledLater(policy)
	switch {
	case tasks[j.ID.String()]:
		what = "nothing: its bundle has found it by its records"
	case j.State.Ended():
		what = "nothing: it has ended"
	}
	f.Jobs = append(f.Jobs, Job{Job: j.ID, State: j.State, Generation: stamp.Generation, Name: termtext.Line(j.Name), Fate: what})
}

// cancelledLater is the fate of a job without a row.
func cancelledLater(policy plan.Policy) string {
	if !policy.CancelOrphans {
		return "left alone, as cancel_strays is false"
	}
	return "cancelled after " + codalab.FormatDuration(policy.OrphanGrace)
}

// Accept compares as [Compare] does and raises the ledger's generation to the highest in
// Slurm. The caller holds the ledger's lock.
func Accept(ctx context.Context, now time.Time, policy plan.Policy, name string, book *ledger.Ledger, slurm Scheduler) (Findings, error) {
	found, err := Compare(ctx, now, policy, name, &book.Reader, slurm)
	if err != nil || found.Highest <= found.Generation {
		return found, err
	}
	if err := book.Take(ctx); err != nil {
		return Findings{}, err
	}
	if err := book.Raise(ctx, found.Highest); err != nil {
		return Findings{}, err
	}
	found.Accepted = true
	return found, nil
}

// fate returns the fate of a job once the bridge runs on the ledger. row is the row of its bundle, or empty.
func fate(policy plan.Policy, state sbatch.State, job plan.Stamp, row *plan.Row) string {
	cancelled := cancelledLater(policy)
	again := row.Attempt.Number < job.Attempt && row.Verdict == nil && !row.Dropped
	switch {
	case row.Bundle == "" && state.Ended():
		return "nothing: it has ended, and the ledger does not know its bundle"
	case row.Bundle == "":
		return "the ledger does not know its bundle: " + cancelled
	case again && state.Ended():
		return "it has ended; its bundle takes up what it left when it is submitted again"
	case again:
		return "taken up by its bundle, which waits to be submitted"
	case state.Ended():
		return "nothing: it has ended, and its bundle has gone on without it"
	}
	return "its bundle has gone on without it: " + cancelled
}

// Text returns the findings for people. command is the command line that found them.
func (f Findings) Text(command string) string {
	said := fmt.Sprintf("%s, of bridge %s, knows %d submissions; Slurm shows submission %d as the last.\n",
		f.Ledger, f.Bridge, f.Generation, f.Highest)
	if f.Highest == f.Generation {
		said = fmt.Sprintf("%s, of bridge %s, knows %d submissions; Slurm shows no later one.\n", f.Ledger, f.Bridge, f.Generation)
	}
	if len(f.Jobs) > 0 {
		said += "\n" + f.table() + "\n"
	}
	switch {
	case f.Accepted:
		return said + "Accepted: the ledger's next submission has a higher number than all of these. Start the bridge again.\n"
	case f.Outdated:
		return said + "Nothing was changed. The bridge does not run on this ledger. Put a newer copy in its place if there is\n" +
			"one; else go on with this one by \"" + command + " --accept\".\n"
	}
	return said + "The bridge runs on this ledger: there is nothing to accept.\n"
}

func (f Findings) table() string {
	rows := [][]string{{"JOB", "STATE", "BUNDLE", "ATTEMPT", "SUBMISSION", "NAME", "WHAT BECOMES OF IT"}}
	for _, j := range f.Jobs {
		rows = append(rows, []string{
			j.Job.String(), string(j.State), j.Bundle, termtext.Number(int64(j.Attempt)), termtext.Number(j.Generation), j.Name, j.Fate,
		})
	}
	return termtext.Table(rows)
}
