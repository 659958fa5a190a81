package status

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// ExplanationText returns an explanation for people.
func ExplanationText(e heartbeat.Explanation, now time.Time) string {
	head := e.Bundle + " is done and forgotten; this was its history:\n\n"
	if !e.Forgotten {
		head = fmt.Sprintf("%s is %s\n\n%s\n", called(e), e.Phase, termtext.Table(facts(e, now)))
	}
	rows := [][]string{{"TIME", "ATTEMPT", "JOB", "PHASE", "REASON"}}
	last := int64(0)
	for _, h := range e.History {
		if left := h.N - last - 1; left > 0 {
			rows = append(rows, []string{"…", "", "", "", fmt.Sprintf("(%d entries are not kept)", left)})
		}
		last = h.N
		rows = append(rows, []string{termtext.Clock(h.At), termtext.Number(int64(h.Attempt)), jobID(h.Job), string(h.Phase), termtext.Line(h.Reason)})
	}
	return head + termtext.Table(rows)
}

// jobID returns a job's id, or a dash if there is none.
func jobID(id sbatch.JobID) string {
	if id == 0 {
		return "-"
	}
	return id.String()
}

// called returns a bundle's UUID, with its name if that is known.
func called(e heartbeat.Explanation) string {
	if e.Name == "" {
		return e.Bundle
	}
	return e.Bundle + " (" + termtext.Line(e.Name) + ")"
}

// facts returns the lines about a bundle that has a row.
func facts(e heartbeat.Explanation, now time.Time) [][]string {
	var rows [][]string
	add := func(name, fact string) { rows = append(rows, []string{"  " + name, termtext.Line(fact)}) }
	add("queue", e.Queue)
	add("since", termtext.Clock(e.Since)+", "+codalab.FormatDuration(now.Sub(e.Since))+" ago")
	add("reason", e.Reason)
	if e.Tries > 0 && e.Trouble != "" {
		add("failed", fmt.Sprintf("%d tries; the last: %s", e.Tries, e.Trouble))
	}
	if e.Attempt > 0 {
		add("attempt", strconv.Itoa(e.Attempt)+job(e))
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
	return rows
}

// job describes the job of the current attempt, for behind its number.
func job(e heartbeat.Explanation) string {
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
