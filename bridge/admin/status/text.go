package status

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// Text returns a status for people.
func Text(s heartbeat.Status, now time.Time) string {
	said := fmt.Sprintf("Bridge %s %s.\nThe ledger is %s.\n%s\n", s.Bridge, state(s, now), s.Ledger, disk(s.Disk))
	if s.Running && s.Last != nil && s.Last.Settings != nil {
		said += "Slurm: " + termtext.Line(s.Last.Settings.String()) + ".\n"
		if s.Unknown != "" {
			said += s.Unknown + "\n"
		}
		said += limits(s.Last)
	}
	said += "\n"
	for _, h := range s.Holds {
		said += "! " + h + "\n"
	}
	switch {
	case s.Starting:
		said += "What holds it up is not known yet.\n"
	case s.Awaited != "":
		said += s.Awaited + "\n"
	case len(s.Holds) == 0:
		said += "Nothing holds it up.\n"
	}
	if !s.Starting || s.WrittenAt.IsZero() { // a bridge that has read no rows knows of no bundles
		said += "\n" + table(s)
	}
	if waiting := waits(s); waiting != "" {
		said += "\n" + waiting
	}
	if o := s.Oldest; o != nil {
		said += fmt.Sprintf("\nThe oldest bundle that waits is %s, of queue %s, claimed %s ago; it is %s, since %s ago:\n  %s\n",
			o.Bundle, o.Queue, codalab.FormatDuration(now.Sub(o.Claimed)), o.Phase, codalab.FormatDuration(now.Sub(o.Since)), termtext.Line(o.Status))
	}
	return said
}

// limits has a line for the limits of QOS and associations of each queue, and one for those that are not known.
func limits(c *heartbeat.Heartbeat) string {
	said, of := "", map[string][]string{}
	var order []string
	for _, queue := range slices.Sorted(maps.Keys(c.Limits)) {
		words := termtext.Line(strings.Join(c.Limits[queue], "; "))
		if of[words] == nil {
			order = append(order, words)
		}
		of[words] = append(of[words], queue)
	}
	for _, words := range order {
		queues := "queue "
		if len(of[words]) > 1 {
			queues = "queues "
		}
		said += "Limits of " + queues + strings.Join(of[words], ", ") + ": " + words + ".\n"
	}
	if c.LimitsUnknown != "" {
		said += "Not all limits of QOS and associations are known: " + termtext.Line(c.LimitsUnknown) + ".\n"
	}
	return said
}

// state says whether the bridge runs, where, and since when.
func state(s heartbeat.Status, now time.Time) string {
	switch {
	case !s.Running:
		return "does not run"
	case s.Starting:
		return "is starting"
	case s.Last == nil: // its heartbeat cannot be read
		return "runs"
	}
	said := fmt.Sprintf("runs on %s, since %s", termtext.Line(s.Last.Host), termtext.Clock(s.Last.Started))
	if quiet := now.Sub(s.Last.At); s.Old || !s.WrittenAt.IsZero() {
		said += "; its last heartbeat was " + codalab.FormatDuration(quiet) + " ago"
	}
	return said
}

// waits has a line for each cause for which bundles wait although nothing failed.
func waits(s heartbeat.Status) string {
	rows := [][]string{{"BUNDLES", "PHASE", "WAIT FOR"}}
	for _, w := range s.Waits {
		if !w.TriedAgain {
			rows = append(rows, []string{strconv.Itoa(w.Bundles), string(w.Phase), w.Cause})
		}
	}
	if len(rows) == 1 {
		return ""
	}
	return termtext.Table(rows)
}

func disk(d heartbeat.Disk) string {
	if d.Trouble != "" {
		return "The shared directory is " + d.Shared + "."
	}
	return fmt.Sprintf("The shared disk at %s has %s of %s free.", d.Shared, codalab.FormatSize(d.Free), codalab.FormatSize(d.Total))
}

// table has a line for each queue, and a column for each phase that a bundle is in.
func table(s heartbeat.Status) string {
	head := []string{"QUEUE"}
	var phases []plan.Phase
	for _, p := range plan.Phases() {
		for _, q := range s.Queues {
			if q.Phases[p] > 0 {
				head, phases = append(head, string(p)), append(phases, p)
				break
			}
		}
	}
	if len(phases) == 0 {
		return "It has no bundles.\n"
	}
	rows := [][]string{head}
	for _, q := range s.Queues {
		row := []string{q.Queue}
		for _, p := range phases {
			row = append(row, strconv.Itoa(q.Phases[p]))
		}
		rows = append(rows, row)
	}
	return termtext.Table(rows)
}
