package pages

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestChartsShowGapsAndLimits(t *testing.T) {
	t.Parallel()
	n := func(f float64) *float64 { return &f }
	point := func(at, mean, most float64) codalab.UsagePoint {
		return codalab.UsagePoint{Time: 1000 + at, Seconds: 5, CPUs: n(mean), CPUsMax: n(most)}
	}
	u := codalab.Usage{
		SectionSeconds: 10, Points: []codalab.UsagePoint{point(0, 1, 2), point(10, 3, 4), point(60, 0, 0)}, Whole: point(0, 2, 4),
		Limits: codalab.UsageLimits{CPUs: 8, Memory: 1 << 30},
	}
	got, err := json.Marshal(newCharts(u))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"x":"seconds","curves":[{"name":"CPUs","x":[5,15,55,65],"y":[1,3,null,0],` +
		`"more":[{"name":"highest","y":[2,4,null,0]},{"name":"limit","y":[8,8,8,8]}]}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTimeOfARunIsDrawnInAUnitThatFits(t *testing.T) {
	t.Parallel()
	for last, want := range map[float64]string{0: "seconds", 299: "seconds", 300: "minutes", 7199: "minutes", 7200: "hours", 14 * 86400: "days"} {
		u := codalab.Usage{Points: []codalab.UsagePoint{{Time: 7}, {Time: 7 + last}}}
		if got, _ := timeUnit(u); got != want {
			t.Errorf("%v s: %s", last, got)
		}
	}
	if got := newCharts(codalab.Usage{}); len(got.Curves) != 0 || got.Curves == nil {
		t.Errorf("of nothing: %+v", got)
	}
}
