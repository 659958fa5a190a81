package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// TimeLimits are the time limits of an attempt's job in Slurm; zero while they are not known. An administrator may change
// the limit of a job (scontrol update JobId=… TimeLimit=…), and so may a plugin of the site. Slurm then ends the job at the
// new limit, and the worker, which sees no Slurm, ends the command at its own. So the bridge tells the worker, which derives
// the command's limit from the job's.
type TimeLimits struct {
	// First is the limit that the bridge asked for or, if it asked for none, the one that Slurm first showed for the job
	// after its start.
	First time.Duration `json:"first"`
	// Now is the limit that Slurm last showed, and Told the one that the worker knows.
	Now  time.Duration `json:"now"`
	Told time.Duration `json:"told"`
}

func newTimeLimits(first time.Duration) TimeLimits {
	return TimeLimits{First: first, Now: first, Told: first}
}

// note notes the limit of the job, also of an ended one.
//
// For a pending job that asks for no limit Slurm shows the largest one of the partition (Slurm src/slurmctld/job_mgr.c:
// pack_job), and the job may get another one at its start: a year where the partition has no limit
// (src/plugins/sched/backfill/backfill.c: _set_backfill_timelimits). So that limit is not the first one.
func (l *TimeLimits) note(job sbatch.Job) {
	switch {
	case job.TimeLimit <= 0, l.First == 0 && job.State == sbatch.StatePending:
	case l.First == 0:
		*l = newTimeLimits(job.TimeLimit)
	default:
		l.Now = job.TimeLimit
	}
}

// timeTellPause is the pause after the worker could not be told a time limit. A limit that is over soon does not wait long.
const timeTellPause = 10 * time.Second

// tellTimeLimit wants the worker of an attempt that has begun to know the job's time limit.
func (d *decision) tellTimeLimit() {
	limits := &d.row.TimeLimits
	if told := d.news.TimeTold; told != nil && told.Attempt == d.row.Attempt.Number {
		if told.Failure != "" {
			d.decideBy(d.now.Add(timeTellPause))
			return
		}
		limits.Told = told.Limit
		d.row.Reason = fmt.Sprintf("the time limit of job %s was changed: %s", d.row.Job.ID, limits.change())
	}
	if limits.Now != limits.Told && d.row.Exit == nil && d.row.NoJobSince.IsZero() && !d.waiting() {
		d.wantEffect(TellTimeLimit)
	}
}

// change describes the difference between the job's limit and the first one.
func (l TimeLimits) change() string {
	switch {
	case l.Now == sbatch.Unlimited:
		return "it has none any more"
	case l.First == sbatch.Unlimited:
		return "it is " + codalab.FormatDuration(l.Now) + ", and was none"
	case l.Now > l.First:
		return "it is " + codalab.FormatDuration(l.Now-l.First) + " longer than at first"
	case l.Now < l.First:
		return "it is " + codalab.FormatDuration(l.First-l.Now) + " shorter than at first"
	}
	return "it is as long as at first"
}

// changedTime returns a sentence about a time limit that the worker follows and that differs from the first one.
func (r Row) changedTime() []string {
	if l := r.TimeLimits; l.Now != l.First && l.Told == l.Now {
		return []string{"The site has changed the job's time limit: " + l.change() + "."}
	}
	return nil
}
