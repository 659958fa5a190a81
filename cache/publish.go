package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// publishWithin limits the tries to publish while the disk does not show the standing record.
const publishWithin = 30 * time.Second

// publish makes a content known, unless another content of its key stands, and returns the standing
// record. It first pins the content for the holder, if there is one. It begins only while the lease
// holds. It returns ErrLost if a sweeper or a trimmer has unlinked the first name.
func (c *Cache) publish(l *lease, e entryNames, r record, h Holder) (standing record, err error) {
	text, err := r.encode()
	if err != nil {
		return record{}, err
	}
	first := e.firstName(l.Token)
	if err := writeRecord(first, text); err != nil {
		return record{}, withdrawn(err)
	}
	if !l.holds() {
		return record{}, ErrLost
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), publishWithin)
	defer cancel()
	if h != "" {
		if err := c.pin(ctx, e.id(l.Token), h); err != nil {
			return record{}, err
		}
	}
	for {
		standing, err = linkRecord(first, e)
		if err == nil || errors.Is(err, errNoFirstName) {
			break
		}
		if pause.For(ctx, 100*time.Millisecond) != nil {
			return record{}, fmt.Errorf("the disk did not show whether it took the record: %w", err)
		}
	}
	if err == nil && standing.Token == l.Token {
		_ = remove(first) // if this fails, a sweep removes it
	}
	return standing, withdrawn(err)
}

// withdrawn adds ErrLost to the error of a missing first name.
func withdrawn(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(ErrLost, err)
	}
	return err
}

// writeRecord writes a record into the file of its first name. It does not create the file: a
// sweeper may have unlinked it and removed the content.
func writeRecord(path string, text []byte) error {
	return persist(func() error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		return errors.Join(err, f.Sync(), f.Close())
	})
}

// errNoFirstName means that no record stands, and that there is none to link.
var errNoFirstName = fmt.Errorf("its first name is gone: %w", fs.ErrNotExist)

// linkRecord links a first name to the standing name, unless a record stands, and returns the
// standing record. It ignores link's answer, which may be wrong on a network file system.
func linkRecord(first string, e entryNames) (standing record, err error) {
	err = persist(func() error {
		linkErr := os.Link(first, e.record())
		data, err := readFile(e.record())
		if err == nil {
			standing, err = decodeRecord(data)
			return err
		}
		if _, gone := os.Lstat(first); errors.Is(linkErr, fs.ErrNotExist) && errors.Is(gone, fs.ErrNotExist) {
			return errNoFirstName
		}
		return errors.Join(linkErr, err)
	})
	if err != nil {
		return record{}, err
	}
	return standing, atomicfile.SyncDir(e.dir)
}
