package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

// A pass of cron goes on while the bridge itself has something to do, and no longer: not for jobs, and not for a pause.
func TestPassGoesOnForTheBridgesOwnWorkAlone(t *testing.T) {
	t.Parallel()
	const within = 12 * time.Second
	now := epoch
	for name, c := range map[string]struct {
		phase        plan.Phase
		change       func(r *plan.Row)
		atWork, ails bool
	}{
		"a claim":                {plan.Claiming, nil, true, false},
		"an image":               {plan.Staging, func(r *plan.Row) { r.Staged = nil }, true, false},
		"an image, soon again":   {plan.Staging, func(r *plan.Row) { r.Staged, r.DueAt, r.FailedTries = nil, now.Add(2*time.Second), 1 }, true, true},
		"an image, later":        {plan.Staging, func(r *plan.Row) { r.Staged, r.DueAt, r.FailedTries = nil, now.Add(time.Minute), 5 }, false, true},
		"a full disk":            {plan.Staging, func(r *plan.Row) { r.Staged, r.DiskLow = nil, "full" }, false, true},
		"a limit":                {plan.Staging, func(r *plan.Row) { r.Staged, r.AtLimit = &spool.Inputs{}, "full" }, false, false},
		"files to copy":          {plan.Staging, func(r *plan.Row) { r.Staged, r.Resumption.From = &spool.Inputs{}, "1-b1b2b3" }, true, false},
		"a queue that is held":   {plan.Staging, func(r *plan.Row) { r.Staged, r.Held = &spool.Inputs{}, "Slurm takes no job" }, false, true},
		"sbatch":                 {plan.Submitting, nil, true, false},
		"a job that waits":       {plan.Queued, nil, false, false},
		"a job that ended":       {plan.Queued, func(r *plan.Row) { r.NoJobSince = now }, true, false},
		"a command":              {plan.Running, func(r *plan.Row) { r.NoJobSince, r.Exit = time.Time{}, nil }, false, false},
		"a command of long ago":  {plan.Running, func(r *plan.Row) { r.NoJobSince, r.UsageUnread = time.Time{}, true }, true, false},
		"a command that ended":   {plan.Running, func(r *plan.Row) { r.NoJobSince, r.Exit = time.Time{}, &spool.Exit{} }, true, false},
		"a kill":                 {plan.Stopping, nil, true, false},
		"results":                {plan.Collecting, nil, true, false},
		"results without room":   {plan.Collecting, func(r *plan.Row) { r.Room, r.DueAt = &plan.RoomWait{}, now.Add(time.Hour) }, false, false},
		"a verdict":              {plan.Finalizing, nil, true, false},
		"a bundle that is done":  {plan.Done, nil, false, false},
		"files of one, released": {plan.Done, func(r *plan.Row) { r.Releasing, r.FailedTries = true, 1 }, false, false},
	} {
		r := rowIn(c.phase)
		r.DueAt, r.Retry, r.Held, r.DiskLow = time.Time{}, plan.Retry{}, "", ""
		if c.change != nil {
			c.change(&r)
		}
		if r.AtWork(now, within) != c.atWork || r.Ails() != c.ails {
			t.Errorf("%s: at work %v, ails %v", name, r.AtWork(now, within), r.Ails())
		}
	}
}
