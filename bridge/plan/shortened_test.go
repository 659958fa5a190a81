package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// The site may shorten a job: by scontrol update TimeLimit, a plugin, or a reservation that ends.
func TestTimeLimitThatSomebodyShortenedIsNotAnsweredWithMoreTime(t *testing.T) {
	t.Parallel()
	const asked = "It had 1h0m: ask for more with --request-time, at most 10h0m."
	const shortened = "It had asked for 1h0m and ran for 12m0s: an administrator or a rule of the site has shortened the job's time limit, or the job's reservation has ended. Run it again, or ask the cluster's administrator."
	for name, c := range map[string]struct {
		seen time.Duration // of the job's end
		exit *spool.Exit
		want string
	}{
		"the whole time":                       {seen: time.Hour + 2*time.Minute, want: asked},
		"TERM comes some time before":          {seen: 58*time.Minute + time.Second, want: asked},
		"shortened":                            {seen: 12 * time.Minute, want: shortened},
		"shortened, and seen after an outage":  {seen: 3 * time.Hour, exit: terminatedAt(12 * time.Minute), want: shortened},
		"the bridge missed when the job ended": {seen: 3 * time.Hour, want: asked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := given(t, rowIn(plan.Running)).at(c.seen).decide(seen(c.seen, job(sbatch.StateTimeout)))
			settled := c.seen + b.policy.Settle
			b.at(settled).decide(read(settled, started(), c.exit)).is(plan.Collecting, plan.Collect)
			b.verdict(spool.CauseLimit, c.want)
		})
	}
}

func terminatedAt(end time.Duration) *spool.Exit {
	e := exit(143)
	e.Terminated, e.At = true, epoch.Add(end)
	return e
}
