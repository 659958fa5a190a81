package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// resumableFor is the age, in Graces, at which a failed fill's leftover is swept.
const resumableFor = 24

// sweep removes leftovers of crashes that are older than Grace by the file server's clock. It
// ignores names that it does not know.
func (c *Cache) sweep(ctx context.Context, t *Trimmed, dry bool) error {
	w := sweeping{Cache: c, dry: dry, swept: &t.Swept, contents: map[string]string{}}
	err := w.sweepAll(ctx)
	return errors.Join(append(w.failed, err)...)
}

func (w *sweeping) sweepAll(ctx context.Context) (err error) {
	if w.now, err = w.probe(w.dir); err != nil {
		return err
	}
	if err := w.sweepLeases(); err != nil {
		return err
	}
	if err := w.sweepNotes(); err != nil {
		return err
	}
	if err := w.shards(ctx, w.sweepShard); err != nil {
		return err
	}
	if err := w.unaccounted(); err != nil {
		return err
	}
	kinds, err := w.kinds()
	if err != nil {
		return err
	}
	for _, dir := range slices.Concat([]string{""}, places(), kinds) {
		s, err := readShard(w.place(dir))
		if err != nil {
			return err
		}
		w.temporaries(s.dir, s.names)
	}
	return nil
}

// sweeping is one call of sweep.
type sweeping struct {
	*Cache
	dry   bool
	swept *[]string
	now   time.Time
	// failed has the errors of single leftovers, which stay.
	failed []error
	// busy has the tokens of running fills. contents has the directories of the contents, by id.
	busy     map[string]bool
	contents map[string]string
	// retired has the tokens of retired contents.
	retired map[string]bool
}

// old reports whether a file is older than so many Graces.
//
// A process that was killed while it created a file on NFS 3 may have left it with any time, also one in the future
// (createEmpty). The time of the last change of status is the file server's, so the earlier of both counts.
func (w *sweeping) old(path string, graces int) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	written := info.ModTime()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		if changed := time.Unix(st.Ctim.Unix()); changed.Before(written) {
			written = changed
		}
	}
	return w.now.Sub(written) > time.Duration(graces)*w.o.Grace
}

// removeLeftover removes a leftover, unless this is a dry run. It reports whether it did, or would
// have.
func (w *sweeping) removeLeftover(path string, remove func(string) error) bool {
	if !w.dry {
		if err := remove(path); err != nil {
			if !harmless(err) { // otherwise another user's processes sweep it, or a later sweep
				w.fail(err)
			}
			return false
		}
	}
	*w.swept = append(*w.swept, path)
	return true
}

func (w *sweeping) fail(err error) { w.failed = append(w.failed, fmt.Errorf("sweep: %w", err)) }

// sweepLeases collects the tokens of the leases, and removes leases that were not refreshed for a
// Grace.
func (w *sweeping) sweepLeases() error {
	names, err := w.names(w.place(leasesPlace))
	if err != nil {
		return err
	}
	w.busy = map[string]bool{}
	for _, name := range names {
		path := filepath.Join(w.place(leasesPlace), name)
		if !isHex(name, hashLength) {
			continue
		}
		data, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("sweep leases: %w", err) // without it, a running fill could be swept
		}
		h, err := decodeLease(data)
		if w.old(path, 1) && w.o.Grace > 2*w.o.Term {
			w.removeLeftover(path, func(path string) error { return w.dropLease(path, h.Token) })
			continue
		}
		if err == nil {
			w.busy[h.Token] = true
		}
	}
	return nil
}

// sweepNotes collects the tokens of retired contents, and removes notes without a record.
func (w *sweeping) sweepNotes() error {
	list, notes, err := w.listRetired()
	if err != nil {
		return err
	}
	w.retired = map[string]bool{}
	for _, r := range list {
		_, token, _ := splitID(r.id)
		w.retired[token] = true
		_, rec, err := w.readRetired(r)
		switch {
		case err == nil:
			w.retired[rec.Token] = true
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrDamaged):
			w.fail(err) // isUnused fails, too, for the contents of its key, so they stay
		}
	}
	for _, note := range notes {
		if path := w.retiredPath(note); w.old(path, 1) {
			w.removeLeftover(path, remove)
		}
	}
	return nil
}

// sweepShard sweeps one directory of entries. If a key has a record and only one content, it
// assumes that they belong together: reading very many records would be slow.
func (w *sweeping) sweepShard(s shard) error {
	count := map[string]int{}
	for _, hash := range s.records {
		count[hash] = -1
	}
	for _, name := range s.names {
		hash, token, err := splitID(name)
		if err == nil {
			w.contents[name] = s.dir
		}
		if err == nil && token != leftToken {
			count[hash]++
		}
	}
	for _, name := range s.names {
		path := filepath.Join(s.dir, name)
		hash, token, err := splitID(name)
		switch {
		case err == nil && token == leftToken:
			if w.old(path, resumableFor) && w.removeLeftover(path, removeTree) {
				delete(w.contents, name)
			}
		case err == nil && count[hash] != 0 && !w.busy[token] && !w.retired[token] && w.old(path, 1):
			orphan, err := w.isOrphan(s.dir, hash, token)
			if err != nil {
				w.fail(err)
			}
			if orphan && w.removeLeftover(path, removeTree) {
				delete(w.contents, name)
			}
		}
	}
	w.firstNames(s)
	w.temporaries(s.dir, s.names)
	return nil
}

