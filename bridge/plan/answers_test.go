package plan_test

import (
	"cmp"
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func (w *world) message(a *arguments) error {
	m := codalab.Message{Type: codalab.MessageType(a.next()), UUID: uuid, KillMessage: a.get("text")}
	if m.Type == codalab.MessageRun {
		m = offered()
	}
	if w.row == nil && m.Type == codalab.MessageRun {
		r := plan.NewRow(w.now, "cpu", m)
		w.saved, w.row = nil, &r
		w.printf("a new row")
		return w.decide(plan.News{})
	}
	w.stepNews().Messages = append(w.stepNews().Messages, m)
	return nil
}

// disk measures the shared disk.
func (w *world) disk(a *arguments) error {
	free, err := codalab.ParseSize(a.get("free"))
	if err != nil {
		return err
	}
	low := plan.LowWater{Bytes: 50 << 30, Share: 0.05}.Lack(spool.Space{Free: free, Total: 1 << 40}, w.low != "")
	w.low, w.stepNews().DiskLow = low, &low
	return nil
}

// job reads a job of a snapshot or of the accounting database.
func (w *world) job(a *arguments) sbatch.Job {
	j := sbatch.Job{
		ID: sbatch.JobID(a.number(a.get("job"))), State: sbatch.State(a.get("state")), Reason: cmp.Or(a.get("reason"), "None"),
		Nodes: a.get("nodes"), Comment: a.get("comment"), Submitted: epoch, CancelledBy: a.get("by"), Canceller: a.get("canceller"),
	}
	if j.Comment == "ours" && w.row != nil {
		j.Comment = w.policy.Request(*w.row).Comment
	}
	switch {
	case j.Nodes == "-":
		j.Nodes = ""
	case j.Nodes == "" && j.State != sbatch.StatePending:
		j.Nodes = "n1"
	}
	if submitted := a.get("submitted"); submitted != "" {
		j.Submitted = epoch.Add(a.length(submitted))
	}
	j.TimeLimit = a.length(a.get("limit"))
	if start := a.get("start"); start != "" {
		j.Start = epoch.Add(a.length(start))
	}
	if submitted := a.get("submitted"); submitted != "" {
		j.Submitted = epoch.Add(a.length(submitted))
	}
	return j
}

// observation adds a job to an observation of a submission. Jobs are grouped by their submission names.
func (w *world) observation(s *plan.Observation, a *arguments) *plan.Observation {
	if s == nil {
		s = &plan.Observation{Asked: w.now}
		if w.row != nil {
			s.SubmissionName, s.Job = w.row.SubmissionName, w.row.Job.ID
		}
	}
	if asked := a.get("asked"); asked != "" {
		s.Asked = epoch.Add(a.length(asked))
	}
	if attempt := a.get("attempt"); attempt != "" {
		s.SubmissionName = w.submission(a.number(attempt))
	}
	if !a.flag("none") {
		j := w.job(a)
		j.Name = cmp.Or(a.get("name"), string(s.SubmissionName))
		stamp, stamped := plan.StampOf(j)
		if j.Name == string(s.SubmissionName) || stamped && stamp.Bundle == uuid && stamp.Bridge == w.policy.Bridge {
			s.Jobs = append(s.Jobs, j)
		}
	}
	return s
}

func (w *world) slurm(a *arguments) {
	if a.flag("away") {
		w.printf("no answer")
		return
	}
	n := w.stepNews()
	n.Observation = w.observation(n.Observation, a)
}

func (w *world) accounting(a *arguments) {
	n := w.stepNews()
	if w.row != nil {
		delete(w.running, effectKey{plan.QueryAccounting, w.row.Attempt.Number})
	}
	if a.flag("away") {
		n.AccountingFailure = "slurmdbd: connection refused"
		return
	}
	n.Accounting = w.observation(n.Accounting, a)
}

// note reads the attempt's records.
func (w *world) note(a *arguments) error {
	attempt := 1
	if w.row != nil {
		attempt = w.row.Attempt.Number
	}
	what := a.next()
	if n := a.get("attempt"); n != "" {
		attempt = a.number(n)
	}
	n := w.stepNews()
	rec := plan.Records{Attempt: attempt, Read: w.now}
	if n.Records != nil {
		rec.Records = n.Records.Records
	}
	delete(w.running, effectKey{plan.ReadRecords, attempt})
	token := cmp.Or(a.get("token"), fmt.Sprintf("worker-%d", attempt))
	switch what {
	case "none":
	case "unreadable":
		n.RecordsFailure, rec.Read = cmp.Or(a.get("failure"), "stale file handle"), time.Time{}
	case "started":
		rec.Started = &spool.Started{Token: token, Node: cmp.Or(a.get("node"), "n1"), Job: cmp.Or(a.get("job"), "7"), At: w.now}
	case "closed":
		rec.Started = &spool.Started{Token: "bridge", Fenced: true}
	case "status":
		rec.Status = &spool.Status{Token: token, Stage: spool.StageStarting, At: w.now}
		if !a.flag("setting-up") {
			rec.Status.Stage, rec.Status.CommandStarted = spool.StageRunning, w.now
		}
	case "output":
		rec.Output = a.get("text")
	case "exit":
		rec.Exit = w.exit(a, token)
	default:
		return fmt.Errorf("unknown record %q", what)
	}
	n.Records = &rec
	return nil
}

func (w *world) exit(a *arguments, token string) *spool.Exit {
	e := exit(a.number(cmp.Or(a.get("code"), "0")))
	e.Token, e.Terminated, e.Failure = token, a.flag("terminated"), a.get("failure")
	e.TimedOut = a.flag("timed-out")
	e.Cause = spool.Cause(cmp.Or(a.get("cause"), string(e.Cause)))
	if a.flag("not-started") {
		e.NotStarted, e.ExitCode, e.CommandStarted, e.CommandEnded = true, nil, time.Time{}, time.Time{}
	}
	return e
}

// answer brings the outcome of an effect that runs.
func (w *world) answer(a *arguments) error {
	kind := plan.Kind(a.next())
	if w.row == nil {
		w.printf("there is no row for it")
		return nil
	}
	attempt := w.row.Attempt.Number
	if n := a.get("attempt"); n != "" {
		attempt = a.number(n)
	}
	key := effectKey{kind, attempt}
	if !w.running[key] {
		return fmt.Errorf("no %s of attempt %d runs", kind, attempt)
	}
	delete(w.running, key)
	n := w.stepNews()
	o := plan.Outcome{
		Failure: a.get("failure"), Final: a.flag("final"), Gone: a.flag("gone"), Full: a.flag("full"), Details: a.get("done"),
		Outage: a.flag("outage"),
	}
	if size := a.get("held"); size != "" {
		o.Held = &spool.HeldResults{Size: size, Left: a.get("left"), Dir: "/shared/runs/x/1", Output: a.flag("output")}
	}
	if a.flag("cut") { // an effect that was cancelled has no outcome
		return nil
	}
	if n.Progress = a.get("progress"); n.Progress != "" {
		w.running[key] = true
		return nil
	}
	switch kind {
	case plan.Claim:
		n.Claimed = &plan.Claimed{Outcome: o, Accepted: a.flag("yes"), Refusal: a.get("refusal")}
	case plan.Stage:
		n.Staged = &plan.StageEnd{Outcome: o, Inputs: spool.Inputs{SIF: "/shared/cache/x.sif"}}
	case plan.Carry:
		n.Carried = &o
	case plan.Prepare:
		n.Prepared = &o
	case plan.Submit:
		n.Submitted = &plan.SbatchAnswer{
			Attempt: attempt, Job: sbatch.JobID(a.number(cmp.Or(a.get("job"), "0"))),
			Refused: a.flag("refused"), Retry: a.flag("retry"), OfSite: a.flag("of-site"), OfQueue: a.flag("of-queue"), Words: a.get("words"),
		}
	case plan.AskQueue:
		n.Canary = &plan.Canary{Failure: o.Failure, Refusal: a.get("refusal")}
	case plan.Fence:
		n.Fenced = &plan.Fencing{Attempt: attempt, Failure: o.Failure, Gone: o.Gone}
		switch {
		case a.flag("ours"):
			n.Fenced.Started = spool.Started{Token: "bridge", Fenced: true}
		case o.Failure == "":
			n.Fenced.Started = spool.Started{Token: fmt.Sprintf("worker-%d", attempt), Node: cmp.Or(a.get("node"), "n1"), Job: cmp.Or(a.get("job"), "7")}
		}
	case plan.TellTimeLimit:
		n.TimeTold = &plan.TimeTold{Attempt: attempt, Limit: a.length(a.get("limit")), Failure: o.Failure}
	case plan.Cancel:
		n.Cancelled = &o
	case plan.StopMember:
		n.Stopped = &plan.Stopped{Attempt: attempt, Failure: o.Failure}
	case plan.Collect:
		if n.DataChanged = a.get("changed"); n.DataChanged != "" {
			w.running[key] = true
			return nil
		}
		n.Collected = &o
	case plan.Confirm:
		n.Confirmed = &plan.Confirmation{Outcome: o, Asked: w.now, State: codalab.State(a.get("state")), Here: a.flag("here"), Carried: a.flag("carried"), UploadFailure: a.get("lost")}
		if asked := a.get("asked"); asked != "" {
			n.Confirmed.Asked = epoch.Add(a.length(asked))
		}
	case plan.Release:
		n.Released = &o
	case plan.QueryAccounting, plan.ReadRecords, plan.Forget:
		return fmt.Errorf("%s is not answered so", kind)
	}
	for _, said := range []string{"ok", "worker", "no"} { // nothing more than that it is done
		a.flag(said)
	}
	return nil
}
