package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/clocks"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Held is the outcome of a held job. The job never starts, and costs nobody anything.
type Held struct {
	Asked sbatch.Request
	// Job is the job's number; 0 where it was not submitted.
	Job sbatch.JobID
	// Shown is the job as Slurm keeps it.
	Shown sbatch.Details
	// Clock is the controller's clock against this host's, if Slurm shows the job.
	Clock clocks.Offset
	// Err is set if the job was not submitted or Slurm does not show it, Left if the job may still be in Slurm.
	Err, Left error
}

// Hold submits a held job with the time limit of a bundle that asks for none, and cancels it
// once it has seen what the site's plugins made of it. gpus is the number of GPUs that the job
// has to ask for.
func Hold(ctx context.Context, slurm Slurm, q plan.Queue, gpus int64, now func() time.Time) (h Held) {
	within := cmp.Or(q.DefaultTime, q.MaxTime, time.Hour) + q.TimeGrace
	if q.MaxTime > 0 {
		within = min(within, q.MaxTime)
	}
	r := smallJob(q, gpus, within)
	r.Name = "cl-doctor-" + q.Name + "-held-" + strings.ToLower(rand.Text()[:6])
	r.Comment = "codalab doctor queue=" + q.Name // a running bridge does not take the job for its own
	r.Dir, r.Output, r.Script = "/", "/dev/null", "#!/bin/sh\n"
	r.Extra = append(slices.Clone(r.Extra), "--hold")
	h.Asked = r
	before := now()
	h.Job, h.Err = slurm.Submit(ctx, r)
	after := now()
	if refused, ok := errors.AsType[*sbatch.Error](h.Err); ok && refused.Refused {
		return h
	}
	if h.Err == nil {
		h.Shown, h.Err = slurm.Describe(ctx, h.Job)
		h.Clock = clocks.Between(before, after, h.Shown.Submitted, time.Second)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if h.Err == nil {
		h.Left = slurm.Cancel(ending, h.Shown.Name, h.Job)
	} else {
		h.Left = cancelShown(ending, slurm, r.Name, h.Job, now())
	}
	return h
}

// cancelShown cancels what Slurm shows of a submission: jobs of its name, and the one of its id, which
// the site may have renamed.
func cancelShown(ctx context.Context, slurm Slurm, name string, id sbatch.JobID, now time.Time) error {
	s, err := slurm.Observe(ctx, now)
	for _, j := range s.Jobs {
		if j.Name == name || j.ID == id {
			err = errors.Join(err, slurm.Cancel(ctx, j.Name, j.ID))
		}
	}
	return err
}

// Rewritten judges what a site made of a queue's held job.
func Rewritten(q plan.Queue, h Held) []Check {
	name, where := key(q, "submission"), "held job "+h.Job.String()
	var checks []Check
	if h.Left != nil {
		checks = append(checks, warning(name, fmt.Sprintf("a held job named %s may be left in Slurm: %v", h.Asked.Name, h.Left), "cancel it: scancel --name="+h.Asked.Name))
	}
	switch {
	case h.Err != nil && h.Job == 0:
		return append(checks, unsubmitted(q, h.Err))
	case errors.Is(h.Err, context.DeadlineExceeded):
		return append(checks, unreachable(name, where+" was submitted, and Slurm does not show its state: "+h.Err.Error(), "try again later"))
	case h.Err != nil:
		return append(checks, failed(name, where+" was submitted, and squeue does not show it: "+h.Err.Error(), "does squeue show your jobs at once? A wrapper that remembers its answers has to go"))
	}
	if h.Shown.Name != h.Asked.Name {
		checks = append(checks, warning(name, fmt.Sprintf("the site renames jobs: %q became %q; jobs are found by id", h.Asked.Name, h.Shown.Name),
			"a job whose submission got no answer cannot be found, and its bundle waits: ask the administrator to let names that begin with cl- be"))
	}
	if h.Shown.Comment != h.Asked.Comment {
		checks = append(checks, warning(name, fmt.Sprintf("the site rewrites comments: %q became %q; jobs are found by id", h.Asked.Comment, h.Shown.Comment),
			"orphan jobs, and a ledger from an old copy, are not noticed: ask the administrator to let comments of jobs whose names begin with cl- be"))
	}
	for _, option := range []struct{ key, asked, shown string }{
		{"partition", sorted(q.Partition), sorted(h.Shown.Partition)},
		{"account", q.Account, h.Shown.Account},
		{"qos", q.QOS, h.Shown.QOS},
		{"max_time", spellMinutes(h.Asked.Time), spellMinutes(h.Shown.Time)},
	} {
		if option.asked != "" && option.asked != option.shown {
			checks = append(checks, warning(key(q, option.key), fmt.Sprintf("the site changes options of jobs: %s became %s", option.asked, cmp.Or(option.shown, "nothing")),
				"write what the site allows, or ask the administrator why"))
		}
	}
	if len(checks) > 0 {
		return checks
	}
	return []Check{ok(name, "%s has its options as requested, name and comment too: submitted at %s to %s, account %s, QOS %s, %s; it was cancelled",
		where, h.Shown.Submitted.UTC().Format("15:04:05 UTC"), h.Shown.Partition, cmp.Or(h.Shown.Account, "none"), cmp.Or(h.Shown.QOS, "none"), spellMinutes(h.Shown.Time))}
}

// sorted puts a list with commas in order: Slurm may.
func sorted(list string) string {
	words := strings.Split(list, ",")
	slices.Sort(words)
	return strings.Join(words, ",")
}

// spellMinutes prints a time limit in whole minutes, as Slurm keeps it.
func spellMinutes(limit time.Duration) string {
	if limit == 0 {
		return "no time limit"
	}
	return codalab.SpellDuration((limit + time.Minute - 1).Truncate(time.Minute))
}
