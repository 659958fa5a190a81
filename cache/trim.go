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

// TrimOptions configures a trim.
type TrimOptions struct {
	// DryRun changes nothing. The result lists the pins that would be dropped, the entries that
	// would be retired, and the files that would be swept.
	DryRun bool
	// All retires every entry that has no pin.
	All bool
}

// Trimmed lists the changes of a trim, or of a dry run.
type Trimmed struct {
	// Retired lists entries that were taken out of use. A later trim removes them, when no host can
	// still see them in use.
	Retired []Entry `json:"retired"`
	// Removed counts the removed contents, and Freed their bytes.
	Removed int   `json:"removed"`
	Freed   int64 `json:"freed"`
	// Dropped lists pins of holders that are over.
	Dropped []Pin `json:"dropped"`
	// Swept lists the paths of leftovers.
	Swept []string `json:"swept"`
	// Usage is the cache's usage after the trim.
	Usage Usage `json:"usage"`
}

// Trim drops the pins of holders that are over, and removes contents whose retirement has settled.
// If the cache is above a limit, it retires entries without a pin, the least recently used first.
// It sweeps leftovers at most four times in a Grace. If one entry fails, Trim goes on with the
// others. Any number of processes may call it at the same time.
func (c *Cache) Trim(ctx context.Context, o TrimOptions) (Trimmed, error) {
	t, err := c.trim(ctx, o, sizeOf{})
	if err != nil {
		return t, fmt.Errorf("trim the cache: %w", err)
	}
	return t, nil
}

// trim also makes room for want. It sweeps if that is due, because leftovers count against the
// limits.
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

	now    time.Time           // by the file server's clock, at the begin
	pinned pinned              // from the last listing
	sizes  map[string][]sizeOf // by the id of the content
	doomed map[string]bool     // ids of retired contents that have no pin and that this user may remove
}

// clear removes the contents whose retirement has settled. Its first error joins those of single
// entries.
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

// decide reports whether to remove the content of a retired record now. If the record is
// unreadable, its content is unknown: decide removes the record when it has settled, and a sweep
// removes the content.
func (w *trimming) decide(ctx context.Context, r retired) (l leaving, goes bool, err error) {
	e, rec, err := w.readRetired(r)
	damaged := errors.Is(err, ErrDamaged) && !errors.Is(err, errForeign)
	if err != nil && !damaged {
		return l, false, err
	}
	stays := !damaged && (w.pinned.holds(r.hash, rec.Token) || !w.removable(e.fillDir(rec.Token)))
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
		return l, false, w.movePins(ctx, e, rec.Token) // the next trim removes it
	}
	return leaving{retired: r, e: e, token: rec.Token}, true, nil
}

// harmless reports whether an error means that another process was faster, that a content belongs
// to another user, or that a process of this host has one of its files open, which an NFS client
// renames instead of removing it (nfs(5), "silly rename").
func harmless(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY)
}

// count lists the pins, drops those that are over, and lists the sizes.
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

// usage adds the remaining sizes up.
func (w *trimming) usage() Usage {
	return usage(slices.Concat(slices.Collect(maps.Values(w.sizes))...))
}

// freed records the removal of a content.
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
