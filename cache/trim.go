package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// TrimOptions says how a cache is to be trimmed.
type TrimOptions struct {
	// DryRun changes nothing, and tells which pins would be dropped, which
	// entries taken out of use, and what would be swept.
	DryRun bool
	// All takes out of use whatever has no pin.
	All bool
}

// Trimmed is what a trimming did, or would do.
type Trimmed struct {
	// Retired are entries that were taken out of use. They are removed by a
	// later trimming, when all hosts must have noticed.
	Retired []Entry `json:"retired"`
	// Removed is how many entries were removed, and Freed what they took.
	Removed int   `json:"removed"`
	Freed   int64 `json:"freed"`
	// Restored is how many were taken into use again, because they had been
	// pinned in time.
	Restored int `json:"restored"`
	// Dropped are pins of holders that are over.
	Dropped []Pin `json:"dropped"`
	// Swept are paths of leftovers.
	Swept []string `json:"swept"`
	// Usage is what the cache holds after it.
	Usage Usage `json:"usage"`
}

// Trim drops the pins of holders that are over, removes what was taken out of
// use long enough ago, takes further entries out of use where the cache is
// above a bound, least recently used first and none that is pinned, and sweeps
// leftovers, four times a Grace at most. What fails with one entry stands in no
// other's way. It may be called by any number of processes at once, at any time.
func (c *Cache) Trim(ctx context.Context, o TrimOptions) (Trimmed, error) {
	t, err := c.trim(ctx, o, sizeOf{})
	if ctx.Err() == nil && c.sweepIsDue() {
		err = errors.Join(err, c.sweep(ctx, &t, o.DryRun))
	}
	if err != nil {
		return t, fmt.Errorf("trim the cache: %w", err)
	}
	return t, nil
}

// sweepIsDue says whether this process is to sweep, which lists everything, and
// counts on that it does.
func (c *Cache) sweepIsDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now() //nolint:forbidigo // a pause between two sweeps of a process
	if !c.swept.IsZero() && now.Sub(c.swept) < c.o.Grace/4 {
		return false
	}
	c.swept = now
	return true
}

// trim makes room also for what is wanted.
func (c *Cache) trim(ctx context.Context, o TrimOptions, want sizeOf) (t Trimmed, err error) {
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
	return t, errors.Join(failed, err)
}

// trimming is one call of trim.
type trimming struct {
	*Cache
	TrimOptions
	*Trimmed
	want sizeOf

	pinned map[string]bool     // hashes of keys
	sizes  map[string][]sizeOf // by the id of the content
	out    map[string]bool     // ids of contents that are out of use
}

// clear removes what has been out of use long enough, and restores what was
// pinned in time. The pins are read after what is out of use, and after the
// time that tells for how long it has been; and once more when what is to be
// removed cannot be restored any more. What failed with one record stands in no
// other's way.
func (w *trimming) clear(ctx context.Context) (failed, err error) {
	now, err := w.fresh(w.place(retiredPlace))
	if err != nil {
		return nil, err
	}
	list, _, err := w.outOfUse()
	if err != nil {
		return nil, err
	}
	if err := w.count(ctx, list); err != nil || w.DryRun {
		return nil, err
	}
	var going []retired
	var errs []error
	for _, r := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		goes, err := w.decide(&r, list, now)
		if err != nil && !harmless(err) {
			errs = append(errs, err)
		}
		if goes && err == nil {
			going = append(going, r)
		}
	}
	return errors.Join(append(errs, w.removeAll(going))...), nil
}

