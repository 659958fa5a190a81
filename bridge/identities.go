package bridge

import (
	"context"
	"errors"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// identities are the worker identities by which the bridge checks in, one for each queue. It makes their
// check-ins, and passes on the answers. It is safe for concurrent use.
type identities struct {
	config *Config
	board  *board
	life   *life
	beat   *heartbeat
	inbox  *inbox
}

// checkIn implements Bridge.CheckIn.
func (i *identities) checkIn(q plan.Queue) (codalab.CheckIn, int64) {
	c, now, name := i.config, i.config.Now(), i.config.Identity(q.Name)
	reportsLate := i.board.reports.reportsLate(q.Name, now)
	i.beat.noteLate(q.Name, reportsLate)
	closed := i.board.capacity.closed(reportsLate)
	told := i.board.reports.checkIn(q.Name, name, now)
	capacity := i.board.capacity.of(q.Name, i.life.local())
	in := codalab.CheckIn{
		Tag: q.Tag, TagExclusive: !q.Default, Hostname: c.Hostname, Reports: told.Reports,
		CPUs: capacity.CPUs, GPUs: capacity.GPUs, MemoryBytes: capacity.Memory, FreeDiskBytes: i.board.capacity.freeDisk(),
		Dependencies: [][2]string{}, ExitAfterNumRuns: codalab.UnlimitedRuns,
		SharedFileSystem: c.SharedDisk, Instance: c.Policy.Bridge,
	}
	if !i.life.local() {
		in.Nodes = requestableSizes(q, i.board.capacity.nodeSizes(q.Name))
	}
	if group := q.Group; group != "" { // a copy: the whole queue would be copied for the pointer
		in.GroupName = &group
	}
	if remote := c.remote(); remote != "" {
		for n := range in.Reports {
			in.Reports[n].Remote = remote
		}
	}
	i.life.describe(now, &in)
	if closed != "" { // the server gives no bundle to an identity without capacity
		in.CPUs, in.FreeDiskBytes, in.ExitAfterNumRuns, in.Closed = 0, 0, 0, closed
	}
	return in, told.Number
}

// noteAnswer implements Bridge.NoteAnswer.
func (i *identities) noteAnswer(q plan.Queue, number int64, messages []codalab.Message) {
	for _, bundle := range i.board.reports.noteAnswer(q.Name, number, messages, i.config.Now()) {
		i.inbox.put(bundle, func(n *plan.News) { n.Restaged = true })
	}
	if len(messages) > 0 {
		i.inbox.putMessages(q.Name, messages)
	}
}

// noteUnanswered implements Bridge.NoteUnanswered.
func (i *identities) noteUnanswered(q plan.Queue, number int64, err error) (smaller bool) {
	var refused *codalab.Error
	if errors.As(err, &refused) && refused.TooLarge() && i.board.reports.refused(q.Name, number) {
		return true
	}
	for _, bundle := range i.board.reports.doubt(q.Name, number, i.config.Now()) {
		i.inbox.put(bundle, func(n *plan.News) { n.Unanswered = true })
	}
	return false
}

// proofsAtOnce bounds the bundles for which prove asks in one call.
const proofsAtOnce = 8

// prove implements Bridge.Prove.
func (i *identities) prove(ctx context.Context, q plan.Queue) (left bool) {
	bundles := i.board.reports.unproven(q.Name)
	for _, bundle := range bundles[:min(len(bundles), proofsAtOnce)] {
		shown, err := i.config.Service.Standing(ctx, bundle)
		if err != nil {
			shown = codalab.Standing{} // it proves nothing
		}
		i.board.reports.prove(q.Name, bundle, shown)
	}
	return len(i.board.reports.unproven(q.Name)) > 0
}

// send sends a check-in of a queue's identity.
func (i *identities) send(ctx context.Context, queue string, in codalab.CheckIn) ([]codalab.Message, error) {
	return i.config.Service.CheckIn(ctx, i.config.Identity(queue), in)
}

// sayGoodbye tells the server that a stand-alone worker takes no more runs, when a signal has ended its work.
// Else the server would go on to give it some for a minute. Its runs go on, and are not reported.
func (i *identities) sayGoodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, goodbyeWithin)
	defer cancel()
	i.life.ending.Store(true)
	for _, q := range i.config.Policy.Queues {
		in, _ := i.checkIn(q)
		in.Reports, in.ExitAfterNumRuns = []codalab.RunReport{}, 0
		if _, err := i.send(ctx, q.Name, in); err != nil && ctx.Err() == nil {
			i.config.Log.InfoContext(ctx, "the server was not told that the worker ends", errorAttr(err))
		}
	}
}
