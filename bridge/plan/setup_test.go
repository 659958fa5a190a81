package plan_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func (w *world) setPolicy(a *arguments) error {
	p, q := &w.policy, w.policy.Queues["cpu"]
	for _, key := range a.keys() {
		value := a.get(key)
		switch key {
		case "accounting":
			p.Accounting = value == "yes"
		case "cancel_strays":
			p.CancelOrphans = value == "yes"
		case "retry_begun":
			q.RetryBegun = plan.RetryBegun(value)
		case "workdir":
			q.WorkingDirDisk = spool.WorkingDirDisk(value)
		case "max_attempts":
			p.MaxAttempts = a.number(value)
		case "quota_patience":
			p.QuotaPatience = a.length(value)
		case "max_time":
			q.MaxTime = a.length(value)
		case "nodes": // 64x250g,8x500gx4: CPUs, memory and GPUs of nodes
			nodes, err := nodeSizes(value)
			if err != nil {
				return err
			}
			q.Nodes = nodes
		case "queue":
			if value == "removed" {
				q.Name = ""
			}
		default:
			return fmt.Errorf("unknown policy %q", key)
		}
	}
	p.Queues["cpu"] = q
	if q.Name == "" {
		delete(p.Queues, "cpu")
	}
	w.printf("ok")
	return nil
}

func nodeSizes(list string) (sizes sbatch.NodeSizes, err error) {
	for one := range strings.SplitSeq(list, ",") {
		parts := append(strings.Split(one, "x"), "0", "0")
		var size sbatch.NodeResources
		if size.Memory, err = codalab.ParseSize(parts[1]); err != nil {
			return nil, err
		}
		if _, err = fmt.Sscan(parts[0]+" "+parts[2], &size.CPUs, &size.GPUs); err != nil {
			return nil, err
		}
		sizes = sizes.With(size)
	}
	return sizes, nil
}

// setRow makes the row that came to a phase in the ordinary way, with the effect that runs there.
func (w *world) setRow(a *arguments) error {
	phase := plan.Phase(a.get("phase"))
	r := rowIn(phase)
	if phase == plan.Staging {
		r.Staged = nil
	}
	r.Standalone = a.flag("standalone")
	if a.flag("setting-up") {
		r.CommandBegan, r.RunningAt = false, time.Time{}
	}
	for _, key := range a.keys() {
		value := a.get(key)
		switch key {
		case "phase":
		case "exclude":
			r.Exclude = value
		case "attempt":
			r.Attempt.Number = a.number(value)
			if r.SubmissionName != "" {
				r.SubmissionName, r.OnDisk = w.submission(r.Attempt.Number), spool.NameAttempt(r.Attempt.Number, w.policy.Bridge)
			}
		case "resume":
			r.Run.Metadata["tags"] = []string{"resume=" + value}
		case "generation":
			r.Generation = int64(a.number(value))
		case "time":
			r.Resources.Time = int64(a.length(value).Seconds())
		default:
			return fmt.Errorf("unknown field %q", key)
		}
	}
	token := fmt.Sprintf("worker-%d", r.Attempt.Number)
	if r.Begun != nil {
		r.Begun = &spool.Started{Token: token, Node: "n1", Job: "7", At: epoch}
	}
	if r.Exit != nil {
		r.Exit.Token = token
	}
	w.generation = max(w.generation, r.Generation)
	clear(w.running)
	if k, ok := map[plan.Phase]plan.Kind{
		plan.Claiming: plan.Claim, plan.Staging: plan.Stage, plan.Submitting: plan.Submit, plan.Stopping: plan.Cancel,
		plan.Collecting: plan.Collect,
	}[phase]; ok {
		w.running[effectKey{k, r.Attempt.Number}] = true
	}
	w.row, w.saved, w.now = &r, nil, epoch
	w.printf("%s:%s", phase, w.compare(plan.Row{}, r))
	return nil
}

// submission returns the name of one of the row's submissions.
func (w *world) submission(attempt int) plan.SubmissionName {
	return plan.SubmissionName(strings.Replace(string(submission), ".1-1-", fmt.Sprintf(".%d-%d-", attempt, attempt), 1))
}
