package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// waitsFor says in plain words what has to come for a row to go on.
func waitsFor(r plan.Row) string {
	job := "its job"
	if r.Job.ID != 0 {
		job = "job " + r.Job.ID.String()
	}
	switch r.Phase {
	case plan.Claiming:
		return "the server's answer to the claim"
	case plan.Staging:
		if r.Low != "" {
			return "room on the shared disk: " + r.Low
		}
		if r.Staged == nil {
			return "its image and its dependencies, which are brought in"
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

// text is the explanation for people.
func (e explanation) text(now time.Time) string {
	head := e.Bundle + " is done and forgotten; this was its history:\n\n"
	if !e.Forgotten {
		head = fmt.Sprintf("%s is %s\n\n%s\n", e.Bundle, e.Phase, table(e.facts(now)))
	}
	rows := [][]string{{"TIME", "ATTEMPT", "JOB", "PHASE", "REASON"}}
	last := int64(0)
	for _, h := range e.History {
		if left := h.N - last - 1; left > 0 {
			rows = append(rows, []string{"…", "", "", "", fmt.Sprintf("(%d entries are not kept)", left)})
		}
		last = h.N
		rows = append(rows, []string{clock(h.At), number(int64(h.Attempt)), number(int64(h.Job)), string(h.Phase), line(h.Reason)})
	}
	return head + table(rows)
}

// table aligns columns.
func table(rows [][]string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = w.Write([]byte(strings.Join(row, "\t") + "\n")) // into memory
	}
	_ = w.Flush()
	return out.String()
}

// facts are the lines about a bundle that the bridge has.
func (e explanation) facts(now time.Time) [][]string {
	var facts [][]string
	add := func(name, fact string) { facts = append(facts, []string{"  " + name, line(fact)}) }
	add("queue", e.Queue)
	add("since", clock(e.Since)+", "+codalab.FormatDuration(now.Sub(e.Since))+" ago")
	add("reason", e.Reason)
	if e.Tries > 0 && e.Trouble != "" {
		add("failed", fmt.Sprintf("%d tries; the last: %s", e.Tries, e.Trouble))
	}
	if e.Attempt > 0 {
		add("attempt", strconv.Itoa(e.Attempt)+e.job())
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
		add("next look", clock(e.Due)+", in "+codalab.FormatDuration(wait))
	case wait > -time.Minute:
		add("next look", "now")
	default:
		add("next look", clock(e.Due)+", which is past: does cl-bridge run?")
	}
	return facts
}

// job is the current attempt's job, behind its number.
func (e explanation) job() string {
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

// used is what an attempt used; of its GPUs what was seen of them.
func used(u spool.Usage) string {
	cpu := time.Duration((u.UserSeconds + u.SystemSeconds) * float64(time.Second))
	said := fmt.Sprintf("%s of processor time, %s of memory at most, %s in its working directory",
		codalab.FormatDuration(cpu), codalab.FormatSize(u.MemoryPeak), codalab.FormatSize(u.DiskBytes))
	if g := u.GPU; g.Samples > 0 {
		said += fmt.Sprintf("; its GPUs busy for %.0f%% of the time, with %s of their memory at most", 100*g.BusyMean, codalab.FormatSize(g.MemoryPeak))
	}
	return said
}

// clock is a moment in the zone of who reads it.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -0700") }

// number is n, or a dash for none.
func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// line is text of other programs in one line, without what would steer a
// terminal.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	return cmp.Or(strings.TrimSpace(s), "-")
}
