package plan_test

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestLowWaterIsASizeOrAPartOfTheDisk(t *testing.T) {
	t.Parallel()
	const g = 1 << 30
	files := func(free int64, freeFiles, files int64) spool.Space {
		return spool.Space{Free: free, Total: 1000 * g, FreeFiles: freeFiles, Files: files}
	}
	for name, test := range map[string]struct {
		low    plan.LowWater
		space  spool.Space
		before bool
		want   string
	}{
		"none":                    {plan.LowWater{}, spool.Space{}, true, ""},
		"enough":                  {plan.LowWater{Bytes: 50 * g}, spool.Space{Free: 50 * g, Total: 1000 * g}, false, ""},
		"too little":              {plan.LowWater{Bytes: 50 * g}, spool.Space{Free: 50*g - 1, Total: 1000 * g}, false, "the site's disk has 50.0g free, below its low water of 50g"},
		"not enough yet":          {plan.LowWater{Bytes: 50 * g}, spool.Space{Free: 54 * g, Total: 1000 * g}, true, "the site's disk has 54g free, and new work begins again at 55g"},
		"enough again":            {plan.LowWater{Bytes: 50 * g}, spool.Space{Free: 55 * g, Total: 1000 * g}, true, ""},
		"a part":                  {plan.LowWater{Share: 0.05}, spool.Space{Free: 49 * g, Total: 1000 * g}, false, "the site's disk has 49g free, below its low water of 50g"},
		"the smaller one, a size": {plan.LowWater{Bytes: 20 * g, Share: 0.05}, spool.Space{Free: 30 * g, Total: 1000 * g}, false, ""},
		"the smaller one, a part": {plan.LowWater{Bytes: 90 * g, Share: 0.05}, spool.Space{Free: 60 * g, Total: 1000 * g}, false, ""},
		"no bound on files":       {plan.LowWater{Bytes: g}, files(100*g, 0, 0), false, ""},
		"files":                   {plan.LowWater{Bytes: g}, files(100*g, 99, 10000), false, "the site's disk has room for 99 more files, below its low water of 100"},
		"a part of the files":     {plan.LowWater{Share: 0.05}, files(100*g, 499, 10000), false, "the site's disk has room for 499 more files, below its low water of 500"},
		"not files enough yet":    {plan.LowWater{Bytes: g}, files(100*g, 105, 10000), true, "the site's disk has room for 105 more files, and new work begins again at 110"},
		"files enough":            {plan.LowWater{Bytes: g}, files(100*g, 111, 10000), true, ""},
	} {
		if got := test.low.Lack(test.space, test.before); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
