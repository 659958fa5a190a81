package status

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/spool"
)

// waitsFor says what has to happen for a row to go on.
func waitsFor(r plan.Row) string {
	job := "its job"
	if r.Job.ID != 0 {
		job = "job " + r.Job.ID.String()
	}
	switch r.Phase {
	case plan.Claiming:
		return "the server's answer to the claim"
	case plan.Staging:
		if r.DiskLow != "" {
			return "the shared disk: " + r.DiskLow
		}
		if r.Staged == nil {
			return "its image and its dependencies, which are being brought in"
		}
		if r.Held != "" {
			return "Slurm, or its nodes: " + r.Held
		}
		return "room in Slurm: the queue's max_in_flight, and the rate at which jobs are submitted"
	case plan.Submitting:
		return "sbatch's answer, or Slurm to show whether there is a job of the name " + string(r.SubmissionName)
	case plan.Queued:
		return "Slurm to start " + job
	case plan.Running:
		return "the command to end"
	case plan.Stopping:
		return job + " to go away"
	case plan.Collecting:
		return "its results to reach the server"
	case plan.Finalizing:
		return "the server to acknowledge the result"
	case plan.Done:
		return "nothing; its files are kept for a while"
	}
	return "nothing that this version of cl-bridge knows"
}

// Text returns the explanation for people.
func (e Explanation) Text(now time.Time) string {
	head := e.Bundle + " is done and forgotten; this was its history:\n\n"
	if !e.Forgotten {
		head = fmt.Sprintf("%s is %s\n\n%s\n", e.Bundle, e.Phase, termtext.Table(e.facts(now)))
	}
	rows := [][]string{{"TIME", "ATTEMPT", "JOB", "PHASE", "REASON"}}
	last := int64(0)
	for _, h := range e.History {
		if left := h.N - last - 1; left > 0 {
			rows = append(rows, []string{"…", "", "", "", fmt.Sprintf("(%d entries are not kept)", left)})
		}
		last = h.N
		rows = append(rows, []string{termtext.Clock(h.At), termtext.Number(int64(h.Attempt)), termtext.Number(int64(h.Job)), string(h.Phase), termtext.Line(h.Reason)})
	}
	return head + termtext.Table(rows)
}

// facts returns the lines about a bundle that has a row.
func (e Explanation) facts(now time.Time) [][]string {
	var facts [][]string
	add := func(name, fact string) { facts = append(facts, []string{"  " + name, termtext.Line(fact)}) }
	add("queue", e.Queue)
	add("since", termtext.Clock(e.Since)+", "+codalab.FormatDuration(now.Sub(e.Since))+" ago")
	add("reason", e.Reason)
	if e.Tries > 0 && e.Trouble != "" {
		add("failed", fmt.Sprintf("%d tries; the last: %s", e.Tries, e.Trouble))
	}
	if e.Attempt > 0 {
		add("attempt", strconv.Itoa(e.Attempt)+e.job())
	}
	if e.Avoids != "" {
		add("avoids", e.Avoids+", where commands did not start")
	}
	if e.Verdict != nil {
		add("ended", verdict(*e.Verdict))
	}
	if e.Used != nil {
		add("used", used(*e.Used))
	}
	if e.Ran.Runtime != "" {
		add("container", fmt.Sprintf("%s: %s", e.Ran.Runtime, e.Ran.Reason))
	}
	for _, note := range e.Notes {
		add("note", note)
	}
	add("waits for", e.WaitsFor)
	switch wait := e.Due.Sub(now); {
	case e.Due.IsZero():
	case wait > 0:
		add("next look", termtext.Clock(e.Due)+", in "+codalab.FormatDuration(wait))
	case wait > -time.Minute:
		add("next look", "now")
	default:
		add("next look", termtext.Clock(e.Due)+", which is past: does cl-bridge run?")
	}
	return facts
}

// job describes the job of the current attempt, for behind its number.
func (e Explanation) job() string {
	if e.Job == 0 {
		return ", without a job so far"
	}
	said := ", job " + e.Job.String()
	if e.Node != "" {
		said += " on " + e.Node
	}
	if e.JobState != "" {
		said += ", " + string(e.JobState)
	}
	if e.JobReason != "" && e.JobReason != "None" {
		said += " (" + e.JobReason + ")"
	}
	return said
}

func verdict(v plan.Verdict) string {
	said := string(v.Cause)
	if v.ExitCode != nil {
		said += fmt.Sprintf(", exit status %d", *v.ExitCode)
	}
	return said + strings.TrimSuffix(": "+v.Failure, ": ")
}

// used describes what an attempt used. Its GPUs were sampled.
func used(u spool.Usage) string {
	cpu := time.Duration((u.UserSeconds + u.SystemSeconds) * float64(time.Second))
	said := fmt.Sprintf("%s of processor time, %s of memory at most, %s in its working directory",
		codalab.FormatDuration(cpu), codalab.FormatSize(u.MemoryPeak), codalab.FormatSize(u.DiskBytes))
	if g := u.GPU; g.Samples > 0 {
		said += fmt.Sprintf("; its GPUs busy for %.0f%% of the time, with %s of their memory at most", 100*g.BusyMean, codalab.FormatSize(g.MemoryPeak))
	}
	return said
}
