package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// A worker that cannot write its exit record ends with the exit status of its command.
func TestExitStatusOfTheJobIsTheSecondWitness(t *testing.T) {
	t.Parallel()
	const noRecord = "and its worker left no exit record"
	for name, c := range map[string]struct {
		state sbatch.State
		exit  string
		cause spool.Cause
		code  int // -1 for none
		words string
	}{
		"a success":                       {sbatch.StateCompleted, "0:0", spool.CauseSucceeded, 0, ""},
		"a failure":                       {sbatch.StateFailed, "3:0", spool.CausePlatform, 3, "Exit code 3, as Slurm shows it: node n1 could not write to the shared disk"},
		"a worker that was killed":        {sbatch.StateFailed, "0:9", spool.CausePlatform, -1, "ended while it ran on n1: signal 9 ended its worker, and Slurm does not show who sent it."},
		"an end of the worker's own":      {sbatch.StateFailed, "123:0", spool.CausePlatform, -1, noRecord},
		"a crash of the worker":           {sbatch.StateFailed, "2:0", spool.CausePlatform, -1, noRecord},
		"closed by an administrator":      {sbatch.StateCompleted, "", spool.CausePlatform, -1, noRecord},
		"terminated":                      {sbatch.StateCancelled, "3:0", spool.CauseUser, -1, "was cancelled outside CodaLab"},
		"a node that failed all the same": {sbatch.StateNodeFail, "1:0", spool.CausePlatform, -1, "The node of Slurm job 7 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := job(c.state)
			j.Exit, j.CancelledBy = c.exit, "1001"
			b := given(t, rowIn(plan.Running), func(r *plan.Row) { r.Begun, r.Exit = started(), nil })
			b.at(time.Minute).decide(seen(time.Minute, j))
			b.at(2*time.Minute).decide(read(2*time.Minute, started(), nil)).is(plan.Collecting, plan.Collect)
			b.verdict(c.cause, c.words)
			if code := b.row.Verdict.ExitCode; c.code >= 0 && (code == nil || *code != c.code) || c.code < 0 && code != nil {
				t.Errorf("exit code %v, want %d", code, c.code)
			}
		})
	}
}

// squeue does not show the exit status of a job that failed.
func TestExitStatusOfAFailedJobIsAskedFor(t *testing.T) {
	t.Parallel()
	begin := func() *bench {
		b := given(t, rowIn(plan.Running), func(r *plan.Row) { r.Begun, r.Exit = started(), nil })
		b.at(time.Minute).decide(seen(time.Minute, job(sbatch.StateFailed)))
		return b.at(2*time.Minute).decide(read(2*time.Minute, started(), nil)).is(plan.Running, plan.QueryAccounting)
	}
	j := job(sbatch.StateFailed)
	j.Exit = "3:0"
	b := begin().decide(plan.News{Accounting: observation(2*time.Minute, j)}).is(plan.Collecting, plan.Collect)
	b.verdict(spool.CausePlatform, "Exit code 3, as Slurm shows it")

	b = begin() // the database is behind
	b.decide(plan.News{Accounting: observation(2 * time.Minute)}).is(plan.Running)
	b.at(3*time.Minute).decide(plan.News{Accounting: observation(3*time.Minute, j)}).is(plan.Collecting, plan.Collect)
	b.verdict(spool.CausePlatform, "Exit code 3, as Slurm shows it")

	b = begin() // and never shows the job
	b.at(time.Hour).decide(plan.News{Accounting: observation(time.Hour)}).is(plan.Collecting, plan.Collect)
	b.verdict(spool.CausePlatform, "left no exit record")

	b = begin() // a database that does not answer is not waited for without end
	b.at(time.Hour).decide(plan.News{AccountingFailure: "no answer"}).is(plan.Collecting, plan.Collect)
	b.verdict(spool.CausePlatform, "left no exit record")
}
