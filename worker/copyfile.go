package worker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
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
	err = filetree.CopyData(ctx, to, from)
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
