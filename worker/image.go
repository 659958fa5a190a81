package worker

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/spool"
)

// openImage opens a SIF that is used in place, and checks by path, size and time
// that it has not changed since the bundle was staged. It returns nil for a SIF
// that belongs to the bridge.
func openImage(in spool.Inputs) (*os.File, error) {
	if in.ImageFile == nil {
		return nil, nil //nolint:nilnil // nil means: no file to open
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, in.Image, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, &userError{fmt.Sprintf("The image %s has a symbolic link in its path by now: run the bundle again.", in.Image)}
	case err != nil:
		return nil, fmt.Errorf("open the image %s: %w", in.Image, err)
	}
	f := os.NewFile(uintptr(fd), in.Image)
	info, err := f.Stat()
	if err == nil && (info.Size() != in.ImageFile.Size || info.ModTime().UnixNano() != in.ImageFile.Modified) {
		err = &userError{fmt.Sprintf("The image %s has changed since the bundle was staged: run it again.", in.Image)}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
