package status

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const bundle = "0x1a2b3c4d5e6f708192a3b4c5d6e7f809"

func TestExplainSaysWhatChangedOfLinkedData(t *testing.T) {
	t.Parallel()
	said := ExplanationText(heartbeat.Explanation{Bundle: bundle, Phase: plan.Running, Notes: []string{"The data of a changed.", "The data of b\x1b changed."}}, noon)
	for _, want := range []string{"  note       The data of a changed.\n", "  note       The data of b\\u001b changed.\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("%s\nwant %q", said, want)
		}
	}
}

func TestExplainSaysWhatWasUsed(t *testing.T) {
	t.Parallel()
	u := spool.Usage{UserSeconds: 100, SystemSeconds: 20, MemoryPeak: 210 << 20, DiskBytes: 3 << 30}
	want := "  used       2m0s of processor time, 210m of memory at most, 3g in its working directory"
	if said := ExplanationText(heartbeat.Explanation{Bundle: bundle, Phase: plan.Done, Used: &u}, noon); !strings.Contains(said, want+"\n") {
		t.Errorf("%s\nwant %q", said, want)
	}
	u.GPU = spool.GPUUsage{BusyMean: .456, MemoryPeak: 70 << 30, Samples: 12}
	want += "; its GPUs busy for 46% of the time, with 70g of their memory at most\n"
	if said := ExplanationText(heartbeat.Explanation{Bundle: bundle, Phase: plan.Done, Used: &u}, noon); !strings.Contains(said, want) {
		t.Errorf("%s\nwant %q", said, want)
	}
}

func TestExplainSaysHowTheContainerWasRun(t *testing.T) {
	t.Parallel()
	ran := spool.Ran{Runtime: runtimes.Apptainer, Reason: "the built-in runtime cannot be used: this node lacks the program bwrap"}
	want := "  container  apptainer: the built-in runtime cannot be used: this node lacks the program bwrap\n"
	if said := ExplanationText(heartbeat.Explanation{Bundle: bundle, Phase: plan.Done, Ran: ran}, noon); !strings.Contains(said, want) {
		t.Errorf("%s\nwant %q", said, want)
	}
}
