package cache

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// An entry that is to go is retired first: its record moves to the place of the
// retired, where no look finds it. Retiring is harmless at any time, since
// what is retired can be restored. It is removed when, after all hosts must
// have noticed, it still has no pin.
//
// The record is one inode from its publication to its end, and its names are
// the truth. It is restored by a link of the retired name itself, so who comes
// late finds no name to link. It is removed by who renamed it to a name of its
// own, saw then that it has no other name, looked for pins only then, and
// could rename it once more: who wants it renames it back meanwhile. How long
// any of that takes does not matter.

// The name of a retired record is that of its content, and of this retiring.
// These are its ends; one that is to be restored or removed by whoever comes
// first has none.
const (
	seenSuffix     = ".seen"     // not a record: made after the retiring, its time is the beginning of Settle
	spentSuffix    = ".spent"    // must not be restored: damaged, or another content has taken its place
	restoredSuffix = ".restored" // is being restored, by whoever sees it
	checkedSuffix  = ".checked"  // somebody, whose token stands before it, looks whether it may be removed
	removedSuffix  = ".removed"  // is being removed, by whoever sees it
)

func (c *Cache) retiredPath(name string) string { return filepath.Join(c.place(retiredPlace), name) }

// retire takes the record of a key out of use. It is called for the content of
// token, or of a record that cannot be read (then token is empty); if another
// record stands by now, that is retired, which does no harm. What is damaged
// is not restored, but only what was found so.
func (c *Cache) retire(e entry, token string, damaged bool) error {
	if token == "" {
		token = newToken() // the content, whichever it was, is swept
	}
	name := e.id(token) + "~" + newToken()
	if damaged {
		name += spentSuffix
	}
	err := moveTo(e.record(), c.retiredPath(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("take %s out of use: %w", e.key, err)
	case !damaged:
		return nil
	}
	if _, r, err := c.readRetired(name, e.hash); err == nil && r.Token != token {
		return moveTo(c.retiredPath(name), c.retiredPath(strings.TrimSuffix(name, spentSuffix)))
	}
	return nil
}

// retired is one record out of use.
type retired struct {
	name string // without its end
	end  string
	hash string
	id   string // of the content, as the name has it; the record says which it is
	seen bool
	// checked is the file's name while somebody looks whether it may be
	// removed; file is the one before and after that.
	checked string
}

func (r retired) file() string { return r.name + r.end }

func parseRetired(file string) (retired, bool) {
	r := retired{name: file}
	for _, end := range []string{seenSuffix, spentSuffix, restoredSuffix, removedSuffix} {
		if name, ok := strings.CutSuffix(file, end); ok {
			r.name, r.end = name, end
		}
	}
	if checked, ok := strings.CutSuffix(file, checkedSuffix); ok && strings.Contains(checked, "~") {
		before, _ := parseRetired(checked[:strings.LastIndex(checked, "~")])
		r.name, r.end, r.checked = before.name, before.end, file
	}
	r.id, _, _ = strings.Cut(r.name, "~")
	var err error
	r.hash, _, err = splitID(r.id)
	return r, err == nil
}

// outOfUse lists the records out of use, as the file server has them now, and
// the notes of none.
func (c *Cache) outOfUse() (list []retired, notes []string, err error) {
	files, err := c.names(c.place(retiredPlace))
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for _, file := range files {
		if r, ok := parseRetired(file); ok && r.end == seenSuffix {
			seen[r.name] = true
		} else if ok {
			list = append(list, r)
		}
	}
	for i := range list {
		list[i].seen = seen[list[i].name]
		delete(seen, list[i].name)
	}
	for name := range seen {
		notes = append(notes, name+seenSuffix)
	}
	return list, notes, nil
}

// settled says whether a record has been out of use for Settle. The first who
// asks notes that it is out of use; it is so at the latest since then, by the
// clock of the file server.
func (c *Cache) settled(r retired, now time.Time) (bool, error) {
	if c.o.Settle == 0 {
		return true, nil
	}
	path := c.retiredPath(r.name + seenSuffix)
	if !r.seen {
		err := persist(func() error {
			// Not O_EXCL, of which NFS makes two calls: in between, the file bears
			// any time (RFC 1813, 3.3.8: EXCLUSIVE).
			f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, c.fileMode())
			if err != nil {
				return err
			}
			return f.Close()
		})
		if err != nil {
			return false, fmt.Errorf("note what is out of use: %w", err)
		}
		return false, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at what is out of use: %w", err)
	}
	return now.Sub(info.ModTime()) > c.o.Settle, nil
}

