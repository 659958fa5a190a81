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

// Slurm shows the change of a limit. Without one, only the end of a reservation ends a job of it before its time.
func TestEndBeforeTheTimeNamesItsReason(t *testing.T) {
	t.Parallel()
	limits := func(first, now time.Duration) plan.TimeLimits {
		return plan.TimeLimits{First: first, Now: now, Told: now}
	}
	const hour = 65 * time.Minute // with time_grace
	for name, c := range map[string]struct {
		limits      plan.TimeLimits
		reservation string
		seen        time.Duration
		want        string
	}{
		"an administrator shortened it": {
			limits(hour, 10*time.Minute), "week", 12 * time.Minute,
			"An administrator or a rule of the site has shortened the job's time limit from 1h5m to 10m0s: run it again, or ask the cluster's administrator.",
		},
		"an administrator lengthened it": {
			limits(hour, hour+2*time.Hour), "", hour + 2*time.Hour,
			"It had asked for 1h0m, and the site has lengthened that by 2h0m: ask for more with --request-time.",
		},
		"an administrator limited it": {
			limits(sbatch.Unlimited, 10*time.Minute), "", 12 * time.Minute,
			"An administrator or a rule of the site has given the job a time limit of 10m0s: run it again, or ask the cluster's administrator.",
		},
		"its reservation ended, and it had no limit any more": {
			limits(hour, sbatch.Unlimited), "week", 12 * time.Minute,
			"It had asked for 1h0m and ran for 12m0s in the reservation week, which has ended: ask the cluster's administrator for a longer one, or run it in another queue.",
		},
		"its reservation ended": {
			limits(hour, hour), "week", 12 * time.Minute,
			"It had asked for 1h0m and ran for 12m0s in the reservation week, which has ended: ask the cluster's administrator for a longer one, or run it in another queue.",
		},
		"its time ended within a reservation": {limits(hour, hour), "week", time.Hour, "It had 1h0m: ask for more with --request-time, at most 10h0m."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowIn(plan.Running)
			row.TimeLimits = c.limits
			b := given(t, row).at(c.seen)
			q := b.policy.Queues[row.Queue]
			q.Reservation = c.reservation
			b.policy.Queues[row.Queue] = q
			b.decide(seen(c.seen, job(sbatch.StateTimeout)))
			settled := c.seen + b.policy.Settle
			b.at(settled).decide(read(settled, started(), nil)).is(plan.Collecting, plan.Collect)
			b.verdict(spool.CauseLimit, c.want)
		})
	}
}
