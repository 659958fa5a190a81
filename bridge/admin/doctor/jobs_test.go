package doctor_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// TestMain lets this program be the worker of the tests' jobs.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "probe" && os.Args[2] == "--meet" {
		if err := (probe.Meeting{Dir: os.Args[3]}).Attend(context.Background(), probe.Report{Node: "n1"}, time.Now); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// elsewhere submits jobs to nodes that do not see this host's directories.
type elsewhere struct{ doctor.Slurm }

func (e elsewhere) Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error) {
	r.Script = strings.ReplaceAll(r.Script, "/.doctor-", "/nonexistent/.doctor-")
	return e.Slurm.Submit(ctx, r)
}

func TestJobMeetsThisHostAndLeavesNothing(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, slurmtest.NewSite())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shared := t.TempDir()
	jobs := doctor.Jobs{Slurm: k, Shared: shared, Settle: 50 * time.Millisecond, ObserveEvery: 20 * time.Millisecond, Now: time.Now}
	q := plan.Queue{Name: "cpu", Partition: "cpu", Scratch: "/tmp"}
	out := jobs.Run(t.Context(), q, 0, sbatch.Program{Path: self})
	if out.Err != nil || out.Report == nil || out.Report.Disk != "" || out.RoundTripErr != nil || out.RoundTrip.Took <= 0 || !out.RoundTrip.Known || out.RoundTrip.Clock.Magnitude() != 0 || out.Report.Lost != "" || out.Report.Locks == nil || out.Job.Nodes != "n1" || out.Machine == "" {
		t.Errorf("%+v", out)
	}

	out = jobs.Run(t.Context(), q, 0, sbatch.Program{Path: "/nonexistent"})
	if out.Err != nil || out.Report != nil || !strings.Contains(out.Output, "/nonexistent") || out.Job.State != sbatch.StateCompleted {
		t.Errorf("a worker that is not there: %+v", out)
	}

	away := jobs
	away.Slurm = elsewhere{jobs.Slurm}
	out = away.Run(t.Context(), q, 0, sbatch.Program{Path: self})
	if out.Err != nil || out.Report != nil || out.Machine != "" || out.Job.State != sbatch.StateFailed || out.Job.Nodes != "n1" {
		t.Errorf("nodes that do not see the directory: %+v", out)
	}

	q.Partition = "nosuch"
	if out = jobs.Run(t.Context(), q, 0, sbatch.Program{Path: self}); out.Err == nil || !strings.Contains(out.Err.Error(), "Invalid partition name") {
		t.Errorf("a refused job: %+v", out)
	}
	if left, err := os.ReadDir(shared); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestJobThatDoesNotBeginIsCancelled(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, slurmtest.NewSite())
	k.Do(func(_ time.Time, c *slurmtest.Controller) {
		c.AddPartition(slurmtest.Partition{Name: "down", Nodes: []string{"n1"}, State: "DOWN"})
	})
	jobs := doctor.Jobs{Slurm: k, Shared: t.TempDir(), BeginWithin: 500 * time.Millisecond, ObserveEvery: 20 * time.Millisecond, Now: time.Now}
	out := jobs.Run(t.Context(), plan.Queue{Name: "q", Partition: "down"}, 0, sbatch.Program{Path: "/bin/true"})
	if !out.NotBegun || out.Job.Reason == "" {
		t.Errorf("%+v", out)
	}
	s, err := k.Observe(t.Context(), time.Now())
	if err != nil || len(s.Jobs) != 1 || s.Jobs[0].State != sbatch.StateCancelled {
		t.Errorf("%+v, %v", s.Jobs, err)
	}
}

// A node that runs the job and is slow to start the worker is not a broken one.
func TestJobThatIsSlowToReportIsToldFromOneThatFailed(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, slurmtest.NewSite())
	slow := filepath.Join(t.TempDir(), "cl-worker")
	testenv.WriteProgram(t, slow, []byte("#!/bin/sh\nsleep 600\n"))
	jobs := doctor.Jobs{Slurm: k, Shared: t.TempDir(), BeginWithin: 5 * time.Second, ObserveEvery: 20 * time.Millisecond, Now: time.Now}
	q := plan.Queue{Name: "q", Partition: "cpu"}
	out := jobs.Run(t.Context(), q, 0, sbatch.Program{Path: slow})
	if out.Job.State != sbatch.StateRunning || out.NotBegun || out.Waited <= jobs.BeginWithin {
		t.Errorf("%+v", out)
	}
	if got := said(doctor.Node(q, doctor.Place{Shared: "/shared", Architecture: out.Machine}, out)...); !strings.HasPrefix(got, "warning queue.q.job: job ") || !strings.Contains(got, " on n1 was RUNNING for ") {
		t.Error(got)
	}
	s, err := k.Observe(t.Context(), time.Now())
	if err != nil || len(s.Jobs) != 1 || !s.Jobs[0].State.Ended() && s.Jobs[0].State != sbatch.StateCompleting {
		t.Errorf("%+v, %v", s.Jobs, err)
	}
}
