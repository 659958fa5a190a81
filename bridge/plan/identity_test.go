package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// offering is news that the server offers a bundle with the tests' UUID.
func offering(change func(*codalab.RunBundle)) plan.News {
	run := *rowIn(plan.Claiming).Run
	run.Metadata = codalab.Metadata{"created": int64(100)}
	if change != nil {
		change(&run)
	}
	return plan.News{Messages: []codalab.Message{{Type: codalab.MessageRun, Bundle: &run}}}
}

// another has offers of other bundles with the tests' UUID.
func another() map[string]plan.News {
	return map[string]plan.News{
		"of another owner":      offering(func(b *codalab.RunBundle) { b.OwnerID = "2" }),
		"made later":            offering(func(b *codalab.RunBundle) { b.Metadata["created"] = int64(101) }),
		"with another command":  offering(func(b *codalab.RunBundle) { b.Command = "rm -r /" }),
		"different in all ways": offering(func(b *codalab.RunBundle) { b.OwnerID, b.Command, b.Metadata["created"] = "2", "id", int64(200) }),
	}
}

// madeAt100 is a row of a bundle that was made at that time.
func madeAt100(phase plan.Phase) plan.Row {
	r := rowIn(phase)
	run := *r.Run
	run.Metadata = codalab.Metadata{"created": int64(100)}
	r.Run = &run
	return r
}

// Clients choose the UUIDs of bundles. A bundle with another owner, time or command under the same UUID is another
// bundle, and gets nothing of the first one.
func TestI9UUIDThatComesBackIsAnotherBundle(t *testing.T) {
	t.Parallel()
	for name, offer := range another() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, phase := range plan.Phases() {
				row := madeAt100(phase)
				b := given(t, row).decide(offer)
				switch {
				case b.row.Reportable() || !b.row.Dropped:
					t.Errorf("in %s: the row is %s and reported: %t; want it given up", phase, b.row.Phase, b.row.Reportable())
				case row.InFlight() && b.row.Phase != plan.Stopping && b.row.Phase != plan.Done,
					!row.InFlight() && b.row.Phase != plan.Done:
					t.Errorf("in %s: the row is %s", phase, b.row.Phase)
				}
				for _, k := range b.kinds() {
					if k == plan.Claim || k == plan.Collect {
						t.Errorf("in %s: wants %s", phase, k)
					}
				}
			}
		})
	}
}

// The files of the first bundle go only after its job has ended, and nothing is delivered.
func TestI9JobOfABundleThatWasReplacedIsStoppedFirst(t *testing.T) {
	t.Parallel()
	offer := another()["of another owner"]
	b := given(t, madeAt100(plan.Running)).decide(offer).is(plan.Stopping, plan.Cancel)
	exit := &spool.Exit{Token: "token-1", Cause: spool.CausePlatform, Terminated: true}
	b.at(early).decide(read(early, started(), exit))
	b.at(late).decide(seen(late, job(sbatch.StateCancelled))).is(plan.Done, plan.Release)
	b.decide(plan.News{Released: &plan.Outcome{}}).is(plan.Done, plan.Forget)
}

// Unknown values do not distinguish bundles: some servers do not send the time.
func TestI9SameBundleThatIsOfferedAgainGetsItsOwnEnd(t *testing.T) {
	t.Parallel()
	for _, offer := range []plan.News{
		offering(nil),
		offering(func(b *codalab.RunBundle) { b.Metadata = nil }),
	} {
		given(t, madeAt100(plan.Done)).decide(offer).is(plan.Collecting, plan.Claim, plan.Collect)
		given(t, madeAt100(plan.Running)).decide(offer).is(plan.Running, plan.Claim)
	}
}

// After an old copy of the ledger was accepted, a row takes up jobs of its own bundle only.
func TestI9JobOfAnEarlierBundleOfItsUUIDIsNotTakenUp(t *testing.T) {
	t.Parallel()
	earlier, row := madeAt100(plan.Submitting), rowIn(plan.Staging)
	run := *row.Run
	run.OwnerID = "2"
	row.Run, row.Attempt = &run, plan.Attempt{}
	j := sbatch.Job{ID: 3, State: sbatch.StateRunning, Nodes: "n1", Comment: policy().Request(earlier).Comment}
	stamp, ok := plan.StampOf(j)
	if !ok || row.MayTakeUp(stamp) {
		t.Errorf("stamp %+v (%t) of another owner's bundle may be taken up", stamp, ok)
	}
	given(t, row).decide(plan.News{Found: &plan.Found{Stamp: stamp, Job: j}}).is(plan.Staging, plan.Stage)
	_, overdue, err := policy().OrphanJobs(epoch.Add(time.Hour), sbatch.Snapshot{Jobs: []sbatch.Job{j}}, plan.ByBundle([]plan.Row{row}), noTask, 10, plan.OrphanJobs{3: epoch})
	if err != nil || len(overdue) != 1 {
		t.Errorf("overdue %v, %v, want the job cancelled: no row has it", overdue, err)
	}
}

// The digits in the name are for people: bundles may share them.
func TestI2SubmissionsOfBundlesThatShareDigitsHaveOtherNames(t *testing.T) {
	t.Parallel()
	one, two := rowIn(plan.Staging), rowIn(plan.Staging)
	two.Bundle = uuid[:14] + "ffffffffffffffffffff"
	batch, _ := policy().Batch(epoch, plan.Waiting{Rows: []*plan.Row{&one, &two}, MaySubmit: map[string]int{"cpu": 2}, Budget: 2}, plan.Turns{}, 7)
	if len(batch) != 2 || batch[0].SubmissionName == batch[1].SubmissionName {
		t.Fatalf("names %q and %q", batch[0].SubmissionName, batch[1].SubmissionName)
	}
	// Nor is a job of one bundle the other's, without a comment.
	j := sbatch.Job{ID: 7, Name: string(batch[0].SubmissionName), State: sbatch.StateRunning, Nodes: "n1"}
	second := batch[1]
	second.Prepared, second.SubmittedAt = true, epoch
	b := given(t, second).decide(plan.News{Observation: &plan.Observation{SubmissionName: second.SubmissionName, Asked: epoch.Add(early), Jobs: []sbatch.Job{j}}})
	if b.row.Job.ID != 0 {
		t.Errorf("the row has job %s, which is another bundle's", b.row.Job.ID)
	}
}
