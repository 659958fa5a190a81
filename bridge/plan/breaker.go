package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// breaker holds a queue up while its failures are not the bundles' fault: Slurm refuses whatever
// is submitted to the queue, or no command starts on any of its nodes. A queue that is held up
// submits one row at a time, as a probe, after longer and longer pauses. The first success opens it
// again. A breaker is memory only: after a restart of the bridge the next failures hold the queue up
// again. The zero value holds nothing up.
type breaker struct {
	// words are those of the last failure.
	words string
	// since is when the queue was held up, nextProbe when its next row may be submitted; zero while
	// it is not.
	since, nextProbe time.Time

	workedAt time.Time       // the last success
	failedAt time.Time       // the last failure after that
	alike    string          // failure.alike of the failures since then
	differ   map[string]bool // failure.of of each
	probes   int
}

// noteSuccess notes a success. One that came before the last failure, and is known only now, opens nothing.
func (b *breaker) noteSuccess(at time.Time) {
	if !at.Before(b.failedAt) {
		*b = breaker{workedAt: at}
	}
}

// failure is one failure of a row.
type failure struct {
	// since is when the row began to fail.
	since time.Time
	// of is what failed: a request or a node. Failures with the same alike count together.
	of, alike string
	words     string
	// ofQueue is set if no bundle can be at fault: Slurm refuses the queue's account.
	ofQueue bool
}

// noteFailure notes a failure, and reports whether the queue is at fault and not the row: nothing has
// worked since the row began to fail, and no bundle can be at fault, or different requests, or commands
// on different nodes, fail alike.
func (b *breaker) noteFailure(now time.Time, f failure) bool {
	if b.worked(f.since) {
		return false
	}
	b.failedAt = now
	if f.alike != b.alike || b.differ == nil {
		b.alike, b.differ = f.alike, map[string]bool{}
	}
	b.words, b.differ[f.of] = f.words, true
	if !b.held() {
		if len(b.differ) < 2 && !f.ofQueue {
			return false
		}
		b.since = now
		b.probe(now)
	}
	return true
}

// worked reports whether anything has worked after a time.
func (b *breaker) worked(since time.Time) bool { return b.workedAt.After(since) }

// probe begins a pause: 1 minute, doubled up to ten.
func (b *breaker) probe(now time.Time) {
	b.nextProbe = now.Add(min(time.Minute<<min(b.probes, 4), longestProbePause))
	b.probes++
}

const longestProbePause = 10 * time.Minute

// held reports whether the queue is held up.
func (b *breaker) held() bool { return !b.since.IsZero() }

// Health is what the bridge has seen of a queue.
type Health struct {
	// refusals is about Slurm's refusals of submissions, reasons about those for which jobs that it took
	// can never start, and starts about commands that do not start on the queue's nodes.
	refusals, reasons, starts breaker
}

// breakers are in the order of Held's sentences.
func (h *Health) breakers() []*breaker { return []*breaker{&h.refusals, &h.reasons, &h.starts} }

// held reports whether the queue is held up.
func (h *Health) held() bool { return slices.ContainsFunc(h.breakers(), (*breaker).held) }

// Room is how many of the rows that have room may be submitted now: of a queue that is held up it is
// one after each pause.
func (h *Health) Room(now time.Time, room int) int {
	for _, b := range h.breakers() {
		switch {
		case !b.held():
		case now.Before(b.nextProbe):
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
	for _, b := range h.breakers() {
		if b.held() {
			b.probe(now)
		}
	}
}

// Candidates returns the rows that may be submitted. Of a queue that is held up these are the rows
// that have not failed themselves, while there are any.
func (h *Health) Candidates(waiting []*Row) []*Row {
	if !h.held() {
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
	var next time.Time
	for _, b := range h.breakers() {
		if b.nextProbe.After(next) {
			next = b.nextProbe
		}
	}
	return next
}

// Held says why a queue is held up, in a sentence that may follow "Waiting: "; empty if it is not.
func (h *Health) Held(q Queue) string {
	var why []string
	for i, what := range []string{
		"Slurm has taken no job of queue %s since %s (%s)",
		"no job of queue %s can start since %s (%s)",
		"no command has started on the nodes of queue %s since %s (%s)",
	} {
		if b := h.breakers()[i]; b.held() {
			why = append(why, fmt.Sprintf(what, q.Tag, b.since.Format(time.TimeOnly), trimDot(b.words)))
		}
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
	n.QueueWorked = h.refusals.worked(since)
	n.QueueTrouble = h.judge(now, since, r, n)
}

func (h *Health) judge(now, since time.Time, r Row, n *News) bool {
	if s := n.Submitted; s != nil && s.Attempt == r.Attempt.Number && s.Refused && !s.Retry && (r.Exclude == "" || s.OfQueue) {
		if s.OfQueue { // it says what is so now, whatever Slurm has taken since the row's first refusal
			since = now
		}
		return h.refusals.noteFailure(now, failure{since: since, of: shape(r.Resources), alike: s.Words, words: s.Words, ofQueue: s.OfQueue})
	}
	if n.Observation == nil || r.Phase != Queued {
		return false
	}
	since = cmp.Or(r.ImpossibleSince, now)
	for _, j := range n.Observation.Jobs {
		if j.ID == r.Job.ID && impossible(j.Reason) {
			return h.reasons.noteFailure(now, failure{since: since, of: shape(r.Resources), alike: j.Reason, words: j.Reason, ofQueue: reasonOfQueue(j.Reason)})
		}
	}
	return false
}

// shape is what a request asks for.
func shape(r codalab.Resources) string { return fmt.Sprint(r.CPUs, r.GPUs, r.Memory, r.Time) }

// Learn notes what a decision shows of the queue's health, and of the nodes'.
func (h *Health) Learn(now time.Time, before, after Row, nodes Nodes) {
	if after.Attempt.Number == before.Attempt.Number && after.Job.ID != 0 && before.Job.ID == 0 {
		h.refusals.noteSuccess(after.SubmittedAt)
	}
	if after.canStart() && !before.canStart() {
		h.reasons.noteSuccess(now)
	}
	switch {
	case after.FailedStarts > before.FailedStarts:
		nodes.failed(now, after.FailedNode, after.LastFailure)
		h.starts.noteFailure(now, failure{since: now, of: after.FailedNode, words: after.LastFailure})
	case after.commandStarted() && !before.commandStarted():
		delete(nodes, after.Begun.Node)
		h.starts.noteSuccess(now)
	}
}

// canStart reports whether Slurm has shown that the row's job can start: it has begun, or it waits for
// something that passes.
func (r Row) canStart() bool {
	waits := r.Job.State == sbatch.StatePending && r.Job.Reason != "" && r.Job.Reason != "None"
	return r.Begun != nil || waits && !impossible(r.Job.Reason)
}

// Nodes are the nodes on which commands did not start, by name. Like a breaker they are memory only.
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
