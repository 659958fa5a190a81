package bridge

import (
	"context"
	"errors"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// CheckIn makes the next check-in of a queue's identity, and returns its number. The caller
// passes the number to Answered or Unanswered, once.
func (b *Bridge) CheckIn(q plan.Queue) (codalab.CheckIn, int64) {
	late := b.reports.late(q.Name, b.Now())
	b.beat.late(q.Name, late)
	closed := b.view.closed(late)
	told := b.reports.checkIn(q.Name, b.Identity(q.Name), b.Now())
	offer := b.view.offer(q.Name, b.Standalone != nil && b.Standalone.Local)
	in := codalab.CheckIn{
		Tag: q.Tag, TagExclusive: !q.Default, Hostname: b.Hostname, Runs: told.Runs,
		CPUs: offer.CPUs, GPUs: offer.GPUs, MemoryBytes: offer.Memory, FreeDiskBytes: b.view.freeDisk(),
		Dependencies: [][2]string{}, ExitAfterNumRuns: codalab.UnlimitedRuns,
		SharedFileSystem: b.SharedDisk, Instance: b.Policy.Bridge,
	}
	if b.Standalone == nil || !b.Standalone.Local {
		in.Nodes = offeredSizes(q, b.view.nodeSizes(q.Name))
	}
	if group := q.Group; group != "" { // a copy: the whole queue would be copied for the pointer
		in.GroupName = &group
	}
	if b.Standalone != nil && b.Standalone.Remote != "" {
		for i := range in.Runs {
			in.Runs[i].Remote = b.Standalone.Remote
		}
	}
	b.describe(&in)
	if closed != "" { // the server gives no bundle to an identity that offers nothing
		in.CPUs, in.FreeDiskBytes, in.ExitAfterNumRuns, in.Closed = 0, 0, 0, closed
	}
	return in, told.Number
}

// closed returns why the bridge asks for no more bundles of a queue; empty if it does. late is the queue's.
func (v *view) closed(late bool) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.low == "" && late {
		return "the server is slow to take the reports of the bundles that run there"
	}
	return v.low
}

// Answered notes the answer to a check-in: the server has applied its reports, and its messages
// are news. From now on no check-in reports a run that one of the messages acknowledges.
func (b *Bridge) Answered(q plan.Queue, number int64, messages []codalab.Message) {
	for _, bundle := range b.reports.answered(q.Name, number, messages, b.Now()) {
		b.inbox.put(bundle, func(n *plan.News) { n.Restaged = true })
	}
	if len(messages) > 0 {
		b.inbox.deliver(q.Name, messages)
	}
}

// Unanswered notes that a check-in got no answer but an error. The server may have applied its
// reports, or may do so later, unless it refused the check-in as too large. Unanswered reports
// whether it did and the next check-in is smaller.
func (b *Bridge) Unanswered(q plan.Queue, number int64, err error) (smaller bool) {
	var refused *codalab.Error
	if errors.As(err, &refused) && refused.TooLarge() && b.reports.refused(q.Name, number) {
		return true
	}
	for _, bundle := range b.reports.doubt(q.Name, number, b.Now()) {
		b.inbox.put(bundle, func(n *plan.News) { n.Unanswered = true })
	}
	return false
}

// proofsAtOnce is how many bundles Prove asks for in one call.
const proofsAtOnce = 8

// Prove asks the server whether it has applied reports for which newer reports of a queue's
// runs wait. It reports whether some are left to ask for.
func (b *Bridge) Prove(ctx context.Context, q plan.Queue) (left bool) {
	bundles := b.reports.unproven(q.Name)
	for _, bundle := range bundles[:min(len(bundles), proofsAtOnce)] {
		shown, err := b.Service.Standing(ctx, bundle)
		if err != nil {
			shown = codalab.Standing{} // it proves nothing
		}
		b.reports.prove(q.Name, bundle, shown)
	}
	return len(b.reports.unproven(q.Name)) > 0
}
