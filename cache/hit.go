package cache

import (
	"context"
	"os"
	"sync"

	"github.com/cl-slurm/cl-slurm/internal/batch"
)

// hits lets Gets share the readings and the probe of a hit: those that wait for the same key at the same time are served
// together, because hundreds of bundles that use one image are staged at once. Each holder gets a pin of its own.
type hits struct {
	mu   sync.Mutex
	keys map[string]*hitsOfKey // by the path of the record; those that a Get waits for
}

// hitsOfKey are the hits of one key. It is dropped when no Get waits for it.
type hitsOfKey struct {
	calls   *batch.Calls[Holder, foundRecord]
	waiting int
}

// foundRecord is the record of a content that was there; found is false if there was none.
type foundRecord struct {
	record

	found bool
}

// hit finds the content of a key and pins it for the holder, if there is one.
func (c *Cache) hit(ctx context.Context, e entryNames, h Holder) (r record, found bool, err error) {
	if h == "" {
		r, err := c.readEntry(e)
		return r, err == nil, nil // findOrMake finds out why
	}
	calls := c.enterHits(e)
	defer c.leaveHits(e)
	got, err := calls.Do(ctx, h)
	return got.record, got.found, err
}

func (c *Cache) enterHits(e entryNames) *batch.Calls[Holder, foundRecord] {
	c.hits.mu.Lock()
	defer c.hits.mu.Unlock()
	of := c.hits.keys[e.record()]
	if of == nil {
		anyNumber := func([]Holder, Holder) bool { return true }
		of = &hitsOfKey{calls: batch.New(1, anyNumber, func(ctx context.Context, holders []Holder) ([]foundRecord, error) {
			r, found, err := c.hitFor(ctx, e, holders)
			all := make([]foundRecord, len(holders))
			for i := range all {
				all[i] = foundRecord{r, found}
			}
			return all, err
		})}
		if c.hits.keys == nil {
			c.hits.keys = map[string]*hitsOfKey{}
		}
		c.hits.keys[e.record()] = of
	}
	of.waiting++
	return of.calls
}

func (c *Cache) leaveHits(e entryNames) {
	c.hits.mu.Lock()
	defer c.hits.mu.Unlock()
	of := c.hits.keys[e.record()]
	if of.waiting--; of.waiting == 0 {
		delete(c.hits.keys, e.record())
	}
}

// hitFor finds the content of a key and pins it for each holder. If the content changes, it tries again and leaves the
// pins, because another Get of the same holder may rely on them.
func (c *Cache) hitFor(ctx context.Context, e entryNames, holders []Holder) (r record, found bool, err error) {
	for {
		r, err := c.readEntry(e)
		if err != nil {
			return r, false, nil //nolint:nilerr // findOrMake finds out why
		}
		if err := c.pinFor(ctx, e.id(r.Token), holders); err != nil {
			return r, false, err
		}
		if c.o.Settle > 0 { // with Settle, this host may see an old state of the disk
			if _, err := c.probe(e.dir); err != nil {
				return r, false, err
			}
		}
		again, err := c.readEntry(e)
		if err != nil || again.Token == r.Token {
			return again, err == nil, nil //nolint:nilerr // as above
		}
	}
}

// pinFor pins a content for each holder. The pins of one call are links of one file: a name costs the disk less than a file.
func (c *Cache) pinFor(ctx context.Context, target string, holders []Holder) error {
	first := holders[0]
	if err := c.pin(ctx, target, first); err != nil {
		return err
	}
	for _, h := range holders[1:] {
		// It exists already, its link cannot be made, or a trim has dropped the first pin, whose holder is over.
		if os.Link(c.pinPath(target, first), c.pinPath(target, h)) == nil {
			continue
		}
		if err := c.pin(ctx, target, h); err != nil {
			return err
		}
	}
	return nil
}
