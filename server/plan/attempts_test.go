package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestRemoteHistoryNamesTheNodeAndTheJobOfEachAttempt(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	claimed := Bundle{Type: codalab.TypeRun, State: codalab.StateRunning, Metadata: codalab.Metadata{"remote_history": []string{"login1"}}}
	report := func(attempts ...string) codalab.RunReport {
		return codalab.RunReport{State: codalab.StateRunning, Remote: "n3", Attempts: attempts}
	}
	var many []string
	for i := range 2 * mostAttempts {
		many = append(many, fmt.Sprint("Slurm job ", i))
	}
	for name, c := range map[string]struct {
		reports []codalab.RunReport
		want    []string
	}{
		"CodaLab's own worker":      {[]codalab.RunReport{report()}, []string{"login1"}},
		"the job waits, and begins": {[]codalab.RunReport{report("Slurm job 7"), report("n3 (Slurm job 7)")}, []string{"login1", "n3 (Slurm job 7)"}},
		"a second attempt": {
			[]codalab.RunReport{report("n3 (Slurm job 7)"), report("n3 (Slurm job 7)", "n4 (Slurm job 9)")},
			[]string{"login1", "n3 (Slurm job 7)", "n4 (Slurm job 9)"},
		},
		"a hostile worker": {[]codalab.RunReport{report("n3\x1b[2J\nx")}, []string{"login1", `n3\u001b[2J x`}},
		"many":             {[]codalab.RunReport{report(many...)}, append([]string{"login1"}, many[mostAttempts:]...)},
	} {
		b := claimed
		for _, r := range c.reports {
			b = b.ApplyReport(r, now, false)
		}
		if got := b.Metadata.Strings("remote_history"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := claimed.Metadata.Strings("remote_history"); !slices.Equal(got, []string{"login1"}) {
		t.Errorf("the bundle before the report has %q", got)
	}
}
