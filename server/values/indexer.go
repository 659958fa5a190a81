package values

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// rest is the time between new contents and the look for them, and between two tries, unless a search asks earlier.
const rest = 2 * time.Second

// patience is the longest time for which a search waits for values.
const patience = 2 * time.Second

// Indexer writes the values of new contents into the store. While it is in use, Run must run.
type Indexer struct {
	store *store.Store
	log   *slog.Logger
	// asked has a reason for a pass at once, and changed one for a pass soon.
	asked, changed chan struct{}

	mu sync.Mutex
	// waiting has a channel of each search that waits. It is closed behind the next pass that began later and has left
	// no contents without values.
	waiting []chan struct{}
}

// New returns an Indexer.
func New(in *store.Store, log *slog.Logger) *Indexer {
	return &Indexer{store: in, log: log, asked: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// Run looks for contents without values until ctx ends, and returns its error: at first, after Changed, and for each
// search. A database that does not answer is asked again.
func (x *Indexer) Run(ctx context.Context) error {
	for {
		x.mu.Lock()
		asked := x.waiting
		x.waiting = nil
		x.mu.Unlock()
		err := x.Pass(ctx)
		for _, done := range asked {
			close(done)
		}
		failures.Log(ctx, x.log, "read the values in bundles' files", err)
		if err := x.next(ctx, err != nil); err != nil {
			return err
		}
	}
}

// Changed tells that there are new contents. It does not block. A search finds also those of which nothing tells.
func (x *Indexer) Changed() { tell(x.changed) }

func tell(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default: // it is told already
	}
}

// next waits until there is a reason for a pass. A pass that failed is one.
func (x *Indexer) next(ctx context.Context, failed bool) error {
	changed, due := x.changed, make(<-chan time.Time)
	if failed {
		changed, due = nil, time.NewTimer(rest).C
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-x.asked:
			return nil
		case <-changed:
			changed, due = nil, time.NewTimer(rest).C
		case <-due:
			return nil
		}
	}
}

// Settle waits until the store has the values of all contents that it has now. It gives up after a bounded time: a store
// of an older version may have contents to read for minutes.
func (x *Indexer) Settle(ctx context.Context) {
	done := make(chan struct{})
	x.mu.Lock()
	x.waiting = append(x.waiting, done)
	x.mu.Unlock()
	tell(x.asked)
	enough := time.NewTimer(patience)
	defer enough.Stop()
	select {
	case <-done:
	case <-enough.C:
	case <-ctx.Done():
	}
}

// Pass reads all contents without values.
func (x *Indexer) Pass(ctx context.Context) error {
	last := ""
	for {
		found, err := x.store.Unvalued(ctx, last)
		if err != nil || len(found) == 0 {
			return err
		}
		last = found[len(found)-1].UUID
		if err := x.index(ctx, found); err != nil {
			return err
		}
	}
}

// index reads the values of bundles, and writes them in transactions of some thousand rows: writers wait for each other.
func (x *Indexer) index(ctx context.Context, bundles []store.Bundle) error {
	const enough = 2_000
	begin, rows := 0, 0
	values := map[string][]store.Value{}
	for i, b := range bundles {
		if err := ctx.Err(); err != nil {
			return err
		}
		values[b.UUID] = x.valuesOf(ctx, b)
		if rows += len(values[b.UUID]); rows < enough && i < len(bundles)-1 {
			continue
		}
		if err := x.store.SetValues(ctx, bundles[begin:i+1], values); err != nil {
			return err
		}
		begin, rows, values = i+1, 0, map[string][]store.Value{}
	}
	return nil
}

// valuesOf returns the values of a bundle. What cannot be read has none.
func (x *Indexer) valuesOf(ctx context.Context, b store.Bundle) []store.Value {
	if b.Contents == "" {
		return nil
	}
	root, err := x.store.OpenContents(b)
	if errors.Is(err, store.ErrNotFound) {
		return nil // the bundle is being removed, or fsck tells of it
	}
	var found []store.Value
	if err == nil {
		found, err = Find(root, store.ContentsPath, b.Metadata.String("name"))
		err = errors.Join(err, root.Close())
	}
	failures.Log(ctx, x.log, "read the values in the files of bundle "+b.UUID, err)
	return found
}
