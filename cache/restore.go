package cache

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// errMoved means that a record out of use had another name by the time that it
// was to be taken back: where it is now is to be seen.
var errMoved = errors.New("it is just being restored or removed")

// revive takes an entry that is out of use back. The error is fs.ErrNotExist
// where there is none, and errMoved where it is not known yet.
func (c *Cache) revive(e entry) error {
	list, _, err := c.outOfUse()
	if err != nil {
		return err
	}
	none := fs.ErrNotExist
	for _, r := range list {
		if r.hash != e.hash || r.end == removedSuffix || r.end == spentSuffix {
			continue
		}
		switch _, err := c.restore(r); {
		case err == nil:
			return nil
		case errors.Is(err, ErrDamaged):
		case errors.Is(err, fs.ErrNotExist):
			none = errMoved
		default:
			return err
		}
	}
	return none
}

// restore puts a record back, and says which record of its key stands then.
// The error is fs.ErrNotExist where another has taken it, and ErrDamaged where
// it cannot be put back.
func (c *Cache) restore(r retired) (record, error) {
	from, taken := cmp.Or(r.checked, r.file()), r.name+restoredSuffix
	e, rec, err := c.readRetired(from, r.hash)
	if errors.Is(err, ErrDamaged) && !errors.Is(err, errForeign) {
		return record{}, errors.Join(err, c.spend(r, from))
	}
	if err != nil {
		return record{}, err
	}
	if from != taken {
		if err := moveTo(c.retiredPath(from), c.retiredPath(taken)); err != nil {
			return record{}, err
		}
	}
	if there, err := c.isThere(e, rec.Token); err != nil {
		return record{}, err
	} else if !there {
		return record{}, errors.Join(ErrDamaged, c.dropRetired(r.name, taken))
	}
	// A name that this host remembers would be taken for the one that is made.
	if _, err := c.fresh(e.dir); err != nil {
		return record{}, err
	}
	standing, err := linkRecord(c.retiredPath(taken), e)
	switch {
	case errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.EPERM):
		// A file system that links within a directory only.
		return record{}, errors.Join(ErrDamaged, err, c.spend(r, taken))
	case err != nil:
		return record{}, fmt.Errorf("take %s into use again: %w", rec.Key, err)
	case standing.Token != rec.Token:
		return standing, c.spend(r, taken)
	}
	// It is dropped only when it has another name.
	alone, err := c.isAlone(taken)
	if err != nil {
		return record{}, err
	}
	if alone {
		return record{}, fmt.Errorf("take %s into use again: %w", rec.Key, fs.ErrNotExist)
	}
	return standing, c.dropRetired(r.name, taken)
}

// spend makes a record out of use, which has the name from now, one that is not
// restored any more.
func (c *Cache) spend(r retired, from string) error {
	return moveTo(c.retiredPath(from), c.retiredPath(r.name+spentSuffix))
}

// spendOthers makes all records of a key that are out of use ones that are not
// restored any more, but for those of this content: it has taken their place.
func (c *Cache) spendOthers(e entry, token string) error {
	list, _, err := c.outOfUse()
	if err != nil {
		return err
	}
	for _, r := range list {
		if r.hash != e.hash || r.end == removedSuffix || r.end == spentSuffix {
			continue
		}
		from := cmp.Or(r.checked, r.file())
		_, rec, err := c.readRetired(from, e.hash)
		if err == nil && rec.Token != token {
			err = c.spend(r, from)
		}
		if err != nil && !harmless(err) {
			return err
		}
	}
	return nil
}

// isThere says whether a content is on the disk.
func (c *Cache) isThere(e entry, token string) (bool, error) {
	_, err := os.Lstat(e.content(token))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := c.fresh(e.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		_, err = os.Lstat(e.content(token))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// isAlone says whether a record out of use has no other name.
func (c *Cache) isAlone(file string) (bool, error) {
	info, err := openedInfo(c.retiredPath(file))
	if err != nil {
		return false, err
	}
	return links(info) == 1, nil
}
