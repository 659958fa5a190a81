package staging

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// turns hands a number of places out to downloads. A free place goes to the
// download that waits for a bundle with the fewest places, so that a bundle
// with a hundred dependencies does not keep the others waiting; among equals,
// to the one that has waited longest.
type turns struct {
	mu      sync.Mutex
	free    int
	holding []*download // one for each place that is taken
	queue   []*waiter
}

type waiter struct {
	download *download
	granted  chan struct{}
}

// do calls do when it is the download's turn.
func (q *turns) do(ctx context.Context, d *download, do func() error) error {
	if err := q.take(ctx, d); err != nil {
		return err
	}
	defer q.give(d)
	return do()
}

func (q *turns) take(ctx context.Context, d *download) error {
	w := &waiter{download: d, granted: make(chan struct{})}
	q.mu.Lock()
	q.queue = append(q.queue, w)
	d.places(0, +1)
	q.grant()
	q.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.queue, w); i >= 0 {
		q.queue = slices.Delete(q.queue, i, i+1)
		d.places(0, -1)
	} else { // it was granted in the same moment
		q.leave(d)
	}
	return fmt.Errorf("wait for a turn: %w", ctx.Err())
}

func (q *turns) give(d *download) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave(d)
}

func (q *turns) leave(d *download) {
	i := slices.Index(q.holding, d)
	q.holding = slices.Delete(q.holding, i, i+1)
	d.places(-1, 0)
	q.free++
	q.grant()
}

// grant hands the free places out.
func (q *turns) grant() {
	for q.free > 0 && len(q.queue) > 0 {
		i := q.next()
		w := q.queue[i]
		q.queue = slices.Delete(q.queue, i, i+1)
		q.free--
		q.holding = append(q.holding, w.download)
		w.download.places(+1, -1)
		close(w.granted)
	}
}

// next is whose turn it is.
func (q *turns) next() int {
	has := map[string]int{}
	for _, d := range q.holding {
		for _, bundle := range d.wantedBy() {
			has[bundle]++
		}
	}
	best, least := 0, -1
	for i, w := range q.queue {
		for _, bundle := range w.download.wantedBy() {
			if n := has[bundle]; least < 0 || n < least {
				best, least = i, n
			}
		}
		if least == 0 {
			break
		}
	}
	return best
}

// taken is how many places are taken.
func (q *turns) taken() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.holding)
}
