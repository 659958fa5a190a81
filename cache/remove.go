package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// withdraw unlinks the first name of a content that seems unpublished, so that no process can
// publish it, and then reports whether it is unused. If it is, a sweeper, an heir or a failing fill
// removes it.
func (c *Cache) withdraw(e entryNames, token string) (unused bool, err error) {
	if err := remove(e.firstName(token)); err != nil {
		return false, fmt.Errorf("withdraw a content: %w", err)
	}
	return c.isUnused(e, token)
}

// isUnused reports whether no standing or retired record and no pin names a content. An unreadable
// record may name it, and counts. The order matters: the standing record, the retired records, the
// pins.
func (c *Cache) isUnused(e entryNames, token string) (bool, error) {
	if stands, err := c.stands(e, token); err != nil || stands {
		return false, err
	}
	list, _, err := c.listRetired()
	if err != nil {
		return false, err
	}
	for _, r := range list {
		if r.hash != e.hash {
			continue
		}
		_, rec, err := c.readRetired(r)
		switch {
		case r.id == e.id(token), errors.Is(err, ErrDamaged), err == nil && rec.Token == token:
			return false, nil // a trimmer removes it
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return false, err
		}
	}
	pins, err := c.listPinned()
	return err == nil && !pins.holds(e.hash, token), err
}

// stands reports whether the standing record of a key names, or may name, a content.
func (c *Cache) stands(e entryNames, token string) (bool, error) {
	return c.mayName(e.record(), token, func(data []byte) (string, error) {
		r, err := decodeRecord(data)
		return r.Token, err
	})
}

// mayName reports whether the file at path, as the file server has it now, contains a token. A file
// that cannot be decoded may contain it, and counts.
func (c *Cache) mayName(path, token string, decode func([]byte) (string, error)) (bool, error) {
	if _, err := c.probe(filepath.Dir(path)); err != nil {
		return false, err
	}
	var data []byte
	err := persist(func() (err error) {
		data, err = readFile(path)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	its, err := decode(data)
	return err != nil || its == token, nil //nolint:nilerr // see above
}

// leaving is a retired content that a trimmer is about to remove.
type leaving struct {
	retired
	e     entryNames
	token string
}

// removeRetired removes contents whose retirement has settled, unless they are in use again or have
// a pin. It lists the pins once, after it has checked the standing records of all of them.
func (w *trimming) removeRetired(list []leaving) error {
	var going []leaving
	var errs []error
	for _, l := range list {
		err := remove(l.e.firstName(l.token))
		stands := false
		if err == nil {
			stands, err = w.stands(l.e, l.token)
		}
		switch {
		case err != nil && !harmless(err):
			errs = append(errs, err)
		case err == nil && stands: // a late link has published it again
			delete(w.doomed, l.e.id(l.token))
		case err == nil:
			going = append(going, l)
		}
	}
	if len(going) == 0 {
		return errors.Join(errs...)
	}
	pins, err := w.listPinned()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, l := range going {
		if pins.holds(l.hash, l.token) {
			continue
		}
		if err := w.removeContent(l); err != nil && !harmless(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeContent removes a content, its sizes and its retired record.
func (w *trimming) removeContent(l leaving) error {
	id := l.e.id(l.token)
	if err := w.discard(l.e.fillDir(l.token), w.sizes[id]); err != nil {
		return err
	}
	if err := w.forget(l.retired); err != nil {
		return err
	}
	if !w.doomed[id] { // another retired record of it came first
		return nil
	}
	delete(w.doomed, id)
	w.Removed++
	w.freed(id)
	return nil
}