// readRetired reads a record out of use, and says where its entry is.
func (c *Cache) readRetired(file, hash string) (entry, record, error) {
	data, err := readFile(c.retiredPath(file))
	if err != nil {
		return entry{}, record{}, err
	}
	r, err := decodeRecord(data)
	if err != nil {
		return entry{}, record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return entry{key: r.Key, private: r.Private, hash: hash, dir: filepath.Join(c.dir, r.Kind, hash[:2])}, r, nil
}

// links is how many names a file has.
func links(info fs.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(st.Nlink) //nolint:unconvert // it is narrower elsewhere
}

// isKnown says whether a record, in use or out of it, tells of a content, or may:
// one that cannot be read, or has just been given another name. One that is just
// going from the one to the other may be missed.
func (c *Cache) isKnown(e entry, token string) (bool, error) {
	if _, err := c.fresh(e.dir); err != nil {
		return false, err
	}
	data, err := readFile(e.record())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err == nil && mayTell(data, token) {
		return true, nil
	}
	list, _, err := c.outOfUse()
	if err != nil {
		return false, err
	}
	for _, r := range list {
		if r.hash != e.hash {
			continue
		}
		if r.id == e.id(token) {
			return true, nil
		}
		_, rec, err := c.readRetired(cmp.Or(r.checked, r.file()), r.hash)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, ErrDamaged), err == nil && rec.Token == token:
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return false, nil
}

// mayTell says whether a record tells of a content, or cannot be read.
func mayTell(data []byte, token string) bool {
	r, err := decodeRecord(data)
	return err != nil || r.Token == token
}

// linkRecord gives a file that holds a record the name by which it is found, if
// no record has it, and says which one does. The error is fs.ErrNotExist where
// the file is gone, or no record stands any more.
func linkRecord(path string, e entry) (standing record, err error) {
	err = persist(func() error {
		linkErr := os.Link(path, e.record())
		data, err := readFile(e.record())
		switch {
		case err == nil:
			standing, err = decodeRecord(data)
			return err
		case errors.Is(err, fs.ErrNotExist) && linkErr != nil && !errors.Is(linkErr, fs.ErrExist) && !errors.Is(linkErr, syscall.ESTALE):
			return linkErr
		}
		return errors.Join(linkErr, err)
	})
	if err != nil {
		return standing, err
	}
	return standing, atomicfile.SyncDir(e.dir)
}

// dropRetired forgets a record that was out of use.
func (c *Cache) dropRetired(name, file string) error {
	return errors.Join(remove(c.retiredPath(file)), remove(c.retiredPath(name+seenSuffix)))
}

// check begins the removal of a record out of use, one of list. The error is
// fs.ErrNotExist where another has it, and errInUse where it is not to be
// removed, since it has another name. Where that is the better one, this one
// goes.
func (c *Cache) check(r *retired, list []retired) error {
	checked := r.file() + "~" + newToken() + checkedSuffix
	if err := moveTo(c.retiredPath(r.file()), c.retiredPath(checked)); err != nil {
		return err
	}
	r.checked = checked
	info, err := openedInfo(c.retiredPath(checked))
	if err != nil {
		return err
	}
	if links(info) == 1 {
		return nil
	}
	surplus, err := c.isSurplus(*r, info, list)
	if err == nil && surplus {
		return errors.Join(errInUse, c.dropRetired(r.name, checked))
	}
	return errors.Join(errInUse, err, c.uncheck(*r))
}

// isSurplus says whether a checked record has a better name: that of a record in
// use, which gets another when it is retired in its turn; or that of a retired
// one that comes before this one, so that of several names one stays.
func (c *Cache) isSurplus(r retired, info fs.FileInfo, list []retired) (bool, error) {
	e, _, err := c.readRetired(r.checked, r.hash)
	if err != nil {
		return false, err
	}
	if _, err := c.fresh(e.dir); err != nil {
		return false, err
	}
	if other, err := openedInfo(e.record()); err == nil && os.SameFile(info, other) {
		return true, nil
	}
	for _, before := range list {
		if before.hash != r.hash || before.name >= r.name || before.checked != "" || before.end != "" && before.end != spentSuffix {
			continue
		}
		if other, err := openedInfo(c.retiredPath(before.file())); err == nil && os.SameFile(info, other) {
			return true, nil
		}
	}
	return false, nil
}

// openedInfo is what the file server says of a file now: an open asks it, which
// a stat need not.
func openedInfo(path string) (info fs.FileInfo, err error) {
	err = persist(func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		info, err = f.Stat()
		return errors.Join(err, f.Close())
	})
	return info, err
}

var errInUse = errors.New("it is in use")

// uncheck puts a record back to where it was before check.
func (c *Cache) uncheck(r retired) error {
	return moveTo(c.retiredPath(r.checked), c.retiredPath(r.file()))
}

// discard removes a record out of use that was checked, with its content, which
// sizes has counted. It is fs.ErrNotExist where another has taken it.
func (c *Cache) discard(r retired, sizes map[string][]sizeOf) error {
	taken := r.name + removedSuffix
	if r.end != removedSuffix {
		if err := moveTo(c.retiredPath(r.checked), c.retiredPath(taken)); err != nil {
			return err
		}
	}
	e, rec, err := c.readRetired(taken, r.hash)
	if errors.Is(err, ErrDamaged) {
		return c.dropRetired(r.name, taken) // its content is swept
	}
	if err != nil {
		return err
	}
	if err := removeTree(e.object(rec.Token)); err != nil {
		return err
	}
	for _, s := range sizes[e.id(rec.Token)] {
		if err := remove(c.sizePath(s.name)); err != nil {
			return fmt.Errorf("take %s off what counts: %w", rec.Key, err)
		}
	}
	return c.dropRetired(r.name, taken)
}
