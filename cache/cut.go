package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

// cut retires entries while the cache is above a limit.
func (w *trimming) cut(ctx context.Context) error {
	over, err := w.excess()
	if err != nil || !over.any() {
		return err
	}
	candidates, err := w.candidates(ctx, over)
	if err != nil || len(candidates) == 0 {
		return err
	}
	if !w.DryRun { // a dry run drops no pins, so a new listing would include those of ended holders
		if w.pinned, err = w.listPinned(); err != nil {
			return err
		}
	}
	var errs []error // of single entries; the others are still retired
	for _, cand := range candidates {
		s := largest(w.sizes[cand.id])
		if !over.needs(s) {
			continue
		}
		gone, err := w.cutOne(cand)
		if err != nil {
			errs = append(errs, err)
		}
		if gone {
			over.less(s)
		}
	}
	return errors.Join(errs...)
}

// cutOne retires an entry, or removes a failed fill's leftover. It reports whether that makes room,
// now or later.
func (w *trimming) cutOne(cand candidate) (gone bool, err error) {
	if cand.left {
		err := w.clearLeft(cand)
		return err == nil, err
	}
	found, ok := shard{dir: cand.dir}.read(cand.hash)
	_, token, _ := splitID(cand.id)
	e := entryNames{key: found.Key, hash: cand.hash, dir: cand.dir}
	if !ok || found.Path != e.content(token) || w.isRecent(found.Used) || w.pinned.keeps(cand.hash, token) {
		return false, nil // the entry has changed
	}
	if !w.DryRun {
		if err := w.retire(e, token); err != nil {
			return false, err
		}
	}
	w.Trimmed.Retired = append(w.Trimmed.Retired, found)
	return true, nil
}

// isRecent reports whether an entry was used too recently to be retired for room.
func (w *trimming) isRecent(used time.Time) bool {
	return !w.All && w.o.Settle > 0 && w.now.Sub(used) <= w.o.Settle
}

// clearLeft removes a failed fill's leftover.
func (w *trimming) clearLeft(cand candidate) error {
	if w.DryRun {
		return nil
	}
	if err := w.discard(filepath.Join(cand.dir, cand.id), w.sizes[cand.id]); err != nil {
		return err
	}
	w.freed(cand.id)
	return nil
}

// excess counts the bytes to retire: of all owners, and of single owners.
type excess struct {
	all    bool
	total  int64
	owners map[string]int64
}

func (x excess) any() bool { return x.all || x.total > 0 || len(x.owners) > 0 }

func (x excess) needs(s sizeOf) bool { return x.all || x.total > 0 || x.owners[s.owner] > 0 }

func (x *excess) less(s sizeOf) {
	x.total -= s.bytes
	if x.owners[s.owner] -= s.bytes; x.owners[s.owner] <= 0 {
		delete(x.owners, s.owner)
	}
}

// excess compares the usage, and the room that is asked for, with the limits.
func (w *trimming) excess() (excess, error) {
	x := excess{all: w.All, owners: map[string]int64{}}
	used := w.usage()
	all := used.Bytes
	for id := range w.doomed {
		s := largest(w.sizes[id])
		used.Bytes -= s.bytes
		used.Owners[s.owner] -= s.bytes
	}
	if w.want.name != "" {
		used.Bytes += w.want.bytes
		used.Owners[w.want.owner] += w.want.bytes
	}
	x.total = w.above(used.Bytes, w.size.Load())
	for owner, bytes := range used.Owners {
		if more := w.above(bytes, w.quota(owner)); more > 0 {
			x.owners[owner] = more
		}
	}
	if w.o.MinFree > 0 {
		disk, err := diskspace.Of(w.dir)
		if err != nil {
			return x, err
		}
		x.total = max(x.total, w.o.MinFree-disk.Free-(all-used.Bytes))
	}
	return x, nil
}

// above returns the bytes to retire so that used falls to the low mark of a bound. It returns 0
// below the high mark.
func (w *trimming) above(used, bound int64) int64 {
	if bound == 0 || float64(used) <= w.o.High*float64(bound) {
		return 0
	}
	return used - int64(w.o.Low*float64(bound))
}

func largest(sizes []sizeOf) (most sizeOf) {
	for _, s := range sizes {
		if s.bytes >= most.bytes {
			most = s
		}
	}
	return most
}

// candidate is an entry that may be retired.
type candidate struct {
	hash, id, dir string
	used          time.Time
	left          bool // a failed fill's leftover, not an entry
}

// candidates lists the entries that may be retired, the least recently used first. It takes their
// times from a stat: reading very many records would be slow.
func (w *trimming) candidates(ctx context.Context, x excess) ([]candidate, error) {
	var list []candidate
	err := w.shards(ctx, func(s shard) error {
		for _, name := range s.names {
			hash, token, err := splitID(name)
			sizes := w.sizes[name]
			if err != nil || len(sizes) == 0 || w.doomed[name] || !x.needs(largest(sizes)) || !w.removable(filepath.Join(s.dir, name)) {
				continue
			}
			cand := candidate{hash: hash, id: name, dir: s.dir, left: token == leftToken}
			if !cand.left {
				if w.pinned.keeps(hash, token) {
					continue
				}
				info, err := os.Lstat(filepath.Join(s.dir, hash+recordSuffix))
				if err != nil || w.isRecent(info.ModTime()) {
					continue // it has no record, or was just used
				}
				cand.used = info.ModTime()
			}
			list = append(list, cand)
		}
		return nil
	})
	slices.SortFunc(list, func(a, b candidate) int { return a.used.Compare(b.used) })
	return list, err
}
