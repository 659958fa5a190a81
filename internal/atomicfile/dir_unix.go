//go:build unix

package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// SyncDir flushes a directory's entries to its disk.
func SyncDir(dir string) error {
	d, err := smallfile.Open(dir, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("flush %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("flush %s: %w", dir, err)
	}
	return nil
}

// createTemp is os.CreateTemp with fewer system calls.
func createTemp(dir, prefix string) (f *os.File, err error) {
	const tries = 10000
	for range tries {
		name := prefix + strconv.FormatUint(uint64(rand.Uint32()), 10) //nolint:gosec // the file system refuses a name that is taken
		f, err = smallfile.Open(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return f, err
}

// rename is os.Rename without a look at the new name before.
func rename(from, to string) error {
	for {
		err := syscall.Rename(from, to)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
		}
	}
}
