package apptainer

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// hostError is a failure of this host's disks or programs. Another try may succeed. Its text is
// plainer than its cause.
type hostError struct {
	text  string
	cause error // may be nil
}

func (e hostError) Error() string { return e.text }
func (e hostError) Unwrap() error { return e.cause }

// Transient tells source.WrapError that another try may succeed.
func (hostError) Transient() bool { return true }

// isDiskFull reports whether a disk, or a user's quota on it, has no room left.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// imageError returns err as a *source.ImageError; nil stays nil.
func imageError(ctx context.Context, img source.Image, err error) error {
	if isDiskFull(err) {
		err = hostError{fmt.Sprintf("no space left for converting it: %v", err), err}
	}
	return source.WrapError(ctx, img.Reference, err)
}
