package ledger_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

var claimed = time.Unix(1_800_000_000, 0).UTC()

// in returns a time some seconds after the claim.
func in(seconds int) time.Time { return claimed.Add(time.Duration(seconds) * time.Second) }

// endedRow returns a row whose second attempt has ended after the first one failed.
func endedRow(bundle string, generation int64) plan.Row {
	return plan.Row{
		Bundle: bundle, Queue: "gpu", Phase: plan.Collecting, Reason: "the attempt ended", OfferedAt: claimed, DecidedAt: in(400),
		Run:       &codalab.RunBundle{UUID: bundle, OwnerID: "0xann"},
		Resources: codalab.Resources{CPUs: 4, GPUs: 2, Memory: 8 << 30},
		Spent: plan.Spent{StagedAt: in(20), Last: &plan.Charge{
			Generation: generation, Attempt: 1, Job: 11, Node: "n1", Submitted: in(30), Start: in(60), End: in(70), Cause: spool.CausePlatform,
		}},
		Attempt: plan.Attempt{
			Number: 2, Generation: generation + 1, SubmittedAt: in(80), EndedAt: in(400), Begun: &spool.Started{Node: "n2", At: in(101)},
			Job: sbatch.Job{ID: 12, State: sbatch.StateCompleted, Nodes: "n2", Start: in(100)},
			Exit: &spool.Exit{Cause: spool.CauseSucceeded, CommandStarted: in(110), CommandEnded: in(390), Usage: spool.Usage{
				UserSeconds: 500.5, SystemSeconds: 1.5, MemoryPeak: 1 << 30, GPU: spool.GPUUsage{BusyMean: .125, MemoryPeak: 1 << 31, Samples: 4},
			}},
		},
	}
}

func charges(t *testing.T, l *ledger.Ledger, since, until time.Time) []ledger.Charge {
	t.Helper()
	var found []ledger.Charge
	err := l.EachCharge(t.Context(), since, until, func(c ledger.Charge) error {
		found = append(found, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func chargedOnce(t *testing.T, where string) {
	l := open(t, where)
	row := endedRow("0x1", 7)
	second := row.Attempt
	row.Attempt, row.Phase = plan.Attempt{Number: 1}, plan.Staging // the decision that gives the first attempt up
	row = save(t, l, row)[0]
	row.Attempt, row.Phase = second, plan.Collecting
	row = save(t, l, row)[0]
	for _, phase := range []plan.Phase{plan.Finalizing, plan.Done} {
		row.Phase = phase
		row = save(t, l, row)[0]
	}
	want := []ledger.Charge{
		{
			Bundle: "0x1", Attempt: 1, Owner: "0xann", Queue: "gpu", Job: 11, Node: "n1", Submitted: in(30), Started: in(60), Ended: in(70),
			Staging: 20 * time.Second, CPUs: 4, GPUs: 2, MemoryBytes: 8 << 30, GPUBusy: -1, Cause: spool.CausePlatform,
		},
		{
			Bundle: "0x1", Attempt: 2, Owner: "0xann", Queue: "gpu", Job: 12, Node: "n2", Submitted: in(80), Started: in(100), Ended: in(400),
			Command: 280 * time.Second, CPUs: 4, GPUs: 2, MemoryBytes: 8 << 30, CPUTime: 502 * time.Second, MemoryPeak: 1 << 30,
			GPUBusy: .125, GPUMemoryPeak: 1 << 31, Cause: spool.CauseSucceeded,
		},
	}
	same(t, "charges", want, charges(t, l, claimed, in(401)))
	same(t, "charges from the second end on", want[1:], charges(t, l, in(400), in(401)))
	same(t, "charges before the second end", want[:1], charges(t, l, claimed, in(400)))
	of, err := l.ChargesOf(t.Context(), "0x0", "0x1")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "charges of the bundle", want, of)
	if of, err := l.ChargesOf(t.Context()); len(of) > 0 || err != nil {
		t.Errorf("charges of no bundle: %v, %v", of, err)
	}
}

func chargesStay(t *testing.T, where string) {
	l := open(t, where)
	l.KeepHistory = time.Hour
	for i, bundle := range []string{"0x1", "0x2"} {
		row := endedRow(bundle, int64(10*i+1))
		shift := time.Duration(i) * 2 * time.Hour
		row.EndedAt, row.DecidedAt = row.EndedAt.Add(shift), row.DecidedAt.Add(shift)
		row = save(t, l, row)[0]
		if err := l.Delete(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		if found := charges(t, l, claimed, in(1_000_000)); len(found) != 1 || found[0].Bundle != bundle {
			t.Errorf("after the end of %s: %+v", bundle, found)
		}
	}
}
