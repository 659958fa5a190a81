package sbatch

import (
	"fmt"
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
1461_1|CANCELLED by 1001|1796002233|1796002239|6|billing=1,cpu=1,mem=16M,node=1|
1461_[8-9%3]|CANCELLED by 1001|None|1796002250|0||
1461_0|PENDING|Unknown|Unknown|0|billing=1,cpu=1,mem=16M,node=1|
`

func TestAllocationsAreReadFromAccounting(t *testing.T) {
	t.Parallel()
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	want := []Charge{
		{ID: 1866, State: StateCompleted, Start: at(1795864311), End: at(1795864313), Elapsed: 2 * time.Second, CPUs: 1},
		{ID: 1867, State: StateCancelled, Start: at(1795864320), End: at(1795864380), Elapsed: 55 * time.Second, CPUs: 4, GPUs: 2, EnergyJoules: 7200},
		{ID: 1867, State: StateRequeued, Start: at(1795864100), End: at(1795864200), Elapsed: 100 * time.Second, CPUs: 4, GPUs: 2},
		{ID: JobID(1461).Task(1), State: StateCancelled, Start: at(1796002233), End: at(1796002239), Elapsed: 6 * time.Second, CPUs: 1},
	}
	got, err := parseCharges(accountedCharges)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// The lines of Slurm 22.05.8 on nodes with a sensor of acct_gather_energy/pm_counters: without PrologFlags=Contain, with it,
// with it and a sensor that began anew, and on a node without one. Job 5 was put back into the queue, and job 6 still runs.
const measuredCharges = `1|COMPLETED|1795891623|1795891631|8|billing=1,cpu=1,mem=50M,node=1|
1.batch|COMPLETED|1795891623|1795891631|8|cpu=1,mem=50M,node=1|2500
1.0|COMPLETED|1795891630|1795891631|1|cpu=1,mem=20M,node=1|100
2|COMPLETED|1795891677|1795891686|9|billing=1,cpu=1,energy=2500,mem=50M,node=1|2500
2.batch|COMPLETED|1795891677|1795891686|9|cpu=1,mem=50M,node=1|2501
2.extern|COMPLETED|1795891677|1795891686|9|billing=1,cpu=1,mem=50M,node=1|2500
2.0|COMPLETED|1795891685|1795891686|1|cpu=1,mem=20M,node=1|0
3|COMPLETED|1795891690|1795891694|4|billing=1,cpu=1,energy=18446744073709546656,mem=50M,node=1|18446744073709546656
3.batch|COMPLETED|1795891690|1795891694|4|cpu=1,mem=50M,node=1|18446744073709546656
3.extern|COMPLETED|1795891690|1795891694|4|billing=1,cpu=1,mem=50M,node=1|18446744073709546656
4|COMPLETED|1795891697|1795891699|2|billing=1,cpu=1,mem=50M,node=1|
4.batch|COMPLETED|1795891697|1795891699|2|cpu=1,mem=50M,node=1|
4.extern|COMPLETED|1795891697|1795891699|2|billing=1,cpu=1,mem=50M,node=1|
5|REQUEUED|1795891700|1795891710|10|billing=1,cpu=1,mem=50M,node=1|
5.batch|CANCELLED|1795891700|1795891710|10|cpu=1,mem=50M,node=1|70
5|COMPLETED|1795891800|1795891810|10|billing=1,cpu=1,mem=50M,node=1|
5.batch|COMPLETED|1795891800|1795891810|10|cpu=1,mem=50M,node=1|80
6|RUNNING|1795891800|Unknown|10|billing=1,cpu=1,mem=50M,node=1|
6.batch|RUNNING|1795891800|Unknown|10|cpu=1,mem=50M,node=1|0
7_2|COMPLETED|1795891800|1795891810|10|billing=1,cpu=1,mem=50M,node=1|
7_2.batch|COMPLETED|1795891800|1795891810|10|cpu=1,mem=50M,node=1|90
`

func TestEnergyIsOfTheAllocationOrOfItsLongestStep(t *testing.T) {
	t.Parallel()
	charges, err := parseCharges(measuredCharges)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range charges {
		got = append(got, fmt.Sprintf("%s %s %d", c.ID, c.State, c.EnergyJoules))
	}
	want := []string{"1 COMPLETED 2500", "2 COMPLETED 2500", "3 COMPLETED 0", "4 COMPLETED 0", "5 REQUEUED 70", "5 COMPLETED 80", "7_2 COMPLETED 90"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := parseCharges("1x.batch|COMPLETED|1|2|1||5\n"); err == nil {
		t.Error("a step of no job was read")
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
