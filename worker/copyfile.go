package worker

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func (c *copier) copyFile(ctx context.Context, name, temporary string, info fs.FileInfo) error {
	from, err := c.from.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // only read
	to, err := c.to.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copyData(ctx, to, from, info.Size())
	if err == nil {
		err = to.Chmod(info.Mode().Perm() | 0o400)
	}
	if err == nil {
		err = c.flush(to)
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	return c.to.Chtimes(temporary, info.ModTime(), info.ModTime())
}

// copyStep is the number of bytes between two checks of ctx.
const copyStep = 64 << 20

// copyData copies the data of a file and keeps its holes.
func copyData(ctx context.Context, to, from *os.File, size int64) error {
	for at := int64(0); at < size; {
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole follows
		}
		hole := size
		if err != nil {
			data = at // the disk does not support it
		} else if hole, err = from.Seek(data, unix.SEEK_HOLE); err != nil {
			hole = size
		}
		at = min(hole, data+copyStep, size)
		if err := copyPart(to, from, data, at); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return to.Truncate(size)
}

func copyPart(to, from *os.File, begin, end int64) error {
	for _, f := range []*os.File{to, from} {
		if _, err := f.Seek(begin, io.SeekStart); err != nil {
			return err
		}
	}
	_, err := io.Copy(to, io.LimitReader(from, end-begin))
	return err
}
