package heartbeat

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/drain"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// hold adds a sentence about a cause that keeps bundles from going on.
func (s *Status) hold(format string, args ...any) {
	s.Holds = append(s.Holds, fmt.Sprintf(format, args...))
}

// addHolds adds a sentence for each cause that keeps bundles from going on.
func (s *Status) addHolds() {
	last, hold := s.Last, s.hold
	switch {
	case !s.Running && last != nil && last.Failure != "":
		hold("No bridge runs on this ledger. The last one ended at %s: %s.", termtext.Clock(last.Ended), termtext.Line(last.Failure))
	case !s.Running:
		hold("No bridge runs on this ledger.")
	case s.Starting, last == nil:
	case s.Old:
		hold("%s.", OldSentence)
	default:
		fresh := last.At.Sub(last.Started) < startGrace
		if fresh {
			s.Awaited = awaited(last.Condition)
		}
		if last.Observed.IsZero() && !fresh {
			hold("Slurm has not been seen as a whole since the bridge started: until then nothing is submitted, cancelled or removed.")
		}
		switch {
		case last.Slurm == "":
		case last.SlurmNext.IsZero():
			hold("Slurm does not answer: %s.", termtext.Line(last.Slurm))
		default:
			hold("Slurm has not answered since %s, and is asked again at %s: %s. Until then nothing is submitted or cancelled.",
				termtext.Clock(last.SlurmSince), termtext.Clock(last.SlurmNext), termtext.Line(last.Slurm))
		}
		if last.SettingsFailure != "" && last.Settings == nil {
			hold("Slurm's settings are not known, and safe values are used: %s. slurm.accounting and slurm.min_job_age in the configuration override them.", termtext.Line(last.SettingsFailure))
		}
		for _, queue := range slices.Sorted(maps.Keys(last.Held)) {
			hold("%s", codalab.Sentence(termtext.Line(last.Held[queue])))
		}
		for _, node := range slices.Sorted(maps.Keys(last.Nodes)) {
			hold("Node %s: %s.", termtext.Line(node), termtext.Line(last.Nodes[node]))
		}
		for _, queue := range slices.Sorted(maps.Keys(last.Server)) {
			hold("The server does not take the check-ins of queue %s: %s.", queue, termtext.Line(last.Server[queue]))
		}
		if last.Refused != "" {
			hold("The bridge goes on with the configuration that it had: the file was read again, and refused: %s.", termtext.Line(last.Refused))
		}
		if len(last.UnansweredQueues) > 0 && !fresh {
			hold("The server has not answered a check-in of queue %s since the bridge started.", strings.Join(last.UnansweredQueues, ", "))
		}
		if len(last.LateQueues) > 0 {
			hold("The server takes the reports of queue %s too slowly: no bundle of it is claimed until it hears of each run in time.", strings.Join(last.LateQueues, ", "))
		}
	}
	for _, o := range s.Drains {
		hold("%s", drained(o))
	}
	switch {
	case s.Disk.Silent:
		hold("The shared disk does not answer: a call on %s has not returned for %s. Jobs go on, and work that needs the disk waits.", s.Disk.Shared, diskspace.SilentAfter)
	case s.Disk.Trouble != "":
		hold("The shared disk is not there: %s.", termtext.Line(s.Disk.Trouble))
	case s.Disk.Low != "":
		hold("No bundle is claimed, and no inputs are brought in: %s.", s.Disk.Low)
	}
}

// startGrace is the time after a bridge's start within which the first answers of Slurm and of the server are on their
// way: the server holds a check-in for five seconds.
const startGrace = 20 * time.Second

// awaited says what a bridge waits for that has just started; empty for nothing.
func awaited(c bridge.Condition) string {
	var what []string
	if c.Observed.IsZero() && c.Slurm == "" {
		what = append(what, "of Slurm")
	}
	if len(c.UnansweredQueues) > 0 {
		what = append(what, "of the server for queue "+strings.Join(c.UnansweredQueues, ", "))
	}
	if len(what) == 0 {
		return ""
	}
	return "The bridge has just started, and waits for the first answer " + strings.Join(what, " and ") + "."
}

// drained says that an operator lets the bridge or a queue take no new bundles.
func drained(o drain.Order) string {
	if o.Queue == "" {
		return fmt.Sprintf("The bridge is drained %s. No new bundle is claimed until \"cl-bridge resume\"; those that it has go on.", o)
	}
	return fmt.Sprintf("Queue %s is drained %s. No new bundle is claimed until \"cl-bridge resume %s\"; those that it has go on.", o.Queue, o, o.Queue)
}

// Wait is a cause for which bundles wait.
type Wait struct {
	Bundles int        `json:"bundles"`
	Phase   plan.Phase `json:"phase"`
	// Cause is the cause in the words of one bundle. Those of the others may differ in names and
	// numbers.
	Cause string `json:"cause"`
	// Example is the bundle of these words.
	Example string `json:"example"`
	// TriedAgain is set if something failed, and the bridge tries it again.
	TriedAgain bool `json:"tried_again"`
}

// variable matches the parts of a cause that differ between bundles that wait for the same.
var variable = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]{12,}|[0-9]+`)

// addWaits counts the causes for which bundles wait, and adds a hold for each of the most
// frequent failures.
func (s *Status) addWaits(rows []*plan.Row) {
	type key struct {
		phase plan.Phase
		again bool
		words string
	}
	found := map[key]*Wait{}
	for _, r := range rows {
		cause, again := causeOf(r)
		if cause == "" {
			continue
		}
		k := key{r.Phase, again, variable.ReplaceAllString(cause, "#")}
		w := found[k]
		if w == nil {
			w = &Wait{Phase: r.Phase, TriedAgain: again}
			found[k] = w
		}
		if w.Bundles++; w.Example == "" || r.Bundle < w.Example {
			w.Cause, w.Example = cause, r.Bundle
		}
	}
	s.Waits = []Wait{}
	for _, w := range found {
		s.Waits = append(s.Waits, *w)
	}
	slices.SortFunc(s.Waits, func(a, b Wait) int {
		return cmp.Or(-cmp.Compare(a.Bundles, b.Bundles), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Cause, b.Cause))
	})
	const most = 5
	failures := 0
	for _, w := range s.Waits {
		if !w.TriedAgain {
			continue
		}
		if failures++; failures <= most {
			s.hold("%s: %s.", triedAgain(w.Bundles, w.Phase), w.Cause)
		}
	}
	if failures > most {
		s.hold("There are %d other reasons for which bundles are tried again.", failures-most)
	}
}

// causeOf returns the cause for which a row does not go on, empty if it goes on, and whether the bridge tries
// something again.
func causeOf(r *plan.Row) (cause string, again bool) {
	failed := r.FailedTries > 0 && r.LastFailure != ""
	switch r.Phase {
	case plan.Submitting, plan.Staging, plan.Collecting:
		if failed {
			return termtext.Line(r.LastFailure), true
		}
		if r.Phase == plan.Staging && (r.Staged != nil || r.DiskLow != "") {
			return termtext.Line(waitsFor(*r)), false
		}
	case plan.Queued:
		if r.Job.State == sbatch.StatePending && r.Job.Reason != "" && r.Job.Reason != "None" {
			return "Slurm says " + termtext.Line(r.Job.Reason), false
		}
	case plan.Claiming, plan.Running, plan.Stopping, plan.Finalizing, plan.Done:
	}
	return "", false
}

func triedAgain(n int, phase plan.Phase) string {
	if n == 1 {
		return fmt.Sprintf("1 bundle in %s is tried again", phase)
	}
	return fmt.Sprintf("%d bundles in %s are tried again", n, phase)
}
