package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Options says how a cache is shared and bounded. All who use one directory
// give the same, but for Host and Over.
type Options struct {
	// Size bounds what all contents take together, in bytes, and Quota what
	// those of one owner take; 0 or nil is no bound. Each is exceeded by at
	// most one content.
	Size  int64
	Quota func(owner string) int64
	// High and Low are shares of a bound: trimming begins above High, and
	// ends at Low. They are 0.9 and 0.8 where they are 0.
	High, Low float64
	// MinFree has trimming begin also where the disk has less free, in bytes.
	MinFree int64
	// Settle is above the time for which a host may go on to see what another
	// host has changed: the longest time of the mount's attribute cache
	// (nfs(5): acregmax, acdirmax). What is taken out of use stays on the disk
	// for so long. 0 is 2 minutes, and negative none: one host's own disk.
	Settle time.Duration
	// Term is how long a lease holds without being refreshed; 0 is a minute.
	Term time.Duration
	// Grace is how old a leftover of a crash has to be before it is swept; 0
	// is an hour.
	Grace time.Duration
	// Group shares the cache with the group of its directory: what is made is
	// readable for the group and belongs to it, unless a Want is private.
	Group bool
	// Host names this host, and this start of it; empty asks the system.
	Host string
	// Over says which of some holders need nothing any more. Others, also
	// those that it knows nothing of, keep their pins. It may be nil.
	Over func(ctx context.Context, holders []Holder) (map[Holder]bool, error)
}

func (o Options) withDefaults() Options {
	o.High, o.Low = cmp.Or(o.High, 0.9), cmp.Or(o.Low, 0.8)
	o.Settle = max(cmp.Or(o.Settle, 2*time.Minute), 0)
	o.Term = cmp.Or(o.Term, time.Minute)
	o.Grace = cmp.Or(o.Grace, time.Hour)
	return o
}

// Cache is one cache directory. It may be used by several goroutines at once,
// and the directory by processes on several hosts at once.
type Cache struct {
	dir  string
	o    Options
	self holderOfLease
	// opened is set when the cache's directories are there. One that vanishes
	// is not made again: its disk is not mounted.
	opened bool

	mu      sync.Mutex
	flights map[string]*flight // by the path of the record
	swept   time.Time          // when this process last swept
}

// Open opens a cache, making its directory where there is none. What else is
// in that directory is left alone.
func Open(dir string, o Options) (*Cache, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	c := &Cache{dir: dir, o: o.withDefaults(), flights: map[string]*flight{}}
	if c.self, err = self(o.Host); err != nil {
		return nil, fmt.Errorf("open cache %s: %w", dir, err)
	}
	for _, place := range places() {
		if err := c.makeDir(c.place(place)); err != nil {
			return nil, fmt.Errorf("open cache %s: %w", dir, err)
		}
	}
	c.opened = true
	return c, nil
}

// Fill makes the content of an entry, a file or a directory, at tmp, a path on
// the cache's disk whose parent directory is the fill's own: what else it has
// left there at its end goes. Nothing is at tmp, unless Want.Resume is set: then
// there, and beside it, may be what an earlier fill left, who may have been
// killed at any moment. Fill stops soon after ctx has ended.
type Fill func(ctx context.Context, tmp string) error

// Get returns the path of the key's content, a file or a directory, which
// nobody ever changes again. A hit takes no lock and costs the same however
// much the cache holds. On a miss, fill is called to make the content; what it
// made is flushed and published.
//
// With a Holder the entry stays as long as its pin. Without one it stays for
// Options.Settle at least.
//
// Among all processes that share the cache, one fills a key at a time, while
// its host answers; the others wait for it. Whatever happens, only one content
// of a key is published. A caller whose ctx ends gets that error and leaves the
// others alone; fill's ctx ends when the last caller of this process has left
// or the lease was lost, and carries the values of the first one's; after a lost
// lease fill may be called again. fill's error is passed on, joined with what its
// cleaning up failed of, and not remembered. ErrFull is returned where the
// content has no room.
func (c *Cache) Get(ctx context.Context, w Want, fill Fill) (path string, err error) {
	if err := w.check(); err != nil {
		return "", err
	}
	e := c.entry(w.Key, w.Private)
	if w.Holder != "" {
		if err := c.pin(ctx, e, w.Holder); err != nil {
			return "", fmt.Errorf("pin %s: %w", w.Key, err)
		}
	}
	for lost := 0; ; {
		if r, err := c.look(e); err == nil {
			c.touch(e)
			return e.content(r.Token), nil
		}
		f, began := c.join(ctx, e.record(), func(ctx context.Context) (string, error) { return c.bring(ctx, e, w, fill) })
		select {
		case <-ctx.Done():
			c.leave(e.record(), f)
			return "", fmt.Errorf("get %s from the cache: %w", w.Key, ctx.Err())
		case <-f.done:
		}
		switch {
		case f.abandoned: // by others, before this caller came
		case f.err == nil && !began && w.Holder != "": // it may have come to an end before this caller pinned
		case errors.Is(f.err, ErrLost) && lost < triesOfFill:
			lost++ // another may have made it
		default:
			return f.path, f.err
		}
	}
}

// triesOfFill is how often a fill is begun again after its lease was lost.
const triesOfFill = 3

// touch notes that an entry is used, so that it goes after those that are not.
// That is worth no error.
func (c *Cache) touch(e entry) {
	info, err := os.Lstat(e.record())
	if err != nil || time.Since(info.ModTime()).Abs() < touchEvery { //nolint:forbidigo // roughly, by this host's clock
		return
	}
	_ = touchNow(e.record())
}

// touchEvery is how exactly the last use of an entry is known.
const touchEvery = 10 * time.Minute

// Why an entry cannot be had.
var (
	// ErrFull means that a quota leaves no room, and that all else in the
	// cache is pinned or was used too recently. It may be otherwise later.
	ErrFull = errors.New("the cache is full")
	// ErrLost means that a fill took so long without the file server's
	// answering that another may have taken its place.
	ErrLost = errors.New("the lease on a cache entry was lost")
)
