package sbatch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Each Slurm says in its own words when a job would begin.
func TestExpectedStartIsThatOfSlurmsPlan(t *testing.T) {
	t.Parallel()
	bare := testenv.BareSlurm(t)
	c := &sbatch.Client{Bin: bare.Bin, Conf: bare.Conf}
	request := sbatch.Request{Name: "expected", Script: "#!/bin/sh\nsleep 1000\n", Dir: "/", Output: "/dev/null", MemoryMiB: 100, Time: time.Minute}
	expect := func(what string, at time.Time) {
		t.Helper()
		got, err := c.Expect(t.Context(), request)
		if err != nil || got == nil || got.Nodes != slurmcluster.BareNode || got.Partition != "" && got.Partition != slurmcluster.BarePartition {
			t.Fatalf("%s: %+v, %v", what, got, err)
		}
		t.Logf("%s: %+v", what, *got)
		if off := got.Start.Sub(at); off < -time.Minute || off > 2*time.Minute { // the plan is made of whole minutes
			t.Errorf("%s: %+v, want about %s", what, *got, at.UTC())
		}
	}
	expect("on an idle node", time.Now())
	if left, err := c.Observe(t.Context(), time.Now()); err != nil || len(left.Jobs) > 0 {
		t.Errorf("it left %+v, %v", left.Jobs, err)
	}
	taker := request
	taker.Name, taker.Time, taker.Extra = "taker", 3*time.Hour, []string{"--exclusive"}
	id, err := c.Submit(t.Context(), taker)
	testenv.Must(t, err)
	job := await(t, func() []sbatch.Job {
		seen, err := c.Observe(t.Context(), time.Now())
		testenv.Must(t, err)
		return seen.Jobs
	}, in(sbatch.StateRunning))
	if job.ID != id {
		t.Fatalf("%+v, want job %d", job, id)
	}
	expect("on a node that another job has for three hours", job.Start.Add(3*time.Hour))
	request.Partition = "nosuch"
	var refused *sbatch.Error
	if got, err := c.Expect(t.Context(), request); !errors.As(err, &refused) || !refused.Refused || got != nil {
		t.Errorf("in an unknown partition: %+v, %v", got, err)
	}
}
