package bridge

import (
	"context"
	"errors"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// queueWorkers are the workers as which the server knows the bridge, one for each queue. It makes their
// check-ins, and passes on the answers. It is safe for concurrent use.
type queueWorkers struct {
	config    *Config
	board     *board
	life      *life
	condition *condition
	inbox     *inbox
}

// checkIn makes the next check-in of a queue, and returns its number. The caller
// passes the number to noteAnswer or noteUnanswered, once.
func (w *queueWorkers) checkIn(q plan.Queue) (codalab.CheckIn, int64) {
	c, now, name := w.config, w.config.Now(), w.config.WorkerID(q.Name)
	reportsLate := w.board.reports.reportsLate(q.Name, now)
	w.condition.noteLate(q.Name, reportsLate)
	closed := w.board.offers.closed(reportsLate)
	told := w.board.reports.checkIn(q.Name, name, now)
	offer := w.board.offers.of(q.Name, w.life.local())
	in := codalab.CheckIn{
		Tag: q.Tag, TagExclusive: !q.Default, Hostname: c.Hostname, Reports: told.Reports,
		CPUs: offer.CPUs, GPUs: offer.GPUs, MemoryBytes: offer.Memory, FreeDiskBytes: w.board.offers.freeDisk(),
		Dependencies: [][2]string{}, ExitAfterNumRuns: codalab.UnlimitedRuns,
		SharedFileSystem: c.SharedDisk, Instance: c.Policy.Bridge,
	}
	if !w.life.local() {
		in.Nodes = offeredSizes(q, w.board.offers.nodeSizes(q.Name))
	}
	if group := q.Group; group != "" { // a copy: the whole queue would be copied for the pointer
		in.GroupName = &group
	}
	if remote := c.remote(); remote != "" {
		for n := range in.Reports {
			in.Reports[n].Remote = remote
		}
	}
	w.life.describe(now, &in)
	if closed != "" { // the server gives no bundle to a worker that offers nothing
		in.CPUs, in.FreeDiskBytes, in.ExitAfterNumRuns, in.Closed = 0, 0, 0, closed
	}
	return in, told.Number
}

// noteAnswer notes the answer to a check-in: the server has applied its reports, and its messages
// are news. From now on no check-in reports a run that one of the messages acknowledges.
func (w *queueWorkers) noteAnswer(q plan.Queue, number int64, messages []codalab.Message) {
	for _, bundle := range w.board.reports.noteAnswer(q.Name, number, messages, w.config.Now()) {
		w.inbox.put(bundle, func(n *plan.News) { n.Restaged = true })
	}
	if len(messages) > 0 {
		w.inbox.deliver(q.Name, messages)
	}
}

// noteUnanswered notes that a check-in got no answer but an error. The server may have applied its
// reports, or may do so later, unless it refused the check-in as too large. noteUnanswered reports
// whether it did and the next check-in is smaller.
func (w *queueWorkers) noteUnanswered(q plan.Queue, number int64, err error) (smaller bool) {
	if refused, ok := errors.AsType[*codalab.Error](err); ok && refused.TooLarge() && w.board.reports.refused(q.Name, number) {
		return true
	}
	for _, bundle := range w.board.reports.doubt(q.Name, number, w.config.Now()) {
		w.inbox.put(bundle, func(n *plan.News) { n.Unanswered = true })
	}
	return false
}

// proofsAtOnce bounds the bundles for which prove asks in one call.
const proofsAtOnce = 8

// prove asks the server whether it has applied reports for which newer reports of a queue's
// runs wait. It reports whether some are left to ask for.
func (w *queueWorkers) prove(ctx context.Context, q plan.Queue) (left bool) {
	bundles := w.board.reports.unproven(q.Name)
	for _, bundle := range bundles[:min(len(bundles), proofsAtOnce)] {
		shown, err := w.config.Service.Standing(ctx, bundle)
		if err != nil {
			shown = codalab.Standing{} // it proves nothing
		}
		w.board.reports.prove(q.Name, bundle, shown)
	}
	return len(w.board.reports.unproven(q.Name)) > 0
}

// send sends a check-in of a queue.
func (w *queueWorkers) send(ctx context.Context, queue string, in codalab.CheckIn) ([]codalab.Message, error) {
	return w.config.Service.CheckIn(ctx, w.config.WorkerID(queue), in)
}

// sayGoodbye tells the server that a stand-alone worker takes no more runs, when a signal has ended its work.
// Else the server would go on to give it some for a minute. Its runs go on, and are not reported.
func (w *queueWorkers) sayGoodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, goodbyeWithin)
	defer cancel()
	w.life.ending.Store(true)
	for _, q := range w.config.Policy.Queues {
		in, _ := w.checkIn(q)
		in.Reports, in.ExitAfterNumRuns = []codalab.RunReport{}, 0
		if _, err := w.send(ctx, q.Name, in); err != nil && ctx.Err() == nil {
			w.config.Log.InfoContext(ctx, "the server was not told that the worker ends", errorAttr(err))
		}
	}
}
