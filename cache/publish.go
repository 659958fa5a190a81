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

// publishWithin is how long publishing goes on when the disk does not tell
// what stands.
const publishWithin = 30 * time.Second

// publish makes a content known, unless another of its key stands, and returns
// the record that does. It begins only while the lease holds. It pins the content
// before that for the holder, if there is one. The error is ErrLost where a
// sweeper, or a trimmer, has unlinked the first name.
func (c *Cache) publish(l *lease, e entry, r record, h Holder) (standing record, err error) {
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
			return record{}, fmt.Errorf("it is not known whether the disk took the record: %w", err)
		}
	}
	if err == nil && standing.Token == l.Token {
		_ = remove(first) // else it is swept
	}
	return standing, withdrawn(err)
}

// withdrawn is ErrLost where a first name is gone.
func withdrawn(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(ErrLost, err)
	}
	return err
}

// writeRecord writes a record into the file of its first name, which it does not
// create: a sweeper may have unlinked it, and removed the content since.
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

// errNoFirstName means that nothing stands, and that there is nothing to link.
var errNoFirstName = fmt.Errorf("its first name is gone: %w", fs.ErrNotExist)

// linkRecord links a first name to the name by which a record is found, if no
// record has that, and returns the record that has. What link answers decides nothing.
func linkRecord(first string, e entry) (standing record, err error) {
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
