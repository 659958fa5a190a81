package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// findOrMake returns an entry's content. It makes the entry, or waits for the process that does.
func (c *Cache) findOrMake(ctx context.Context, e entryNames, w Want, fill Fill) (path string, err error) {
	if err := c.makeDir(e.dir); err != nil {
		return "", fmt.Errorf("make cache entry of %s: %w", e.key, err)
	}
	l, r, err := c.awaitLease(ctx, e, w)
	if err != nil {
		return "", fmt.Errorf("get %s from the cache: %w", e.key, err)
	}
	if l == nil {
		c.touch(e)
		return e.content(r.Token), nil
	}
	defer l.release()
	return c.make(l, e, w, fill) //nolint:contextcheck // the lease has it, and ends it when it is lost
}

// awaitLease waits until the entry exists, and returns its record, or until this process has the
// lease to make the entry.
func (c *Cache) awaitLease(ctx context.Context, e entryNames, w Want) (*lease, record, error) {
	mine := c.self
	mine.Token = newToken() // the same at each try, to recognize a lease whose answer was lost
	for failed := 0; ; {
		r, err := c.readEntryFresh(e)
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, r, err
		}
		l, other, err := c.tryLease(ctx, e, mine)
		if err != nil {
			if failed++; ctx.Err() != nil || failed == triesOfDisk {
				return nil, record{}, errors.Join(ctx.Err(), err)
			}
			continue // a slow or failing disk
		}
		failed = 0
		if l != nil {
			// Another process may have published it before the lease was free.
			r, err := c.readEntryFresh(e)
			if errors.Is(err, fs.ErrNotExist) {
				return l, record{}, nil
			}
			l.release()
			return nil, r, err
		}
		if other == nil {
			continue // the lease has become free
		}
		if w.Waiting != nil {
			w.Waiting(other.String())
		}
		if err := pause.For(ctx, min(c.o.Term/4, time.Second)); err != nil {
			return nil, record{}, err
		}
	}
}

// readEntryFresh reads an entry as the file server has it now. It retires a damaged record. It
// returns fs.ErrNotExist if the entry has to be made.
func (c *Cache) readEntryFresh(e entryNames) (r record, err error) {
	if _, err := c.probe(e.dir); err != nil {
		return record{}, err
	}
	err = persist(func() error {
		r, err = c.readEntry(e)
		return err
	})
	if errors.Is(err, ErrDamaged) {
		if err := c.retire(e, r.Token); err != nil {
			return record{}, err
		}
		return record{}, fs.ErrNotExist
	}
	return r, err
}

// make makes an entry under a lease.
func (c *Cache) make(l *lease, e entryNames, w Want, fill Fill) (path string, err error) {
	began := time.Now()
	room, err := c.reserve(l.ctx, e, l.Token, w.Size, w.Owner)
	if err != nil {
		return "", cause(l, err)
	}
	published := false
	defer func() {
		if !published {
			keep := w.Resume && err != nil && l.trusted() && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT)
			err = errors.Join(err, c.abandon(e, l, keep, &room))
		}
	}()
	if err := c.prepare(e, l, w.Resume); err != nil {
		return "", fmt.Errorf("make cache entry of %s: %w", e.key, err)
	}
	if err := guard(l.ctx, fill, e.content(l.Token)); err != nil {
		return "", cause(l, err)
	}
	s, err := c.complete(l, e)
	if err != nil {
		return "", fmt.Errorf("make cache entry of %s: %w", e.key, cause(l, err))
	}
	if room, err = c.resize(l, e, room, s.takes()); err != nil {
		return "", cause(l, err)
	}
	r := record{
		Format: format, Key: e.key, Token: l.Token, Digest: s.digest, Dir: s.dir, Size: s.bytes, Files: s.files,
		Owner: w.Owner, Private: e.private, Made: began.UTC(), Took: time.Since(began).Seconds(),
	}
	standing, err := c.publish(l, e, r, w.Holder)
	published = standing.Token == l.Token
	if err != nil {
		return "", fmt.Errorf("publish cache entry of %s: %w", e.key, err)
	}
	return e.content(standing.Token), nil
}

// cause adds ErrLost to err if this process can no longer trust its lease, which then explains err.
func cause(l *lease, err error) error {
	if !l.trusted() {
		return errors.Join(ErrLost, err)
	}
	return err
}

