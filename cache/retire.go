package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// seenSuffix ends the name of a note: a file that is made after a record was retired. Settle begins
// at the note's time.
const seenSuffix = ".seen"

func (c *Cache) retiredPath(name string) string { return filepath.Join(c.place(retiredPlace), name) }

// retire moves the standing record of a key into retired/, whichever content it names at that time,
// which is always safe. The token, of the record that the caller saw or empty, only becomes part of
// the file's name: the record's text names its content.
func (c *Cache) retire(e entryNames, token string) error {
	if token == "" {
		token = newToken()
	}
	err := moveTo(e.record(), c.retiredPath(e.id(token)+"~"+newToken()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("retire the record of %s: %w", e.key, err)
	}
	return nil
}

// retired describes a file in retired/.
type retired struct {
	name string
	hash string
	id   string // of a content, from the file's name
	seen bool   // it has a note
}

// listRetired lists the retired records as the file server has them now, and the notes without a
// record.
func (c *Cache) listRetired() (list []retired, notes []string, err error) {
	names, err := c.names(c.place(retiredPlace))
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for _, name := range names {
		id, _, _ := strings.Cut(name, "~")
		hash, _, err := splitID(id)
		if err != nil {
			continue
		}
		if of, ok := strings.CutSuffix(name, seenSuffix); ok {
			seen[of] = true
		} else {
			list = append(list, retired{name: name, hash: hash, id: id})
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

// readRetired reads a retired record, and returns its entry, too.
func (c *Cache) readRetired(r retired) (entryNames, record, error) {
	data, err := readFile(c.retiredPath(r.name))
	if err != nil {
		return entryNames{}, record{}, err
	}
	rec, err := decodeRecord(data)
	if err != nil {
		return entryNames{}, record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return entryNames{key: rec.Key, private: rec.Private, hash: r.hash, dir: filepath.Join(c.dir, rec.Kind, r.hash[:2])}, rec, nil
}

// settled reports whether a record was retired longer than Settle ago. The first trimmer that finds
// it unlinks the first name of its content, so that no process begins to link it, and then makes
// the note.
func (c *Cache) settled(r retired, now time.Time) (bool, error) {
	if c.o.Settle == 0 {
		return true, nil
	}
	path := c.retiredPath(r.name + seenSuffix)
	if !r.seen {
		e, rec, err := c.readRetired(r)
		if err == nil {
			err = remove(e.firstName(rec.Token))
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			return false, err
		}
		if err := c.createEmpty(path); err != nil {
			return false, fmt.Errorf("note that a record is retired: %w", err)
		}
		return false, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the time of a retirement: %w", err)
	}
	return now.Sub(info.ModTime()) > c.o.Settle, nil
}

// forget removes a retired record and its note.
func (c *Cache) forget(r retired) error {
	return errors.Join(remove(c.retiredPath(r.name)), remove(c.retiredPath(r.name+seenSuffix)))
}
