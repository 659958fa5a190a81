package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Breaker holds a queue up while its failures are not the bundles' fault: Slurm refuses whatever
// is submitted to the queue, or no command starts on any of its nodes. A queue that is held up
// submits one row at a time, as a probe, after longer and longer pauses. The first success opens it
// again. A Breaker is memory only: after a restart of the bridge the next failures hold the queue up
// again. The zero value holds nothing up.
type Breaker struct {
	// Words are those of the last failure.
	Words string
	// Since is when the queue was held up, NextProbe when its next row may be submitted; zero while
	// it is not.
	Since, NextProbe time.Time

	workedAt time.Time       // the last success
	alike    string          // what the failures since then have in common
	differ   map[string]bool // the requests, or the nodes, that they are of
	probes   int
}

// Worked notes a success.
func (b *Breaker) Worked(now time.Time) { *b = Breaker{workedAt: now} }

// Failure is one failure of a row.
type Failure struct {
	// Since is when the row began to fail.
	Since time.Time
	// Of is what failed: a request or a node. Alike is what it has to have in common with failures of
	// others to count with them.
	Of, Alike string
	Words     string
	// OfQueue is set if it certainly is no bundle's fault: the queue's account is refused.
	OfQueue bool
}

// Failed notes a failure, and reports whether it is the queue's and not the row's. It is if it
// certainly is no bundle's. It is also if different requests, or commands on different nodes, fail
// alike, and nothing has worked since the row began to fail.
func (b *Breaker) Failed(now time.Time, f Failure) bool {
	if b.worked(f.Since) && !f.OfQueue {
		return false
	}
	if f.Alike != b.alike || b.differ == nil {
		b.alike, b.differ = f.Alike, map[string]bool{}
	}
	b.Words, b.differ[f.Of] = f.Words, true
	switch {
	case b.Since.IsZero() && !f.OfQueue && len(b.differ) < 2:
		return false
	case b.Since.IsZero():
		b.Since = now
	case now.Before(b.NextProbe): // it was submitted before the queue was held up
		return true
	}
	b.probe(now)
	return true
}

// worked reports whether anything has worked after a time.
func (b *Breaker) worked(since time.Time) bool { return b.workedAt.After(since) }

// probe begins a pause: 1 minute, doubled up to ten.
func (b *Breaker) probe(now time.Time) {
	b.NextProbe = now.Add(min(time.Minute<<min(b.probes, 4), longestProbePause))
	b.probes++
}

const longestProbePause = 10 * time.Minute

// held reports whether the queue is held up.
func (b *Breaker) held() bool { return !b.Since.IsZero() }

// Health is what the bridge has seen of a queue.
type Health struct {
	// Refusals are Slurm's of submissions, and reasons for which jobs can never start. Starts are the
	// failed starts of commands on the queue's nodes.
	Refusals, Starts Breaker
}

// Room is how many of the rows that have room may be submitted now: of a queue that is held up it is
// one after each pause.
func (h *Health) Room(now time.Time, room int) int {
	for _, b := range []*Breaker{&h.Refusals, &h.Starts} {
		switch {
		case !b.held():
		case now.Before(b.NextProbe):
			return 0
		default:
			room = min(room, 1)
		}
	}
	return room
}

// Submitted notes that a row is submitted. If the queue is held up the row is a probe, and the next
// pause begins.
func (h *Health) Submitted(now time.Time) {
	for _, b := range []*Breaker{&h.Refusals, &h.Starts} {
		if b.held() {
			b.probe(now)
		}
	}
}

// Candidates returns the rows that may be submitted. Of a queue that is held up these are the rows
// that have not failed themselves, while there are any.
func (h *Health) Candidates(waiting []*Row) []*Row {
	if !h.Refusals.held() && !h.Starts.held() {
		return waiting
	}
	unfailed := slices.DeleteFunc(slices.Clone(waiting), func(r *Row) bool { return !r.RefusedSince.IsZero() || r.SickNodes != "" })
	if len(unfailed) == 0 {
		return waiting
	}
	return unfailed
}

// NextProbe is when a row of a queue that is held up may be submitted; zero if none is held up.
func (h *Health) NextProbe() time.Time {
	next := h.Refusals.NextProbe
	if h.Starts.NextProbe.After(next) {
		next = h.Starts.NextProbe
	}
	return next
}

