package bridge

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// queueWorkers are the workers as which the server knows the bridge, one for each queue. It makes their
// check-ins, and passes on the answers. It is safe for concurrent use.
type queueWorkers struct {
	config    *Config
	inForce   *inForce
	board     *board
	life      *life
	condition *condition
	inbox     *inbox
}

// checkIn implements Bridge.CheckIn.
func (w *queueWorkers) checkIn(q plan.Queue) (codalab.CheckIn, int64) {
	c, now, name := w.config, w.config.Now(), w.config.WorkerID(q.Name)
	reportsLate := w.board.reports.reportsLate(q.Name, now)
	w.condition.noteLate(q.Name, reportsLate)
	closed := cmp.Or(w.stopped(), w.board.capacity.closed(q.Name, reportsLate))
	told := w.board.reports.checkIn(q.Name, name, now)
	capacity := w.board.capacity.of(q.Name, w.life.local(), now)
	in := codalab.CheckIn{
		Tag: q.Tag, TagExclusive: !q.Default, Hostname: c.Hostname, Reports: told.Reports,
		CPUs: capacity.CPUs, GPUs: capacity.GPUs, MemoryBytes: capacity.Memory, FreeDiskBytes: w.board.capacity.freeDisk(),
		Dependencies: [][2]string{}, ExitAfterNumRuns: codalab.UnlimitedRuns,
		SharedFileSystem: c.SharedDisk, Instance: c.Policy.Bridge, Secrets: c.Secrets != nil,
	}
	if !w.life.local() {
		in.Nodes = q.Requestable(w.board.capacity.nodeSizes(q.Name))
		in.Queue = w.describe(q, now)
		in.Together = q.Together()
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
	if closed != "" { // the server gives no bundle to a worker without capacity
		in.CPUs, in.FreeDiskBytes, in.ExitAfterNumRuns, in.Closed = 0, 0, 0, closed
	}
	return in, told.Number
}

// noteAnswer implements Bridge.NoteAnswer.
func (w *queueWorkers) noteAnswer(q plan.Queue, number int64, messages []codalab.Message) {
	for _, bundle := range w.board.reports.noteAnswer(q.Name, number, messages, w.config.Now()) {
		w.inbox.put(bundle, func(n *plan.News) { n.Restaged = true })
	}
	if len(messages) > 0 {
		w.inbox.putMessages(q.Name, messages)
	}
}

// noteUnanswered implements Bridge.NoteUnanswered.
func (w *queueWorkers) noteUnanswered(q plan.Queue, number int64, err error) (smaller bool) {
	var serverErr *codalab.Error
	if errors.As(err, &serverErr) && serverErr.TooLarge() && w.board.reports.refused(q.Name, number) {
		return true
	}
	for _, bundle := range w.board.reports.doubt(q.Name, number, w.config.Now()) {
		w.inbox.put(bundle, func(n *plan.News) { n.Unanswered = true })
	}
	return false
}

// proofsAtOnce bounds the bundles for which prove asks in one call.
const proofsAtOnce = 8

// prove implements Bridge.Prove.
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

// stoppedWords is why a bridge that has been stopped takes no runs.
const stoppedWords = "the bridge was stopped"

// stopped returns why a bridge that ends takes no more runs; empty while it works. A stand-alone worker says in other
// fields that it ends.
func (w *queueWorkers) stopped() string {
	switch {
	case w.life.standalone != nil || !w.life.ending.Load():
		return ""
	case w.config.Once != nil:
		return passWords
	}
	return stoppedWords
}

// sayGoodbye checks out: when a signal has ended the work, the workers of all queues tell the server that they take no
// more runs. Else the server would go on to give them some for a minute. Their runs go on, and are not reported; the
// server keeps them as those of a worker that has fallen silent, and the next start reports them again.
//
// It is a check-in like others, because CodaLab's server has no call to check out. Earlier versions had one, which took
// the runs away from the worker as well (codalab/rest/workers.py: checkout, until commit cd425c68, "Remove worker
// checkout"). A bridge that is started again at once must not lose its runs.
func (w *queueWorkers) sayGoodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, goodbyeWithin)
	defer cancel()
	w.life.ending.Store(true)
	var g errgroup.Group // CodaLab's own server holds each check-in for longer than goodbyeWithin
	for _, q := range w.inForce.queues() {
		in, _ := w.checkIn(q)
		in.Reports, in.ExitAfterNumRuns = []codalab.RunReport{}, 0
		g.Go(func() error {
			_, err := w.send(ctx, q.Name, in)
			return err
		})
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		w.config.Log.InfoContext(ctx, "the server was not told that the bridge ends", errorAttr(err))
	}
}
