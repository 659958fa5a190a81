package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestRunTellsWhatItRunsOn(t *testing.T) {
	t.Parallel()
	digest := codalab.FileDigest + strings.Repeat("a", 64)
	ran := spool.Ran{Runtime: runtimes.Apptainer, RuntimeVersion: "1.3.4", Worker: "v1", Cluster: "big", GPUs: []string{"NVIDIA H200"}, GPUDriver: "570.1"}
	r := rowIn(plan.Running)
	r.SlurmVersion = "24.11.5"
	r.Staged.Dependencies = []spool.Dependency{{ChildPath: "kept"}, {ChildPath: "data", Digest: digest}}
	r.Status = &spool.Status{Ran: ran}
	want := &codalab.Platform{
		Site: "big", GPUs: []string{"NVIDIA H200"}, GPUDriver: "570.1",
		Software: []codalab.Software{{Name: "cl-slurm", Version: "v1"}, {Name: "Slurm", Version: "24.11.5"}, {Name: "apptainer", Version: "1.3.4"}},
	}
	if diff := cmp.Diff(want, r.Report("w").Platform); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	r.Status, r.Exit, r.Verdict = nil, &spool.Exit{Ran: ran}, &plan.Verdict{}
	want.Inputs = []codalab.InputDigest{{ChildPath: "data", Digest: digest}}
	if diff := cmp.Diff(want, r.Report("w").Platform); diff != "" {
		t.Errorf("at its end (-want +got):\n%s", diff)
	}
	r.Begun = nil // the next attempt
	if got := r.Report("w").Platform; got != nil {
		t.Errorf("before an attempt has begun: %+v", got)
	}
}

// An older worker tells its runtime alone, and a stand-alone worker has no Slurm.
func TestPlatformIsWhatIsKnown(t *testing.T) {
	t.Parallel()
	r := rowIn(plan.Running)
	for name, status := range map[string]*spool.Status{"no status yet": nil, "of an older worker": {Ran: spool.Ran{Runtime: runtimes.Builtin, Reason: "r"}}} {
		r.Status = status
		if got := r.Report("w").Platform; got == nil || !got.IsZero() {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestVersionOfSlurmIsThatOfTheAttemptsBegin(t *testing.T) {
	t.Parallel()
	p, r := policy(), rowIn(plan.Queued)
	p.SlurmVersion = "24.11.5"
	started := &spool.Started{Token: "t", Node: "n1", Job: r.Job.ID.String(), At: epoch}
	news := plan.News{Records: &plan.Records{Attempt: r.Attempt.Number, Records: spool.Records{Started: started}}}
	r, _ = p.Next(epoch, r, news)
	p.SlurmVersion = "25.05.1"
	r, _ = p.Next(epoch, r, news)
	if r.Begun == nil || r.SlurmVersion != "24.11.5" {
		t.Errorf("begun %v, Slurm %q", r.Begun, r.SlurmVersion)
	}
}