// Held says why a queue is held up, in a sentence that may follow "Waiting: "; empty if it is not.
func (h *Health) Held(q Queue) string {
	var why []string
	if b := h.Refusals; b.held() {
		why = append(why, fmt.Sprintf("Slurm has taken no job of queue %s since %s (%s)", q.Tag, b.Since.Format(time.TimeOnly), trimDot(b.Words)))
	}
	if b := h.Starts; b.held() {
		why = append(why, fmt.Sprintf("no command has started on the nodes of queue %s since %s (%s)", q.Tag, b.Since.Format(time.TimeOnly), trimDot(b.Words)))
	}
	if len(why) == 0 {
		return ""
	}
	return strings.Join(why, ", and ") + "; one bundle is tried again at " + h.NextProbe().Format(time.TimeOnly)
}

// Judge notes Slurm's refusal of the row's submission, or the reason for which its job can never
// start, if the news has one, and completes the news.
func (h *Health) Judge(now time.Time, r Row, n *News) {
	since := r.RefusedSince
	if since.IsZero() {
		since = now
	}
	n.QueueWorked = h.Refusals.worked(since)
	n.QueueTrouble = h.judge(now, since, r, n)
}

func (h *Health) judge(now, since time.Time, r Row, n *News) bool {
	if s := n.Submitted; s != nil && s.Attempt == r.Attempt.Number && s.Refused && !s.Retry && (r.Exclude == "" || s.OfQueue) {
		return h.Refusals.Failed(now, Failure{Since: since, Of: shape(r.Resources), Alike: s.Words, Words: s.Words, OfQueue: s.OfQueue})
	}
	if n.Observation == nil || r.Phase != Queued {
		return false
	}
	for _, j := range n.Observation.Jobs {
		if j.ID == r.Job.ID && impossible(j.Reason) {
			return h.Refusals.Failed(now, Failure{Since: now, Of: shape(r.Resources), Alike: j.Reason, Words: j.Reason, OfQueue: reasonOfQueue(j.Reason)})
		}
	}
	return false
}

// shape is what a request asks for.
func shape(r codalab.Resources) string { return fmt.Sprint(r.CPUs, r.GPUs, r.Memory, r.Time) }

// Learn notes what a decision shows of the queue's health, and of the nodes'.
func (h *Health) Learn(now time.Time, before, after Row, nodes Nodes) {
	if after.Attempt.Number == before.Attempt.Number && after.Job.ID != 0 && before.Job.ID == 0 {
		h.Refusals.Worked(now)
	}
	switch {
	case after.FailedStarts > before.FailedStarts:
		nodes.failed(now, after.FailedNode, after.LastFailure)
		h.Starts.Failed(now, Failure{Since: now, Of: after.FailedNode, Words: after.LastFailure})
	case after.commandStarted() && !before.commandStarted():
		delete(nodes, after.Begun.Node)
		h.Starts.Worked(now)
	}
}

// Nodes are the nodes on which commands did not start, by name. Like a Breaker they are memory only.
type Nodes map[string]SickNode

// SickNode is what happened on a node since a command last started there.
type SickNode struct {
	// Failures counts the jobs whose command did not start. Words are the last one's.
	Failures int
	Words    string
	// AvoidedUntil is until when no job is sent to the node; zero if it is not avoided.
	AvoidedUntil time.Time
}

// leastFailures is how many jobs in a row fail on a node before the bridge avoids it.
const leastFailures = 2

// failed notes that a command did not start on a node.
func (n Nodes) failed(now time.Time, node, words string) {
	if node == "" {
		return
	}
	sick := n[node]
	sick.Failures, sick.Words = sick.Failures+1, words
	if sick.Failures >= leastFailures {
		sick.AvoidedUntil = now.Add(min(10*time.Minute<<min(sick.Failures-leastFailures, 4), longestAvoided))
	}
	n[node] = sick
}

const longestAvoided = 2 * time.Hour

// Avoided lists the nodes to which no job is sent now.
func (n Nodes) Avoided(now time.Time) []string {
	var names []string
	for name, sick := range n {
		if now.Before(sick.AvoidedUntil) {
			names = append(names, name)
		}
	}
	return names
}

// Exclude returns the nodes on which a row's next attempt shall not run, separated by commas: those on
// which its own command did not start, and those that are avoided. It is empty once Slurm has refused
// the bundle with nodes excluded: it may need them.
func (n Nodes) Exclude(now time.Time, r Row) string {
	if r.AnyNode {
		return ""
	}
	return joinNodes(append(n.Avoided(now), strings.Split(r.SickNodes, ",")...)...)
}

// joinNodes makes a list of nodes, each once, in order.
func joinNodes(names ...string) string {
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
	return strings.Join(names, ",")
}
