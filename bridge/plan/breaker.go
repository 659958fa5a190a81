package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// breaker holds a queue up while its failures are not the bundles' fault: Slurm accepts no job of the
// queue (package canary), or commands fail to start on several nodes. A queue that is held up submits one
// row at a time, as a probe, after longer and longer pauses. The first success opens it again. A breaker
// is in memory only: after a restart of the bridge the next failures hold the queue up again. The zero
// value holds nothing up.
type breaker struct {
	// words is the message of the last failure.
	words string
	// since is the time from which the queue is held up, nextProbe the earliest time of its next
	// submission; zero while it is not held up.
	since, nextProbe time.Time

	workedAt time.Time    // the last success
	failedAt time.Time    // the last failure after that
	starts   failedStarts // since then
	probes   int
}

// noteSuccess notes a success. A success from before the last failure opens nothing.
func (b *breaker) noteSuccess(at time.Time) {
	if !at.Before(b.failedAt) {
		*b = breaker{workedAt: at}
	}
}

// noteFailure holds the queue up, unless a success came after since, the time at which the failure began.
func (b *breaker) noteFailure(now, since time.Time, words string) {
	if b.worked(since) {
		return
	}
	b.failedAt, b.words = now, words
	if !b.held() {
		b.since = now
		b.probe(now)
	}
}

// noteFailedStart notes the last failed start of a row, as in failedStarts.add. Failed starts on two nodes hold the queue up.
func (b *breaker) noteFailedStart(now time.Time, r Row, pack sbatch.JobID) {
	b.failedAt, b.words = now, r.LastFailure
	b.starts.add(r, pack)
	if b.held() || b.starts.severalNodes && b.starts.noBundles {
		b.noteFailure(now, now, r.LastFailure)
	}
}

// failedStarts are starts of commands that failed. Those in one pack count once: its members fail together on a sick node, and all of
// them may have one broken image.
type failedStarts struct {
	node, bundle string // of the first one
	packs        map[sbatch.JobID]bool
	severalNodes bool
	// noBundles is set if no bundle is at fault: the worker is sure of that, or several jobs failed, of several bundles. A
	// bundle that fails alone, on every node, may have a broken image.
	noBundles bool
}

// add notes the last failed start of a row, and reports whether it counts. pack is the job of a pack, 0 for a job of the row's own.
func (f *failedStarts) add(r Row, pack sbatch.JobID) (counts bool) {
	if f.bundle == "" {
		f.node, f.bundle = r.FailedNode, r.Bundle
	}
	if counts = !f.packs[pack]; counts && pack != 0 {
		if f.packs == nil {
			f.packs = map[sbatch.JobID]bool{}
		}
		f.packs[pack] = true
	}
	f.severalNodes = f.severalNodes || r.FailedNode != f.node
	f.noBundles = f.noBundles || r.FailedSurely || counts && r.Bundle != f.bundle
	return counts
}

// worked reports whether a success came after a time.
func (b *breaker) worked(since time.Time) bool { return b.workedAt.After(since) }

// probe begins the pause before the next probe.
func (b *breaker) probe(now time.Time) {
	b.probes++
	b.nextProbe = now.Add(backoff.After(b.probes, time.Minute, longestProbePause))
}

const longestProbePause = 10 * time.Minute

// held reports whether the queue is held up.
func (b *breaker) held() bool { return !b.since.IsZero() }

// Health has the bridge's observations of one queue.
type Health struct {
	// refusals notes Slurm's refusals of submissions, reasons the reasons for which accepted jobs can never
	// start, and starts the commands that fail to start on the queue's nodes.
	refusals, reasons, starts breaker
}

// breakers returns the breakers in the order of Held's sentences.
func (h *Health) breakers() []*breaker { return []*breaker{&h.refusals, &h.reasons, &h.starts} }

// held reports whether the queue is held up.
func (h *Health) held() bool { return slices.ContainsFunc(h.breakers(), (*breaker).held) }

// MaySubmit returns the number of rows of the queue that may be submitted now, at most most. A queue that is
// held up submits one row after each pause.
func (h *Health) MaySubmit(now time.Time, most int) int {
	for _, b := range h.breakers() {
		switch {
		case !b.held():
		case now.Before(b.nextProbe):
			return 0
		default:
			most = min(most, 1)
		}
	}
	return most
}

// Submitted notes the submission of a row. If the queue is held up the row is a probe, and the next
// pause begins.
func (h *Health) Submitted(now time.Time) {
	for _, b := range h.breakers() {
		if b.held() {
			b.probe(now)
		}
	}
}

// Candidates returns the rows of waiting that may be submitted. In a queue that is held up it prefers the
// rows that have not failed themselves.
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

// NextProbe returns the time of the next probe; zero if the queue is not held up.
func (h *Health) NextProbe() time.Time {
	var next time.Time
	for _, b := range h.breakers() {
		if b.nextProbe.After(next) {
			next = b.nextProbe
		}
	}
	return next
}

