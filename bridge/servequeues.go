package bridge

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// serveQueues keeps each queue in force checked in until ctx ends. It begins the check-ins of a queue that comes into force
// later, and ends those of one that goes. Check-ins read the other values of their queue each time.
func (b *Bridge) serveQueues(ctx context.Context, g *errgroup.Group) error {
	served := map[string]func(){}
	for {
		queues := b.inForce.queues()
		for name, stop := range served {
			if _, ok := queues[name]; !ok {
				stop()
				delete(served, name)
			}
		}
		for name, q := range queues {
			if served[name] == nil {
				served[name] = b.serveQueue(ctx, g, q)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.decider.queuesChanged:
			b.nodes.trySurvey(ctx)
		}
	}
}

// serveQueue keeps a queue checked in until ctx ends or stop is called, which also tells the server that the queue has gone.
func (b *Bridge) serveQueue(ctx context.Context, g *errgroup.Group, q plan.Queue) (stop func()) {
	own, cancel := context.WithCancel(ctx)
	g.Go(func() error {
		defer cancel()
		err := b.checkIns(g, q).run(own)
		if own.Err() != nil && ctx.Err() == nil {
			b.queueWorkers.sayGone(ctx, q)
			return nil
		}
		return err
	})
	return cancel
}

// errGone is the outcome of the last check-in of a queue that has gone.
var errGone = errors.New("the queue was removed")

// sayGone tells the server that a queue takes no more bundles. A server that does not answer finds out by itself: the queue
// checks in no more.
func (w *queueWorkers) sayGone(ctx context.Context, q plan.Queue) {
	ctx, cancel := context.WithTimeout(ctx, goodbyeWithin)
	defer cancel()
	in, number := w.checkIn(q)
	in.Reports, in.CPUs, in.FreeDiskBytes, in.ExitAfterNumRuns, in.Closed = []codalab.RunReport{}, 0, 0, 0, "the queue was removed"
	if _, err := w.send(ctx, q.Name, in); err != nil && ctx.Err() == nil {
		w.config.Log.InfoContext(ctx, "the server was not told that a queue has gone", errorAttr(err))
	}
	w.noteUnanswered(q, number, errGone)
}
