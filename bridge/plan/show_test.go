package plan_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// clock returns a moment, counted from the scenario's beginning.
func clock(t time.Time) string { return span(t.Sub(epoch)) }

// span returns a duration without the zeros at its end.
func span(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// show prints the changes of a decision: the phase, a new reason, the fields, and the wanted effects.
func (w *world) show(before, after plan.Row, wanted []string) {
	if w.quiet {
		return
	}
	head := string(after.Phase)
	if before.Phase != after.Phase {
		head = fmt.Sprintf("%s -> %s", before.Phase, after.Phase)
	}
	changes := w.compare(before, after)
	switch {
	case before.Reason != after.Reason || before.Phase != after.Phase:
		w.printf("at %s: %s: %s", clock(w.now), head, after.Reason)
	case changes == "" && len(wanted) == 0:
		w.printf("at %s: %s, as before", clock(w.now), head)
	default:
		w.printf("at %s: %s", clock(w.now), head)
	}
	if changes != "" {
		w.printf(" %s", changes)
	}
	if len(wanted) > 0 {
		w.printf("  wants %s", strings.Join(wanted, ", "))
	}
}

// compare returns the differences between two rows.
func (w *world) compare(before, after plan.Row) string {
	old := w.fields(before)
	var changes strings.Builder
	for i, f := range w.fields(after) {
		switch {
		case f.value == old[i].value:
		case f.value == "" && f.name == "due":
			changes.WriteString(" not due,")
		case f.value == "":
			fmt.Fprintf(&changes, " no %s,", f.name)
		default:
			fmt.Fprintf(&changes, " %s %s,", f.name, f.value)
		}
	}
	return strings.TrimSuffix(changes.String(), ",")
}

type field struct{ name, value string }

// fields returns a row's fields in words; an empty field counts as missing.
func (w *world) fields(r plan.Row) []field {
	return []field{
		{"reoffered", moment(r.ReofferedAt)},
		{"attempt", number(int64(r.Attempt.Number))},
		{"generation", number(r.Generation)},
		{"prepared", yes(r.Prepared)},
		{"submitted", moment(r.SubmittedAt)},
		{"unclear-answers", number(int64(r.UnclearCount))},
		{"disk-low", quoted(r.DiskLow)},
		{"staged", yes(r.Staged != nil)},
		{"job", jobWords(r)},
		{"absent-as-of", moment(r.AbsentAsOf)},
		{"no-job-since", moment(r.NoJobSince)},
		{"records-read", moment(r.RecordsReadAt)},
		{"output-tail", quoted(r.OutputTail)},
		{"impossible-since", moment(r.ImpossibleSince)},
		{"requeued", yes(r.Requeued)},
		{"revoked-since", moment(r.RevokedSince)},
		{"time-limits", limitWords(r.TimeLimits)},
		{"begun", begunWords(r)},
		{"command-began", moment(r.RunningAt)},
		{"exit", exitWords(r)},
		{"status", statusWords(r)},
		{"progress", quoted(r.Progress)},
		{"data-changed", quoted(r.DataChanged)},
		{"stop", verdictWords(r.StopVerdict)},
		{"cancelled", moment(r.CancelledAt)},
		{"fenced", yes(r.Fenced)},
		{"records-gone-since", moment(r.RecordsGoneSince)},
		{"verdict", verdictWords(r.Verdict)},
		{"reports", number(int64(r.ReportCount))},
		{"keep_until", moment(r.KeepUntil)},
		{"uncollected", yes(r.Uncollected)},
		{"gives-up", yes(r.GivesUp)},
		{"waits-for-room-until", roomWords(r)},
		{"dropped", yes(r.Dropped)},
		{"releasing", yes(r.Releasing)},
		{"resumed", number(int64(r.Resumption.Count))},
		{"files-of", string(r.Resumption.From)},
		{"copied-to", number(int64(r.Resumption.Copied))},
		{"avoids", r.SickNodes},
		{"any-node", yes(r.AnyNode)},
		{"failed-tries", number(int64(r.FailedTries))},
		{"last-failure", quoted(r.LastFailure)},
		{"failing-since", moment(r.FailingSince)},
		{"failure-kind-since", moment(r.FailureKindSince)},
		{"failed-by-outage", yes(r.FailedByOutage)},
		{"due", w.dueWords(r)},
	}
}

func roomWords(r plan.Row) string {
	if r.Room == nil {
		return ""
	}
	return moment(r.Room.Until)
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return clock(t)
}

func yes(b bool) string {
	if !b {
		return ""
	}
	return "yes"
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return strconv.Quote(text)
}

// dueWords returns the time at which the row is due.
func (w *world) dueWords(r plan.Row) string {
	if r.DueAt.IsZero() {
		return ""
	}
	return "at " + clock(r.DueAt)
}

func jobWords(r plan.Row) string {
	j := r.Job
	if j.ID == 0 {
		return ""
	}
	text := strings.TrimSpace(j.ID.String() + " " + string(j.State))
	if j.Nodes != "" {
		text += " on " + j.Nodes
	}
	if j.Reason != "None" && j.Reason != "" {
		text += " (" + j.Reason + ")"
	}
	return text
}

func limitWords(l plan.TimeLimits) string {
	if l.Now == l.First && l.Told == l.First {
		return ""
	}
	return fmt.Sprintf("%s (first %s, told %s)", span(l.Now), span(l.First), span(l.Told))
}

func begunWords(r plan.Row) string {
	if r.Begun == nil {
		return ""
	}
	return fmt.Sprintf("%s on %s in job %s", r.Begun.Token, r.Begun.Node, r.Begun.Job)
}

func exitWords(r plan.Row) string {
	if r.Exit == nil {
		return ""
	}
	text := string(r.Exit.Cause)
	if r.Exit.ExitCode != nil {
		text += " " + strconv.Itoa(*r.Exit.ExitCode)
	}
	if r.Exit.Terminated {
		text += " terminated"
	}
	if r.Exit.TimedOut {
		text += " timed-out"
	}
	return text
}

func statusWords(r plan.Row) string {
	if r.Status == nil {
		return ""
	}
	return string(r.Status.Stage)
}

func verdictWords(v *plan.Verdict) string {
	if v == nil {
		return ""
	}
	text := string(v.Cause)
	if v.ExitCode != nil {
		text += " " + strconv.Itoa(*v.ExitCode)
	}
	if v.Failure != "" {
		text += " " + strconv.Quote(v.Failure)
	}
	return text
}
