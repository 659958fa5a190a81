package sqldb

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jmoiron/sqlx"
)

// group has the calls of InTx that wait for the writer's lock. They commit together: a commit's flush
// takes longer than the small writes before it, and one flush serves all of them. The call that gets the
// lock runs all waiting calls in one transaction, with a savepoint before each, and commits it. If a call
// fails, it runs again in a transaction of its own; if the transaction fails, all of its calls do.
type group struct {
	mu      sync.Mutex
	waiting []*call
}

// maxGroup bounds a group: its first call waits for the last one.
const maxGroup = 16

// call is a call of InTx that waits.
type call struct {
	ctx context.Context //nolint:containedctx // of one call
	fn  func(tx *sqlx.Tx) error
	// over is closed when the transaction with the call has ended. committed is set before that, if the
	// call is committed.
	over      chan struct{}
	committed bool
}

func (g *group) add(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, c)
}

// remove removes a call that its caller has given up. It returns false if a group has it already.
func (g *group) remove(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, c)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// removeOldest returns the calls that have waited longest.
func (g *group) removeOldest() []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxGroup)
	calls := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	return calls
}

// waitForCommit returns true if a group has committed the call; otherwise the caller holds the writer's
// lock, and must release it.
func (db *DB) waitForCommit(ctx context.Context, fn func(tx *sqlx.Tx) error) (committed bool, err error) {
	c := &call{ctx: ctx, fn: fn, over: make(chan struct{})}
	db.group.add(c)
	for {
		select {
		case <-c.over:
			if c.committed {
				return true, nil
			}
			return false, db.writer.acquire(ctx)
		case <-ctx.Done():
			if db.group.remove(c) {
				return false, ctx.Err()
			}
			if <-c.over; c.committed {
				return true, nil
			}
			return false, ctx.Err()
		case db.writer <- struct{}{}:
			if db.commitWaiting(context.WithoutCancel(ctx), c) { // others must not lose theirs when ctx ends
				return false, nil
			}
		}
	}
}

// commitWaiting commits waiting calls, and then releases the writer's lock. If c is over, it only releases the
// lock. If no call but c waits, it returns true, and c keeps the lock.
func (db *DB) commitWaiting(ctx context.Context, c *call) (alone bool) {
	defer func() {
		if !alone {
			db.writer.release()
		}
	}()
	select {
	case <-c.over: // its caller need not serve others
		return false
	default:
	}
	calls := db.group.removeOldest()
	if len(calls) == 1 && calls[0] == c {
		return true
	}
	if len(calls) > 0 {
		db.commitAll(ctx, calls)
	}
	return false
}

// commitAll runs calls in one transaction. The caller holds the writer's lock.
func (db *DB) commitAll(ctx context.Context, calls []*call) {
	done, committed := make([]bool, len(calls)), false
	defer func() { // also if a call ends the goroutine
		for i, c := range calls {
			c.committed = committed && done[i]
			close(c.over)
		}
	}()
	err := db.tryTx(ctx, func(tx *sqlx.Tx) error {
		for i, c := range calls {
			var err error
			if done[i], err = runAfterSavepoint(ctx, tx, c); err != nil {
				return err
			}
		}
		return nil
	})
	committed = err == nil
}

// runAfterSavepoint runs a call, and undoes its changes if it fails. Some errors and interrupts make SQLite
// end the whole transaction. Then the savepoint is gone, and the group fails
// (https://www.sqlite.org/lang_transaction.html, "Response To Errors Within A Transaction").
func runAfterSavepoint(ctx context.Context, tx *sqlx.Tx, c *call) (done bool, err error) {
	defer func() {
		if recover() != nil { // the call panics again when it runs alone
			done, err = false, fmt.Errorf("a call of a group panicked")
		}
	}()
	if c.ctx.Err() != nil {
		return false, nil
	}
	if _, err := tx.ExecContext(ctx, `SAVEPOINT one`); err != nil {
		return false, fmt.Errorf("begin savepoint: %w", err)
	}
	if done = c.fn(tx) == nil; !done {
		if _, err := tx.ExecContext(ctx, `ROLLBACK TO one`); err != nil {
			return false, fmt.Errorf("roll back to savepoint: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, `RELEASE one`); err != nil {
		return false, fmt.Errorf("release savepoint: %w", err)
	}
	return done, nil
}

// writerLock admits one writer at a time.
type writerLock chan struct{}

// acquire waits for the lock.
func (p writerLock) acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case p <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p writerLock) release() { <-p }
