package bridge

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// smallSite is a Slurm that accepts a job of at most a GiB, and does not answer some questions before that.
type smallSite struct {
	sbatch.Scheduler

	silent int // so many questions are not answered
	asked  int
}

func (s *smallSite) Try(ctx context.Context, r sbatch.Request) error {
	s.asked++
	switch {
	case s.silent > 0:
		s.silent--
		<-ctx.Done()
		return &sbatch.Error{Op: "try", Message: "it took too long", Err: ctx.Err()}
	case r.MemoryMiB > 1<<10:
		return &sbatch.Error{Op: "try", Message: "Requested node configuration is not available", Refused: true}
	}
	return nil
}

func TestOnlyAnswersOfSlurmAreRemembered(t *testing.T) {
	t.Parallel()
	slurm := &smallSite{silent: 1}
	known := &capacity{}
	known.init()
	known.setNodes(nil, map[string]sbatch.NodeSizes{"cpu": {{CPUs: 8, Memory: 1 << 30}}}, nil)
	tried := trials{scheduler: slurm, inForce: following(plan.Policy{Queues: map[string]plan.Queue{"cpu": {Name: "cpu"}}}), capacity: known, now: time.Now}
	row := plan.Row{Bundle: "0x1", Queue: "cpu", Run: &codalab.RunBundle{}}
	row.Resources = codalab.Resources{CPUs: 1, Memory: 300 << 30}

	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("Slurm is slow"))
	if refusal := tried.tooLarge(ctx, row); refusal != "" {
		t.Errorf("no answer is taken for the refusal %q", refusal)
	}
	for range 2 {
		if refusal := tried.tooLarge(t.Context(), row); refusal != "Requested node configuration is not available" {
			t.Errorf("refusal %q", refusal)
		}
	}
	if slurm.asked != 3 { // the one without an answer; the request, and the smallest job of the queue
		t.Errorf("Slurm was asked %d times", slurm.asked)
	}
}

// What the site has changed of a job is asked of Slurm, and an answer that lacks that decides nothing.
func TestJobThatCanNeverStartIsComparedWithItsRequest(t *testing.T) {
	t.Parallel()
	now := sbatch.Details{Partition: "short"}
	var failure error
	tried := trials{scheduler: &smallSite{}, inForce: following(plan.Policy{Queues: map[string]plan.Queue{"cpu": {Name: "cpu", Partition: "batch"}}}), now: time.Now}
	row := plan.Row{Bundle: "0x1", Queue: "cpu", Run: &codalab.RunBundle{}, Attempt: plan.Attempt{Job: sbatch.Job{ID: 7}}}
	if c := tried.askAbout(t.Context(), row); c != (plan.Canary{}) {
		t.Errorf("nobody describes jobs: %+v", c)
	}
	tried.describe = func(_ context.Context, id sbatch.JobID) (sbatch.Details, error) {
		if id != 7 {
			t.Errorf("job %d was asked for", id)
		}
		return now, failure
	}
	if c := tried.askAbout(t.Context(), row); c != (plan.Canary{SiteChanges: "its partition is short instead of batch"}) {
		t.Errorf("%+v", c)
	}
	failure = errors.New("no answer")
	if c := tried.askAbout(t.Context(), row); c != (plan.Canary{Failure: "no answer"}) {
		t.Errorf("%+v", c)
	}
	row.Job.ID = 0
	if c := tried.askAbout(t.Context(), row); c != (plan.Canary{}) {
		t.Errorf("without a job: %+v", c)
	}
}
