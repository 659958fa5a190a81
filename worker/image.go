package worker

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/spool"
)

// checkImage makes sure that a SIF that is used where it lies is what it was when
// the bundle was staged, as far as its path, size and time say.
func checkImage(in spool.Inputs) error {
	if in.ImageFile == nil {
		return nil
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, in.Image, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return &userError{fmt.Sprintf("The image %s has a symbolic link in its path by now: run the bundle again.", in.Image)}
	case err != nil:
		return fmt.Errorf("open the image %s: %w", in.Image, err)
	}
	var st unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Close(fd)); err != nil {
		return fmt.Errorf("look at the image %s: %w", in.Image, err)
	}
	if st.Size != in.ImageFile.Size || st.Mtim.Nano() != in.ImageFile.Modified {
		return &userError{fmt.Sprintf("The image %s has changed since the bundle was staged: run it again.", in.Image)}
	}
	return nil
}