// firstNames removes the first names of records that no running fill will publish.
func (w *sweeping) firstNames(s shard) {
	for _, name := range s.names {
		id, ok := strings.CutSuffix(name, recordSuffix)
		_, token, err := splitID(id)
		if path := filepath.Join(s.dir, name); ok && err == nil && !w.busy[token] && w.old(path, 1) {
			w.removeLeftover(path, remove)
		}
	}
}

// isOrphan reports whether no process fills a content and nothing needs it. The age of its
// directory proves nothing, because a fill may just have begun to resume it.
func (w *sweeping) isOrphan(dir, hash, token string) (bool, error) {
	filled, err := w.mayName(filepath.Join(w.place(leasesPlace), hash), token, func(data []byte) (string, error) {
		h, err := decodeLease(data)
		return h.Token, err
	})
	if err != nil || filled {
		return false, err
	}
	e := entryNames{hash: hash, dir: dir}
	if w.dry {
		return w.isUnused(e, token)
	}
	return w.withdraw(e, token)
}

// unaccounted removes the sizes of missing contents, and restores missing sizes.
func (w *sweeping) unaccounted() error {
	sizes, err := w.sizes()
	if err != nil {
		return err
	}
	counted := make(map[string]bool, len(sizes))
	for _, s := range sizes {
		counted[s.id()] = true
	}
	for id, dir := range w.contents {
		if !counted[id] && !w.dry {
			if err := w.recount(id, dir); err != nil {
				w.fail(err)
			}
		}
	}
	for _, s := range sizes {
		path := w.sizePath(s.name)
		if w.contents[s.id()] != "" || w.busy[s.token] || w.retired[s.token] || !w.old(path, 1) {
			continue
		}
		w.removeLeftover(path, remove)
	}
	return nil
}

// recount restores the approximate size of a content in use, which a disk may have lost in a crash.
func (w *sweeping) recount(id, dir string) error {
	hash, token, err := splitID(id)
	if err != nil {
		return err
	}
	data, err := readFile(filepath.Join(dir, hash+recordSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r, decodeErr := decodeRecord(data)
	if err != nil || decodeErr != nil || r.Token != token {
		return err
	}
	takes := sum{bytes: r.Size, entries: r.Files + 1}.takes()
	return w.write(newSize(hash, token, takes, r.Owner))
}

// temporaries removes unfinished files, and files whose removal an NFS client did not end.
func (w *sweeping) temporaries(dir string, names []string) {
	for _, name := range names {
		path := filepath.Join(dir, name)
		switch {
		case isTemporary(name) && w.old(path, 1):
			w.removeLeftover(path, removeTrash)
		case isSilly(name) && w.renamedLongAgo(path):
			w.removeLeftover(path, remove)
		}
	}
}

// isSilly reports whether an NFS client gives such a name to a file that is removed while it is open (Linux
// fs/nfs/unlink.c: nfs_sillyrename). The client removes it when the file is closed. If the client dies before that, or
// its call fails, the name stays.
func isSilly(name string) bool {
	rest, ok := strings.CutPrefix(name, ".nfs")
	return ok && rest != "" && strings.Trim(rest, "0123456789abcdef") == ""
}

// renamedLongAgo reports whether a file has had its name for so long that nobody reads it any more: the cache's own
// files are small. Another client's open file must not vanish.
func (w *sweeping) renamedLongAgo(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && w.now.Sub(time.Unix(st.Ctim.Unix())) > resumableFor*w.o.Grace
}

// isTemporary reports whether this package gives such a name to a probe, to a content, a lease or a
// leftover during its removal, or to a record or a lease before it is linked.
func isTemporary(name string) bool {
	if rest, ok := strings.CutPrefix(name, probePrefix); ok {
		return rest != "" && strings.Trim(rest, "0123456789abcdef") == ""
	}
	if rest, ok := strings.CutPrefix(name, trashPrefix); ok {
		id, _, _ := strings.Cut(rest, "-")
		_, _, err := splitID(id)
		return err == nil || isHex(rest, tokenLength)
	}
	base, _, ok := strings.Cut(strings.TrimPrefix(name, "."), ".tmp-")
	return ok && name[0] == '.' && isHex(strings.TrimSuffix(base, recordSuffix), hashLength)
}
