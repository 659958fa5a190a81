package transfer

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Queue gives transfers their turns, a number of them at a time. The next turn goes to
// the transfer of the bundle that has the fewest, so that a bundle with a hundred
// dependencies does not hold the others up; among equals, to the one that has waited
// longest. It is safe for concurrent use.
type Queue struct {
	mu      sync.Mutex
	free    int
	holding []*Transfer // one for each turn that is taken
	queue   []*waiter
}

type waiter struct {
	transfer *Transfer
	granted  chan struct{}
}

// NewQueue returns a Queue of so many turns at a time.
func NewQueue(turns int) *Queue { return &Queue{free: turns} }

// Do calls do when it is the transfer's turn.
func (q *Queue) Do(ctx context.Context, t *Transfer, do func() error) error {
	if err := q.acquire(ctx, t); err != nil {
		return err
	}
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.release(t)
	}()
	return do()
}

func (q *Queue) acquire(ctx context.Context, t *Transfer) error {
	w := &waiter{transfer: t, granted: make(chan struct{})}
	q.mu.Lock()
	q.queue = append(q.queue, w)
	t.addTurns(0, +1)
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
		t.addTurns(0, -1)
	} else { // it was granted in the same moment
		q.release(t)
	}
	return fmt.Errorf("wait for a turn: %w", ctx.Err())
}

// release and those below are called with q.mu held.
func (q *Queue) release(t *Transfer) {
	i := slices.Index(q.holding, t)
	q.holding = slices.Delete(q.holding, i, i+1)
	t.addTurns(-1, 0)
	q.free++
	q.grant()
}

// grant gives the free turns away.
func (q *Queue) grant() {
	for q.free > 0 && len(q.queue) > 0 {
		i := q.next()
		w := q.queue[i]
		q.queue = slices.Delete(q.queue, i, i+1)
		q.free--
		q.holding = append(q.holding, w.transfer)
		w.transfer.addTurns(+1, -1)
		close(w.granted)
	}
}

// next is the index of the waiter that gets the next turn.
func (q *Queue) next() int {
	turns := map[string]int{} // by bundle
	for _, t := range q.holding {
		for _, bundle := range t.waiting() {
			turns[bundle]++
		}
	}
	best, fewest := 0, -1
	for i, w := range q.queue {
		for _, bundle := range w.transfer.waiting() {
			if n := turns[bundle]; fewest < 0 || n < fewest {
				best, fewest = i, n
			}
		}
		if fewest == 0 {
			break
		}
	}
	return best
}

// Taken is how many turns are taken.
func (q *Queue) Taken() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.holding)
}
