package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/internal/sharedcall"
)

// Options says how a cache is shared and bounded. All processes that use one
// directory give the same options, except for Host and Over.
type Options struct {
	// Size bounds what all contents take together, in bytes, and Quota what
	// those of one owner take; 0 or nil is no bound. Each is exceeded by at
	// most one content. A content whose Want has no Size counts only once it
	// is made.
	Size  int64
	Quota func(owner string) int64
	// High and Low are shares of a bound: trimming begins above High, and
	// ends at Low. 0 means 0.9 and 0.8.
	High, Low float64
	// MinFree makes trimming begin also where the disk has less free, in bytes.
	MinFree int64
	// Settle exceeds the time for which a host may still see the disk as it was
	// before another host's change: the longest time of the mount's attribute
	// cache (nfs(5): acregmax, acdirmax). A retired content stays on the disk for that
	// long, and a content that was used within it is retired only by TrimOptions.All.
	// 0 means 2 minutes. Negative means none, for a disk that only one host uses.
	Settle time.Duration
	// Term is how long a lease holds without being refreshed; 0 means a minute.
	Term time.Duration
	// Grace is how old a leftover of a crash has to be before it is swept; 0
	// means an hour.
	Grace time.Duration
	// Group shares the cache with the group of its directory: what is made is
	// readable for the group and belongs to it, unless a Want is private.
	Group bool
	// Host names this host, and this start of it; empty asks the system.
	Host string
	// Over returns which of some holders need nothing any more. The cache has
	// listed their pins before it calls Over, so Over must judge by what it
	// asks for after that: an older answer does not know the newest jobs. The
	// pins of holders that Over does not name stay. Over may be nil.
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

	making sharedcall.Group[string] // by the path of the record

	sweeps rate.Sometimes // a sweep lists everything
}

// Open opens a cache, making its directory where there is none. What else is
// in that directory is left alone.
func Open(dir string, o Options) (*Cache, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	c := &Cache{dir: dir, o: o.withDefaults()}
	c.sweeps.Interval = max(c.o.Grace/4, 1)
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
// the cache's disk. The parent directory of tmp is the fill's own: the cache
// removes what the fill leaves there beside tmp. Nothing is at tmp, unless
// Want.Resume is set: then an earlier fill, which may have been killed at any
// moment, may have left something there and beside it. Fill stops soon after ctx
// has ended.
type Fill func(ctx context.Context, tmp string) error

// Get returns the path of the key's content, a file or a directory, which
// nobody ever changes again. A hit takes no lock and costs the same however
// much the cache holds. On a miss, Get calls fill to make the content, and
// flushes and publishes what it made.
//
// With a Holder the content stays as long as its pin. Without one it stays for
// Options.Settle at least.
//
// Of all processes that share the cache, one fills a key at a time, and the others
// wait for it while its host refreshes the lease. If a caller's ctx ends, Get returns
// ctx's error to that caller only. fill's ctx has the first caller's values. It
// ends when the last caller of this process has left or the lease is lost. After a
// lost lease fill may be called again. fill's error is passed on, joined with what
// failed while cleaning up, and not remembered. ErrFull is returned where the
// content has no room, and ErrDamaged where a Holder's content is lost again and
// again before it is pinned.
func (c *Cache) Get(ctx context.Context, w Want, fill Fill) (path string, err error) {
	if err := w.check(); err != nil {
		return "", err
	}
	e := c.entry(w.Key, w.Private)
	for lost, made := 0, 0; ; {
		r, found, err := c.hit(ctx, e, w.Holder)
		if err != nil {
			return "", fmt.Errorf("pin %s: %w", w.Key, err)
		}
		if found {
			c.touch(e)
			return e.content(r.Token), nil
		}
		path, err := c.making.Do(ctx, e.record(), func(ctx context.Context) (string, error) { return c.findOrMake(ctx, e, w, fill) })
		switch {
		case ctx.Err() != nil:
			return "", fmt.Errorf("get %s from the cache: %w", w.Key, ctx.Err())
		case errors.Is(err, ErrLost) && lost < triesOfFill:
			lost++ // another may have made it
		case err == nil && w.Holder != "" && made == triesOfPin:
			return "", fmt.Errorf("get %s from the cache: %w: its content was gone each time before it could be pinned", w.Key, ErrDamaged)
		case err == nil && w.Holder != "":
			made++ // pin it and read again, as for any hit
		default:
			return path, err
		}
	}
}

const (
	// triesOfFill is how often a fill is begun again after its lease was lost.
	triesOfFill = 3
	// triesOfPin is how often a content is looked for again that another process retired or
	// damaged before it was pinned. More in a row means a disk that does not keep what is
	// written.
	triesOfPin = 10
)

// hit looks for the content of a key and pins it for the holder, if there is
// one. It drops no pin when it has to look again, because another Get of the same
// holder may rely on it.
func (c *Cache) hit(ctx context.Context, e entry, h Holder) (r record, found bool, err error) {
	for {
		r, err := c.readEntry(e)
		if err != nil {
			return r, false, nil //nolint:nilerr // findOrMake finds out why
		}
		if h == "" {
			return r, true, nil
		}
		if err := c.pin(ctx, e.id(r.Token), h); err != nil {
			return r, false, err
		}
		if c.o.Settle > 0 { // a host sees its own disk as it is
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

// touch notes that an entry is used, so that a trimmer retires it after those that
// are not. If it fails, the entry is only retired earlier.
func (c *Cache) touch(e entry) {
	every := 10 * time.Minute
	if c.o.Settle > 0 {
		every = min(every, c.o.Settle/4) // what was used within Settle is not retired
	}
	info, err := os.Lstat(e.record())
	if err != nil || time.Since(info.ModTime()).Abs() < every { //nolint:forbidigo // roughly, by this host's clock
		return
	}
	_ = touchNow(e.record())
}

// Why an entry cannot be had.
var (
	// ErrFull means that a quota leaves no room, and that all else in the
	// cache is pinned or was used too recently. It may be otherwise later.
	ErrFull = errors.New("the cache is full")
	// ErrLost means that the file server did not answer a fill for so long that
	// another process may have taken the key over.
	ErrLost = errors.New("the lease on a cache entry was lost")
)
