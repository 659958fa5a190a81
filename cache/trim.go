package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"
)

// TrimOptions says how a cache is to be trimmed.
type TrimOptions struct {
	// DryRun changes nothing, and tells which pins would be dropped, which
	// entries retired, and what would be swept.
	DryRun bool
	// All retires every entry that has no pin.
	All bool
}

// Trimmed is what a trimming did, or would do.
type Trimmed struct {
	// Retired are entries that were taken out of use. A later trimming removes
	// them, when no host can still see them in use.
	Retired []Entry `json:"retired"`
	// Removed is how many contents were removed, and Freed what they took.
	Removed int   `json:"removed"`
	Freed   int64 `json:"freed"`
	// Dropped are pins of holders that are over.
	Dropped []Pin `json:"dropped"`
	// Swept are paths of leftovers.
	Swept []string `json:"swept"`
	// Usage is what the cache holds after it.
	Usage Usage `json:"usage"`
}

// Trim drops the pins of holders that are over and removes contents that were
// retired long enough ago. Where the cache is above a bound it retires entries
// without a pin, the least recently used first. It sweeps leftovers four times a
// Grace at most. A failure with one entry does not stop the work on others. Any
// number of processes may call it at once, at any time.
func (c *Cache) Trim(ctx context.Context, o TrimOptions) (Trimmed, error) {
	t, err := c.trim(ctx, o, sizeOf{})
	if err != nil {
		return t, fmt.Errorf("trim the cache: %w", err)
	}
	return t, nil
}

// trim makes room also for what is wanted, and sweeps if that is due: leftovers count
// against the bounds.
func (c *Cache) trim(ctx context.Context, o TrimOptions, want sizeOf) (Trimmed, error) {
	t, err := c.makeRoom(ctx, o, want)
	due := false
	if ctx.Err() == nil {
		c.sweeps.Do(func() { due = true })
	}
	if due {
		err = errors.Join(err, c.sweep(ctx, &t, o.DryRun))
	}
	return t, err
}

func (c *Cache) makeRoom(ctx context.Context, o TrimOptions, want sizeOf) (t Trimmed, err error) {
	t.Retired, t.Dropped, t.Swept = []Entry{}, []Pin{}, []string{}
	w := trimming{Cache: c, TrimOptions: o, Trimmed: &t, want: want}
	failed, err := w.clear(ctx)
	if err != nil {
		return t, err
	}
	failed = errors.Join(failed, w.cut(ctx))
	if c.o.Settle == 0 && !o.DryRun && len(t.Retired) > 0 {
		var more error
		more, err = w.clear(ctx)
		failed = errors.Join(failed, more)
	}
	t.Usage = w.usage()
	return t, errors.Join(failed, err)
}

// trimming is one call of trim.
type trimming struct {
	*Cache
	TrimOptions
	*Trimmed
	want sizeOf

	now    time.Time           // by the clock of the file server, at the begin
	pinned pinned              // as listed last
	sizes  map[string][]sizeOf // by the id of the content
	doomed map[string]bool     // ids of contents that are retired, without a pin, and this user's to remove
}

// clear removes the contents that were retired long enough ago.
func (w *trimming) clear(ctx context.Context) (failed, err error) {
	if w.now, err = w.probe(w.place(retiredPlace)); err != nil {
		return nil, err
	}
	list, _, err := w.listRetired()
	if err != nil {
		return nil, err
	}
	if err := w.count(ctx); err != nil {
		return nil, err
	}
	var going []leaving
	var errs []error
	w.doomed = map[string]bool{}
	for _, r := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l, goes, err := w.decide(ctx, r)
		if err != nil && !harmless(err) {
			errs = append(errs, err)
		}
		if err == nil && goes {
			going = append(going, l)
		}
	}
	if w.DryRun {
		return errors.Join(errs...), nil
	}
	return errors.Join(append(errs, w.removeRetired(going))...), nil
}

// decide reports whether the content of a retired record is to be removed now. A
// record that cannot be read names no content: it goes when it has settled, and
// its content is swept.
func (w *trimming) decide(ctx context.Context, r retired) (l leaving, goes bool, err error) {
	e, rec, err := w.readRetired(r)
	damaged := errors.Is(err, ErrDamaged) && !errors.Is(err, errForeign)
	if err != nil && !damaged {
		return l, false, err
	}
	stays := !damaged && (w.pinned.holds(r.hash, rec.Token) || !w.removable(e.object(rec.Token)))
	if !damaged && !stays {
		w.doomed[e.id(rec.Token)] = true
	}
	if w.DryRun {
		return l, false, nil
	}
	settled, err := w.settled(r, w.now)
	switch {
	case err != nil || !settled:
		return l, false, err
	case damaged:
		return l, false, w.forget(r)
	case stays:
		return l, false, w.movePins(ctx, e, rec.Token) // it goes with the next trim
	}
	return leaving{retired: r, e: e, token: rec.Token}, true, nil
}

// harmless reports whether an error only says that another process was faster, that
// a content is another user's, or that it is not gone yet, since a process of this
// host has a file of it open, which an NFS client renames instead of removing it
// (nfs(5), "silly rename").
func harmless(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY)
}

// count reads the pins, less those that are over, and the sizes.
func (w *trimming) count(ctx context.Context) error {
	pins, err := w.listPins()
	if err != nil {
		return err
	}
	pins, dropped, err := w.dropOver(ctx, pins, w.DryRun)
	if err != nil {
		return err
	}
	w.Dropped = append(w.Dropped, dropped...)
	w.pinned = newPinned(pins)
	sizes, err := w.Cache.sizes()
	if err != nil {
		return err
	}
	w.sizes = map[string][]sizeOf{}
	for _, s := range sizes {
		w.sizes[s.id()] = append(w.sizes[s.id()], s)
	}
	return nil
}

// usage adds up what counts by now.
func (w *trimming) usage() Usage {
	return usage(slices.Concat(slices.Collect(maps.Values(w.sizes))...))
}

// freed notes that a content is gone.
func (w *trimming) freed(id string) {
	w.Freed += largest(w.sizes[id]).bytes
	delete(w.sizes, id)
}

// removable reports whether this user may remove a content's directory.
func (w *trimming) removable(object string) bool {
	if !w.o.Group || os.Geteuid() == 0 {
		return true
	}
	info, err := os.Lstat(object)
	return err != nil || info.Mode()&0o020 != 0 || own(object)
}
