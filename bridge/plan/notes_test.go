package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

const (
	sinceFirst = "The data of dependency data (link to /data/x) has changed since it was first used here on 2026-11-20: 1 file (1 bytes) then, 2 files (2 bytes) now."
	underway   = "The data of dependency data (link to /data/x) changed while the bundle was under way: 2 files (2 bytes) then, 3 files (3 bytes) now."
)

func linkedInputs(note string) spool.Inputs {
	return spool.Inputs{SIF: "/x.sif", Dependencies: []spool.Dependency{
		{ChildPath: "copied", Source: "/shared/cache/1"},
		{ChildPath: "data", Source: "/data/x", InPlace: true, Link: &spool.Link{Path: "/data/x", Note: note}},
	}}
}

func TestChangeOfLinkedDataIsSaidWhileTheBundleIsUnderWay(t *testing.T) {
	t.Parallel()
	for phase, want := range map[plan.Phase]string{
		plan.Staging:    "Image and dependencies are ready; waiting to be submitted to Slurm. " + sinceFirst,
		plan.Submitting: "Being submitted to Slurm. " + sinceFirst,
		plan.Queued:     "Slurm job 7 waits: Slurm has not considered it yet. " + sinceFirst,
		plan.Running:    "Running job in container (Slurm job 7). " + sinceFirst,
		plan.Collecting: "Uploading results. " + sinceFirst,
		plan.Finalizing: "Finalizing bundle. " + sinceFirst,
		plan.Done:       "Finished",
	} {
		r := rowIn(phase)
		inputs := linkedInputs(sinceFirst)
		r.Staged = &inputs
		if got := r.RunStatus(); got != want {
			t.Errorf("%s: %q, want %q", phase, got, want)
		}
		inputs = linkedInputs("")
		if got := r.RunStatus(); len(got) > 80 {
			t.Errorf("%s: nothing has changed, and it says %q", phase, got)
		}
	}
}

func TestChangeOfLinkedDataIsInTheHistory(t *testing.T) {
	t.Parallel()
	p := policy()
	r := rowIn(plan.Staging)
	r.Staged = nil
	r, _ = p.Next(epoch, r, plan.News{Staged: &plan.StageEnd{Inputs: linkedInputs(sinceFirst)}})
	if want := "image and dependencies are ready. " + sinceFirst; r.Reason != want || !r.DecidedAt.Equal(epoch) {
		t.Errorf("reason %q at %v, want %q", r.Reason, r.DecidedAt, want)
	}
	r = rowIn(plan.Collecting)
	r, effects := p.Next(epoch, r, plan.News{DataChanged: underway})
	if got := r.RunStatus(); got != "Uploading results. "+underway {
		t.Errorf("run_status %q", got)
	}
	if len(effects) != 1 || effects[0].Kind != plan.Collect {
		t.Errorf("effects %v", effects)
	}
	r, _ = p.Next(epoch.Add(time.Second), r, plan.News{Collected: &plan.Outcome{}})
	if want := "the results are with the server. " + underway; r.Phase != plan.Finalizing || r.Reason != want {
		t.Errorf("%s, reason %q, want %q", r.Phase, r.Reason, want)
	}
}
