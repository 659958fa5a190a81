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

// findOrMake finds an entry, waits for the process that makes it, or makes it.
func (c *Cache) findOrMake(ctx context.Context, e entry, w Want, fill Fill) (path string, err error) {
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

// awaitLease waits until the entry is there, which it returns, or the lease for
// making it is this process's.
func (c *Cache) awaitLease(ctx context.Context, e entry, w Want) (*lease, record, error) {
	mine := c.self
	mine.Token = newToken() // the same at each try, to recognize a lease of which the answer was lost
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
			continue // slow, or in trouble
		}
		failed = 0
		if l != nil {
			// It may have been published before the lease was free.
			r, err := c.readEntryFresh(e)
			if errors.Is(err, fs.ErrNotExist) {
				return l, record{}, nil
			}
			l.release()
			return nil, r, err
		}
		if other == nil {
			continue // it is free by now
		}
		if w.Waiting != nil {
			w.Waiting(other.String())
		}
		if err := pause.For(ctx, min(c.o.Term/4, time.Second)); err != nil {
			return nil, record{}, err
		}
	}
}

// readEntryFresh reads an entry as the file server has it now. It retires a damaged
// record. The error is fs.ErrNotExist where the entry has to be made.
func (c *Cache) readEntryFresh(e entry) (r record, err error) {
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
func (c *Cache) make(l *lease, e entry, w Want, fill Fill) (path string, err error) {
	began := time.Now() //nolint:forbidigo // what making it took
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
		Owner: w.Owner, Private: e.private, Made: began.UTC(), Took: time.Since(began).Seconds(), //nolint:forbidigo // as above
	}
	standing, err := c.publish(l, e, r, w.Holder)
	published = standing.Token == l.Token
	if err != nil {
		return "", fmt.Errorf("publish cache entry of %s: %w", e.key, err)
	}
	return e.content(standing.Token), nil
}

// cause adds ErrLost to err if this process can no longer trust its lease: err is
// then a consequence.
func cause(l *lease, err error) error {
	if !l.trusted() {
		return errors.Join(ErrLost, err)
	}
	return err
}

// prepare creates the first name of the record, and then the directory that a fill
// works in. Where resuming is wanted, that is what an earlier fill has left.
func (c *Cache) prepare(e entry, l *lease, resume bool) error {
	if err := persist(func() error { return c.createFirstName(e.firstName(l.Token)) }); err != nil {
		return fmt.Errorf("create its record: %w", err)
	}
	if resume && own(e.object(leftToken)) && moveTo(e.object(leftToken), e.object(l.Token)) == nil {
		return c.dropSizesOf(e.id(leftToken))
	}
	err := os.Mkdir(e.object(l.Token), 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) { // it exists where the answer was lost
		return fmt.Errorf("make its directory: %w", err)
	}
	return nil
}

func (c *Cache) createFirstName(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, c.fileMode())
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(c.fileMode()), f.Close()) // whatever the umask
}

// leftToken stands in the place of a token where a failed fill leaves its
// directory for the next.
const leftToken = "00000000000000000000000000000000"

// guard calls fill. A panic of fill becomes an error, so that a hostile input does not
// end the whole program.
func guard(ctx context.Context, fill Fill, tmp string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return fill(ctx, tmp)
}

// complete removes what a fill left beside its content, and seals that.
func (c *Cache) complete(l *lease, e entry) (sum, error) {
	beside, err := os.ReadDir(e.object(l.Token))
	if err != nil {
		return sum{}, fmt.Errorf("look at what was made: %w", err)
	}
	for _, d := range beside {
		if d.Name() != contentName {
			if err := removeTrash(filepath.Join(e.object(l.Token), d.Name())); err != nil {
				return sum{}, err
			}
		}
	}
	return c.seal(l.ctx, e, l.Token)
}

// resize changes what is reserved to what a content really takes.
func (c *Cache) resize(l *lease, e entry, room sizeOf, bytes int64) (sizeOf, error) {
	if room.bytes == bytes {
		return room, nil
	}
	took := newSize(e.hash, l.Token, bytes, room.owner)
	var err error
	if bytes > room.bytes {
		took, err = c.reserve(l.ctx, e, l.Token, bytes, room.owner)
	} else { // it had room for more
		err = c.write(took)
	}
	if err != nil {
		return room, err
	}
	return took, remove(c.sizePath(room.name))
}

// abandon removes what is not published, or leaves it for the next fill.
func (c *Cache) abandon(e entry, l *lease, keep bool, room *sizeOf) error {
	unused, err := c.withdraw(e, l.Token)
	if err != nil || !unused {
		return err // and it counts until it is swept
	}
	if keep {
		c.leaveBehind(e, l.Token, room.owner)
	}
	return c.discard(e.object(l.Token), []sizeOf{*room})
}

// leaveBehind leaves what a fill has made for the next one of its key, if there
// is room for it.
func (c *Cache) leaveBehind(e entry, token, owner string) {
	if _, err := os.Lstat(e.object(leftToken)); err == nil && !own(e.object(leftToken)) {
		return // another user's, in a cache that a group shares
	}
	taken, err := measure(e.object(token))
	if err != nil || removeTree(e.object(leftToken)) != nil || c.dropSizesOf(e.id(leftToken)) != nil {
		return
	}
	s := newSize(e.hash, leftToken, taken, owner)
	if full, err := c.claim(s); err == nil && full == nil && moveTo(e.object(token), e.object(leftToken)) == nil {
		return
	}
	_ = remove(c.sizePath(s.name)) // else it is swept one day
}

// own reports whether something is this user's.
func own(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// inherit cleans up after a dead fill: it leaves the partial content for the next
// fill, or removes it.
func (c *Cache) inherit(e entry, dead holderOfLease) {
	unused, err := c.withdraw(e, dead.Token)
	if err != nil || !unused {
		return // else it is swept one day
	}
	sizes, err := c.sizesOf(e.id(dead.Token))
	if err != nil {
		return
	}
	c.leaveBehind(e, dead.Token, largest(sizes).owner)
	_ = c.discard(e.object(dead.Token), sizes)
}
