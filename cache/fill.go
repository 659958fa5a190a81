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

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// bring finds an entry, or waits for the process that makes it, or makes it.
func (c *Cache) bring(ctx context.Context, e entry, w Want, fill Fill) (path string, err error) {
	if err := c.makeDir(e.dir); err != nil {
		return "", fmt.Errorf("make cache entry of %s: %w", e.key, err)
	}
	l, r, err := c.lead(ctx, e, w)
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

// lead waits until the entry is there, which it returns, or the lease for
// making it is this process's.
func (c *Cache) lead(ctx context.Context, e entry, w Want) (*lease, record, error) {
	mine := c.self
	mine.Token = newToken() // the same at each try, so that one whose answer was lost is known again
	for failed := 0; ; {
		r, err := c.lookAnew(ctx, e)
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
			r, err := c.lookAnew(ctx, e)
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
		if err := wait(ctx, min(c.o.Term/4, time.Second)); err != nil {
			return nil, record{}, err
		}
	}
}

// lookAnew looks for an entry as the file server has it now. What stands there
// damaged is taken out of use; what was only taken out of use is taken back,
// also from who is about to remove it: else it could come back after another
// content of the key had taken its place. The error is fs.ErrNotExist where the
// entry has to be made.
func (c *Cache) lookAnew(ctx context.Context, e entry) (record, error) {
	pause, waited := time.Millisecond, time.Duration(0)
	// A name that is changed while its directory is listed may be missing in
	// the list (readdir(3)), so it is looked for twice.
	for absent := 0; absent < 2; absent++ {
		r, err := c.lookFresh(e)
		if errors.Is(err, fs.ErrNotExist) {
			if err = c.revive(e); err == nil { // which it may be as it should not
				r, err = c.lookFresh(e)
			}
		}
		switch {
		case errors.Is(err, errMoved) && waited < c.o.Term:
			absent = -1
			if err := wait(ctx, pause); err != nil {
				return record{}, err
			}
			waited, pause = waited+pause, min(2*pause, 100*time.Millisecond)
		case !errors.Is(err, fs.ErrNotExist):
			return r, err
		}
	}
	return record{}, fs.ErrNotExist
}

// lookFresh is look that relies on nothing that this host remembers. A record
// that is damaged is not there any more.
func (c *Cache) lookFresh(e entry) (r record, err error) {
	if _, err := c.fresh(e.dir); err != nil {
		return record{}, err
	}
	err = persist(func() error {
		r, err = c.look(e)
		return err
	})
	if errors.Is(err, ErrDamaged) {
		if err := c.retire(e, r.Token, true); err != nil {
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
	published := false // or may be
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
	standing, kept, err := c.publish(l, e, r)
	published = kept
	if err != nil {
		return "", fmt.Errorf("publish cache entry of %s: %w", e.key, err)
	}
	return e.content(standing.Token), nil
}

// cause prefers that the lease was lost, whether that is noticed yet or not, over
// what came of that.
func cause(l *lease, err error) error {
	if !l.trusted() {
		return errors.Join(ErrLost, err)
	}
	return err
}

// prepare makes the directory that a fill works in. Where resuming is wanted,
// it is what an earlier fill has left.
func (c *Cache) prepare(e entry, l *lease, resume bool) error {
	if resume && own(e.object(leftToken)) && moveTo(e.object(leftToken), e.object(l.Token)) == nil {
		return c.dropSizes(e.id(leftToken))
	}
	mode := fs.FileMode(0o700)
	err := os.Mkdir(e.object(l.Token), mode)
	if err != nil && !errors.Is(err, fs.ErrExist) { // it exists where the answer was lost
		return fmt.Errorf("make its directory: %w", err)
	}
	return nil
}

// leftToken stands in the place of a token where a failed fill leaves its
// directory for the next.
const leftToken = "00000000000000000000000000000000"

// guard calls fill. One that panics fails, so that what a hostile input brings
// about does not end the whole program.
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

// errUnclear means that a record may stand, now or later.
var errUnclear = errors.New("it is not known whether the disk took the record")

// publishWithin is how long publishing goes on when the disk does not tell
// what stands.
const publishWithin = 30 * time.Second

// publish makes a content known, unless another of its key stands, which it
// returns then. It begins only while the lease holds; that of several contents
// one is published at most does not hang on that. The content is to be kept if
// it is or was published, or may be.
func (c *Cache) publish(l *lease, e entry, r record) (standing record, kept bool, err error) {
	text, err := r.encode()
	if err != nil {
		return record{}, false, err
	}
	// It is always the same file that is linked. As long as its first name is
	// there, nobody who finds it retired removes its content.
	tmp, err := atomicfile.Temporary(e.record(), text, c.fileMode())
	if err != nil {
		return record{}, false, fmt.Errorf("write its record: %w", err)
	}
	defer remove(tmp) //nolint:errcheck // else it is swept
	if !l.holds() {
		return record{}, false, ErrLost
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), publishWithin)
	defer cancel()
	standing, err = linkRecord(tmp, e)
	for err != nil {
		if ended := wait(ctx, 100*time.Millisecond); ended != nil {
			return record{}, true, errors.Join(errUnclear, err)
		}
		standing, err = linkRecord(tmp, e)
	}
	if standing.Token == l.Token {
		// What came before it and could still come back is over. Where the disk
		// fails that, it may come back all the same: it is a content of the key.
		_ = c.spendOthers(e, l.Token)
		kept = true
	} else if info, err := openedInfo(tmp); err != nil || links(info) > 1 {
		kept = true // it was published, and taken out of use
	}
	if r, err := c.look(e); errors.Is(err, ErrDamaged) {
		// Who published it was stopped for so long before it did that its
		// content was swept.
		return record{}, kept && r.Token != l.Token, errors.Join(ErrLost, c.retire(e, r.Token, true))
	}
	return standing, kept, nil
}

// abandon removes what is not published, or leaves it for the next fill.
func (c *Cache) abandon(e entry, l *lease, keep bool, room *sizeOf) error {
	if keep {
		c.leaveBehind(e, l.Token, room.owner)
	}
	if err := removeTree(e.object(l.Token)); err != nil {
		return err // and it counts until it is swept
	}
	return remove(c.sizePath(room.name))
}

// leaveBehind leaves what a fill has made for the next one of its key, if there
// is room for it.
func (c *Cache) leaveBehind(e entry, token, owner string) {
	if _, err := os.Lstat(e.object(leftToken)); err == nil && !own(e.object(leftToken)) {
		return // another user's, in a cache that a group shares
	}
	taken, err := measure(e.object(token))
	if err != nil || removeTree(e.object(leftToken)) != nil || c.dropSizes(e.id(leftToken)) != nil {
		return
	}
	s := newSize(e.hash, leftToken, taken, owner)
	if full, err := c.claim(s); err == nil && full == nil && moveTo(e.object(token), e.object(leftToken)) == nil {
		return
	}
	_ = remove(c.sizePath(s.name)) // else it is swept one day
}

// own says whether something is this user's.
func own(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// ownerOf is on whose quota a content counts; empty where that is not known.
func (c *Cache) ownerOf(id string) string {
	sizes, err := c.sizes()
	if err != nil {
		return ""
	}
	for _, s := range sizes {
		if s.id() == id {
			return s.owner
		}
	}
	return ""
}

// dropSizes takes a content off what counts against the quotas.
func (c *Cache) dropSizes(id string) error {
	sizes, err := c.sizes()
	if err != nil {
		return err
	}
	for _, s := range sizes {
		if s.id() == id {
			if err := remove(c.sizePath(s.name)); err != nil {
				return fmt.Errorf("take %s off what counts: %w", id, err)
			}
		}
	}
	return nil
}

// inherit does with what a killed process has made as that would have done. It
// is provably gone, so nobody else is at it, but it may have published that
// before; and somebody may just be taking it out of use, or into use again.
func (c *Cache) inherit(e entry, dead holderOfLease) {
	for range 2 {
		if known, err := c.isKnown(e, dead.Token); err != nil || known {
			return
		}
	}
	c.leaveBehind(e, dead.Token, c.ownerOf(e.id(dead.Token)))
	if removeTree(e.object(dead.Token)) == nil { // else it is swept one day
		_ = c.dropSizes(e.id(dead.Token))
	}
}
