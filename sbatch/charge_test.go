package sbatch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The lines of Slurm 22.05.8, with an energy plugin's numbers in two of them.
const accountedCharges = `1866|COMPLETED|1795864311|1795864313|2|billing=1,cpu=1,mem=500M,node=1|
1867|CANCELLED by 1001|1795864320|1795864380|55|billing=4,cpu=4,gres/gpu=2,gres/gpu:a100=2,mem=8G,node=1|7200
1867|REQUEUED|1795864100|1795864200|100|billing=4,cpu=4,gres/gpu:a100=1,gres/gpu:v100=1,mem=8G|18446744073709551614
1868|FAILED|1795864330|1795864330|0||0
1869|CANCELLED by 0|None|1795864400|0||
1870|RUNNING|1795864330|Unknown|70|billing=1,cpu=1,mem=500M,node=1|0
`

func TestAllocationsAreReadFromAccounting(t *testing.T) {
	t.Parallel()
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	want := []Charge{
		{ID: 1866, State: StateCompleted, Start: at(1795864311), End: at(1795864313), Elapsed: 2 * time.Second, CPUs: 1},
		{ID: 1867, State: StateCancelled, Start: at(1795864320), End: at(1795864380), Elapsed: 55 * time.Second, CPUs: 4, GPUs: 2, EnergyJoules: 7200},
		{ID: 1867, State: StateRequeued, Start: at(1795864100), End: at(1795864200), Elapsed: 100 * time.Second, CPUs: 4, GPUs: 2},
	}
	got, err := parseCharges(accountedCharges)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// A sum over a part of an answer would be a wrong bill.
func TestCutAccountingIsNoBill(t *testing.T) {
	t.Parallel()
	for _, out := range []string{
		strings.TrimSuffix(accountedCharges, "\n"),
		accountedCharges + "1871|COMPLETED|17958",
		"sacct: welcome to the cluster\n" + accountedCharges,
		"1866|COMPLETED|1795864311|1795864313|two|cpu=1|\n",
		"x|COMPLETED|1795864311|1795864313|2|cpu=1|\n",
	} {
		if got, err := parseCharges(out); err == nil {
			t.Errorf("%q was read as %+v", out, got)
		}
	}
}