// Held returns the reason for which the queue is held up, as text that may follow "Waiting: "; empty if it
// is not.
func (h *Health) Held(q Queue) string {
	if !h.held() {
		return ""
	}
	var why []string
	for i, what := range []string{
		"Slurm takes no job of queue %s since %s (%s)",
		"no job of queue %s can start since %s (%s)",
		"no command has started on the nodes of queue %s since %s (%s)",
	} {
		if b := h.breakers()[i]; b.held() {
			why = append(why, fmt.Sprintf(what, q.Tag, b.since.Format(time.TimeOnly), trimDot(b.words)))
		}
	}
	return strings.Join(why, ", and ") + "; one bundle is tried again at " + h.NextProbe().Format(time.TimeOnly)
}

// Judge notes the news about the queue in h: Slurm's answer about the queue's smallest job, and reasons
// for which the row's job can never start and which are the queue's fault. It also sets n.QueueWorked.
func (h *Health) Judge(now time.Time, r Row, n *News) {
	n.QueueWorked = h.refusals.worked(cmp.Or(r.RefusedSince, now))
	if s := n.Submitted; s != nil && s.Attempt == r.Attempt.Number && s.Refused && !s.Retry && r.Exclude == "" {
		if s.OfQueue {
			h.refusals.noteFailure(now, now, s.Words)
		} else {
			h.refusals.noteSuccess(now)
		}
	}
	if r.Phase != Queued {
		return
	}
	since := cmp.Or(r.ImpossibleSince, now)
	if c := n.Canary; c != nil && c.Refusal != "" {
		h.reasons.noteFailure(now, since, r.Job.Reason+": "+c.Refusal)
	}
	if n.Observation == nil {
		return
	}
	for _, j := range n.Observation.Jobs {
		if j.ID == r.Job.ID && r.reasonOfQueue(j.Reason) {
			h.reasons.noteFailure(now, since, j.Reason)
		}
	}
}

// Learn notes what a decision shows about the queue in h, and about nodes in nodes.
func (h *Health) Learn(now time.Time, before, after Row, nodes Nodes) {
	if after.Attempt.Number == before.Attempt.Number && after.Job.ID != 0 && before.Job.ID == 0 {
		h.refusals.noteSuccess(after.SubmittedAt)
	}
	if after.canStart() && !before.canStart() {
		h.reasons.noteSuccess(now)
	}
	switch {
	case after.FailedStarts > before.FailedStarts:
		var pack sbatch.JobID
		if before.Pack {
			pack = before.Job.ID
		}
		nodes.failed(now, after, pack)
		h.starts.noteFailedStart(now, after, pack)
	case after.CommandBegan && !before.CommandBegan:
		delete(nodes, after.Node())
		h.starts.noteSuccess(now)
	}
}

// canStart reports whether Slurm has shown that the row's job can start: the attempt has begun, or the
// job waits for something that will pass.
func (r Row) canStart() bool {
	waits := r.Job.State == sbatch.StatePending && r.Job.Reason != "" && r.Job.Reason != "None"
	return r.Begun != nil || waits && !impossible(r.Job.Reason)
}

// Nodes has the nodes on which commands failed to start, by name. It is in memory only, like a breaker.
type Nodes map[string]SickNode

// SickNode counts the failures on a node since a command last started there.
type SickNode struct {
	// Failures counts the jobs whose command did not start. Words is the last one's message.
	Failures int
	Words    string
	// AvoidedUntil is the time until which the bridge sends no job to the node; zero if it does not avoid it.
	AvoidedUntil time.Time
	starts       failedStarts
}

// leastFailures is the number of successive jobs that fail on a node, for no fault of a bundle, before
// the bridge avoids the node.
const leastFailures = 2

// failed notes the last failed start of a row, as in failedStarts.add.
func (n Nodes) failed(now time.Time, r Row, pack sbatch.JobID) {
	node := r.FailedNode
	if !isNodeName(node) { // the name is unknown, or --exclude cannot contain it
		return
	}
	sick := n[node]
	if sick.Words = r.LastFailure; sick.starts.add(r, pack) {
		sick.Failures++
	}
	if sick.starts.noBundles && sick.Failures >= leastFailures {
		sick.AvoidedUntil = now.Add(backoff.After(sick.Failures-leastFailures+1, 10*time.Minute, longestAvoided))
	}
	n[node] = sick
}

const longestAvoided = 2 * time.Hour

// Avoided returns the nodes that the bridge avoids now.
func (n Nodes) Avoided(now time.Time) []string {
	var names []string
	for name, sick := range n {
		if now.Before(sick.AvoidedUntil) {
			names = append(names, name)
		}
	}
	return names
}

// Exclude returns the nodes that the row's next attempt excludes, separated by commas: the nodes on which
// its own command did not start, and the avoided ones. It is empty after Slurm has refused the bundle
// with nodes excluded, because the bundle may need them.
func (n Nodes) Exclude(now time.Time, r Row) string {
	if r.AnyNode {
		return ""
	}
	return joinNodes(append(n.Avoided(now), strings.Split(r.SickNodes, ",")...)...)
}
