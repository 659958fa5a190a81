package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/internal/sharedcall"
)

// Options configures a cache. All processes that use one directory give the same options, except
// for Host and Over.
type Options struct {
	// Size limits the bytes of all contents together until SetSize does, and Quota those of one owner; 0 or nil means
	// no limit. Each limit is exceeded by at most one content. A content whose Want has no Size
	// counts only after it has been made.
	Size  int64
	Quota func(owner string) int64
	// High and Low are shares of a limit: trimming begins above High, and ends at Low. 0 means 0.9
	// and 0.8.
	High, Low float64
	// If the disk has less than MinFree bytes free, trimming begins, too.
	MinFree int64
	// Settle must exceed the time for which a host may still see the disk as it was before another
	// host's change: the longest time of the mount's attribute cache (nfs(5): acregmax, acdirmax).
	// A retired content stays on the disk for that long. A content that was used within that time
	// is retired only by TrimOptions.All. 0 means 2 minutes. Negative means no such time, for a
	// disk that only one host uses.
	Settle time.Duration
	// Term is the time without a refresh after which a lease ends. 0 means a minute.
	Term time.Duration
	// Grace is the age from which sweeps remove a leftover of a crash. 0 means an hour.
	Grace time.Duration
	// Group shares the cache with the group of its directory: the files belong to that group, which
	// can read them, unless a Want is private.
	Group bool
	// Host names this host and its current boot. If it is empty, the system is asked.
	Host string
	// Over returns those of the given holders that need nothing any more. The cache lists their
	// pins before it calls Over, so Over must not use an answer from before the call: that does not
	// know the newest jobs. Pins of other holders stay. Over may be nil.
	Over func(ctx context.Context, holders []Holder) (map[Holder]bool, error)
	// Got, if not nil, is called for each successful Get. hit is set if the cache had the content.
	Got func(k Key, hit bool)
}

func (o Options) withDefaults() Options {
	o.High, o.Low = cmp.Or(o.High, 0.9), cmp.Or(o.Low, 0.8)
	o.Settle = max(cmp.Or(o.Settle, 2*time.Minute), 0)
	o.Term = cmp.Or(o.Term, time.Minute)
	o.Grace = cmp.Or(o.Grace, time.Hour)
	return o
}

// Cache is one cache directory. Several goroutines may use a Cache, and processes on several hosts
// may use the directory, all at the same time.
type Cache struct {
	dir  string
	o    Options
	size atomic.Int64 // the limit of all contents together
	self holderOfLease
	// opened is set when the cache's directories exist. The cache does not make its directory again
	// if it vanishes, because its disk is then not mounted.
	opened bool

	making sharedcall.Group[string] // keyed by the path of the record
	hits   hits

	sweeps rate.Sometimes // a sweep lists everything
}

// Open opens a cache, and makes its directory if there is none. It ignores other files in that
// directory.
func Open(dir string, o Options) (*Cache, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	c := &Cache{dir: dir, o: o.withDefaults()}
	c.size.Store(o.Size)
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

// SetSize sets the limit of the bytes of all contents together. If they have more, the next trim retires some.
func (c *Cache) SetSize(bytes int64) { c.size.Store(bytes) }

// Fill makes the content of an entry, a file or a directory, at the path tmp on the cache's disk.
// The parent directory of tmp belongs to this fill: the cache removes everything else from it
// afterwards. If Want.Resume is set, an earlier fill may have left files at tmp and in its parent
// directory, cut off at any point; otherwise there are none. Fill stops soon after ctx has ended.
type Fill func(ctx context.Context, tmp string) error

// Get returns the path of the key's content, a file or a directory that never changes. A hit takes
// no lock on the disk, and its cost does not depend on the cache's size; Gets of one key that wait at
// the same time share it. On a miss, Get calls fill, and flushes and publishes the content.
//
// With a Holder, the content stays as long as its pin. Without one, it stays for at least
// Options.Settle.
//
// Of all processes that share the cache, one fills a key at a time. The others wait as long as it
// refreshes its lease. If a caller's ctx ends, Get returns that error to this caller only. The ctx
// of fill has the first caller's values, and ends when the last caller of this process has left or
// the lease is lost. After a lost lease, Get may call fill again. Get returns fill's error joined
// with errors of the clean-up, and does not remember it. It returns ErrFull if there is no room for
// the content, and ErrDamaged if a Holder's content keeps vanishing before Get can pin it.
func (c *Cache) Get(ctx context.Context, w Want, fill Fill) (path string, err error) {
	path, hit, err := c.get(ctx, w, fill)
	if err == nil && c.o.Got != nil {
		c.o.Got(w.Key, hit)
	}
	return path, err
}

// get implements Get. hit is set if the content was there at once.
func (c *Cache) get(ctx context.Context, w Want, fill Fill) (path string, hit bool, err error) {
	if err := w.check(); err != nil {
		return "", false, err
	}
	e, hit := c.namesOf(w.Key, w.Private), true
	for lost, made := 0, 0; ; {
		r, found, err := c.hit(ctx, e, w.Holder)
		if err != nil {
			return "", false, fmt.Errorf("pin %s: %w", w.Key, err)
		}
		if found {
			c.touch(e)
			return e.content(r.Token), hit, nil
		}
		hit = false
		path, err := c.making.Do(ctx, e.record(), func(ctx context.Context) (string, error) { return c.findOrMake(ctx, e, w, fill) })
		switch {
		case ctx.Err() != nil:
			return "", false, fmt.Errorf("get %s from the cache: %w", w.Key, ctx.Err())
		case errors.Is(err, ErrLost) && lost < triesOfFill:
			lost++ // another process may have made it
		case err == nil && w.Holder != "" && made == triesOfPin:
			return "", false, fmt.Errorf("get %s from the cache: %w: its content was gone each time before it could be pinned", w.Key, ErrDamaged)
		case err == nil && w.Holder != "":
			made++ // pin it and read again, as for any hit
		default:
			return path, false, err
		}
	}
}

const (
	// triesOfFill limits the new fills after lost leases.
	triesOfFill = 3
	// triesOfPin limits the new tries after another process retired or damaged a content before it
	// was pinned. More of them in a row mean that the disk loses what is written.
	triesOfPin = 10
)

// touch records that an entry is used, so that trimmers retire unused entries first. An error is
// ignored: the entry is then only retired earlier.
func (c *Cache) touch(e entryNames) {
	every := 10 * time.Minute
	if c.o.Settle > 0 {
		every = min(every, c.o.Settle/4) // trimmers do not retire entries used within Settle
	}
	info, err := os.Lstat(e.record())
	if err != nil || time.Since(info.ModTime()).Abs() < every {
		return
	}
	_ = touchNow(e.record())
}

// Errors of Get.
var (
	// ErrFull means that a quota leaves no room, because all other content is pinned or was used
	// recently. A later call may succeed.
	ErrFull = errors.New("the cache is full")
	// ErrLost means that the file server did not answer a fill for so long that another process may
	// have taken the key over.
	ErrLost = errors.New("the lease on a cache entry was lost")
)