// prepare creates the first name of the record, and then the directory for the fill. With resume,
// it takes an earlier fill's leftover as that directory.
func (c *Cache) prepare(e entryNames, l *lease, resume bool) error {
	if err := persist(func() error { return c.createFirstName(e.firstName(l.Token)) }); err != nil {
		return fmt.Errorf("create its record: %w", err)
	}
	if resume && own(e.fillDir(leftToken)) && moveTo(e.fillDir(leftToken), e.fillDir(l.Token)) == nil {
		return c.dropSizesOf(e.id(leftToken))
	}
	err := os.Mkdir(e.fillDir(l.Token), 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) { // it exists if the answer was lost
		return fmt.Errorf("make its directory: %w", err)
	}
	return nil
}

func (c *Cache) createFirstName(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, c.fileMode())
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(c.fileMode()), f.Close()) // regardless of the umask
}

// leftToken replaces the token in the name of a failed fill's directory, which the next fill
// resumes.
const leftToken = "00000000000000000000000000000000"

// guard calls fill. It turns a panic into an error, so that a hostile input does not end the whole
// program.
func guard(ctx context.Context, fill Fill, tmp string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return fill(ctx, tmp)
}

// complete removes everything but the content from a fill's directory, and seals the content.
func (c *Cache) complete(l *lease, e entryNames) (sum, error) {
	beside, err := os.ReadDir(e.fillDir(l.Token))
	if err != nil {
		return sum{}, fmt.Errorf("list the fill's directory: %w", err)
	}
	for _, d := range beside {
		if d.Name() != contentName {
			if err := removeTrash(filepath.Join(e.fillDir(l.Token), d.Name())); err != nil {
				return sum{}, err
			}
		}
	}
	return c.seal(l.ctx, e, l.Token)
}

// resize changes the reserved size to the content's real size.
func (c *Cache) resize(l *lease, e entryNames, room sizeOf, bytes int64) (sizeOf, error) {
	if room.bytes == bytes {
		return room, nil
	}
	took := newSize(e.hash, l.Token, bytes, room.owner)
	var err error
	if bytes > room.bytes {
		took, err = c.reserve(l.ctx, e, l.Token, bytes, room.owner)
	} else { // more was reserved
		err = c.write(took)
	}
	if err != nil {
		return room, err
	}
	return took, remove(c.sizePath(room.name))
}

// abandon removes an unpublished content, or keeps it for the next fill.
func (c *Cache) abandon(e entryNames, l *lease, keep bool, room *sizeOf) error {
	unused, err := c.withdraw(e, l.Token)
	if err != nil || !unused {
		return err // its size counts until a sweep removes it
	}
	if keep {
		c.leaveBehind(e, l.Token, room.owner)
	}
	return c.discard(e.fillDir(l.Token), []sizeOf{*room})
}

// leaveBehind keeps an unfinished content for the next fill of its key, if there is room for it.
func (c *Cache) leaveBehind(e entryNames, token, owner string) {
	if _, err := os.Lstat(e.fillDir(leftToken)); err == nil && !own(e.fillDir(leftToken)) {
		return // it belongs to another user of the group's cache
	}
	taken, err := measure(e.fillDir(token))
	if err != nil || removeTree(e.fillDir(leftToken)) != nil || c.dropSizesOf(e.id(leftToken)) != nil {
		return
	}
	s := newSize(e.hash, leftToken, taken, owner)
	if full, err := c.claim(s); err == nil && full == nil && moveTo(e.fillDir(token), e.fillDir(leftToken)) == nil {
		return
	}
	_ = remove(c.sizePath(s.name)) // if this fails, a sweep removes it
}

// own reports whether this user owns a file.
func own(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// inherit cleans up after a dead fill: it keeps the partial content for the next fill, or removes
// it.
func (c *Cache) inherit(e entryNames, dead holderOfLease) {
	unused, err := c.withdraw(e, dead.Token)
	if err != nil || !unused {
		return // a sweep removes it later
	}
	sizes, err := c.sizesOf(e.id(dead.Token))
	if err != nil {
		return
	}
	c.leaveBehind(e, dead.Token, largest(sizes).owner)
	_ = c.discard(e.fillDir(dead.Token), sizes)
}