// harmless says whether an error only says that a record is another's: another
// process has it, it is in use, or it is another user's; or that its content is
// not gone yet, since a process of this host has a file of it open, which an NFS
// client renames instead of removing it (nfs(5), "silly rename").
func harmless(err error) bool {
	for _, target := range []error{fs.ErrNotExist, ErrDamaged, errInUse, fs.ErrPermission, syscall.EBUSY, syscall.ENOTEMPTY} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// count reads the pins, less those that are over, and the sizes.
func (w *trimming) count(ctx context.Context, list []retired) error {
	pins, err := w.pinNames()
	if err != nil {
		return err
	}
	pins, dropped, err := w.dropOver(ctx, pins, w.DryRun)
	if err != nil {
		return err
	}
	w.Dropped = append(w.Dropped, dropped...)
	w.pinned = map[string]bool{}
	for _, p := range pins {
		w.pinned[p.Hash] = true
	}
	sizes, err := w.Cache.sizes()
	if err != nil {
		return err
	}
	w.sizes, w.out = map[string][]sizeOf{}, map[string]bool{}
	for _, s := range sizes {
		w.sizes[s.id()] = append(w.sizes[s.id()], s)
	}
	for _, r := range list {
		if mine, err := w.mayRemove(r); err == nil && mine { // what is not, makes no room
			w.out[r.id] = true
		}
	}
	w.Trimmed.Usage = usage(sizes)
	return nil
}

// decide restores a record out of use, or says that it is to be removed, when
// it is time.
func (w *trimming) decide(r *retired, list []retired, now time.Time) (goes bool, err error) {
	switch {
	case r.end == removedSuffix:
		return w.mayRemove(*r)
	case r.end == restoredSuffix:
		_, err := w.restore(*r)
		return false, err
	case r.checked != "":
		// Who looks at it may have died. If not, it finds it gone.
		info, err := os.Lstat(w.retiredPath(r.checked))
		if err != nil {
			return false, err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && now.Sub(time.Unix(st.Ctim.Unix())) > w.o.Grace {
			return false, w.uncheck(*r)
		}
		return false, nil
	}
	settled, err := w.settled(*r, now)
	switch {
	case err != nil || !settled:
		return false, err
	case w.pinned[r.hash] && r.end == spentSuffix:
		return false, nil
	case w.pinned[r.hash]:
		return false, w.takeBack(*r)
	}
	if mine, err := w.mayRemove(*r); err != nil || !mine {
		return false, err
	}
	return true, w.check(r, list)
}

// takeBack restores a record that was pinned in time.
func (w *trimming) takeBack(r retired) error {
	standing, err := w.restore(r)
	if err == nil && r.id == r.hash+"."+standing.Token {
		w.Restored++
		delete(w.out, r.id)
	}
	return err
}

// removeAll removes what was checked, unless it has a pin by now.
func (w *trimming) removeAll(going []retired) error {
	if len(going) == 0 {
		return nil
	}
	pins, err := w.pinNames()
	if err != nil {
		return err
	}
	pinned := map[string]bool{}
	for _, p := range pins {
		pinned[p.Hash] = true
	}
	var errs []error
	for _, r := range going {
		if r.end != removedSuffix && pinned[r.hash] {
			if err := w.uncheck(r); err != nil && !harmless(err) {
				errs = append(errs, err)
			}
			continue
		}
		if err := w.removeOne(r); err != nil && !harmless(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (w *trimming) removeOne(r retired) error {
	if err := w.discard(r, w.sizes); err != nil {
		return err
	}
	w.Removed++
	gone := usage(w.sizes[r.id])
	w.Freed += gone.Bytes
	w.Trimmed.Usage.Bytes -= gone.Bytes
	w.Trimmed.Usage.Entries -= gone.Entries
	for owner, bytes := range gone.Owners {
		w.Trimmed.Usage.Owners[owner] -= bytes
	}
	delete(w.out, r.id)
	return nil
}

// mayRemove says whether this user may remove a content. That of another user
// who keeps it private is removed by that user's own processes.
func (w *trimming) mayRemove(r retired) (bool, error) {
	if !w.o.Group || os.Geteuid() == 0 {
		return true, nil
	}
	e, rec, err := w.readRetired(cmp.Or(r.checked, r.file()), r.hash)
	if errors.Is(err, ErrDamaged) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return w.removable(e.object(rec.Token)), nil
}

// removable says whether this user may remove a content's directory.
func (w *trimming) removable(object string) bool {
	if !w.o.Group || os.Geteuid() == 0 {
		return true
	}
	info, err := os.Lstat(object)
	return err != nil || info.Mode()&0o020 != 0 || own(object)
}
