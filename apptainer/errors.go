package apptainer

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// trouble is of this host's disks and programs, and may pass. It says something
// plainer than its cause.
type trouble struct {
	text  string
	cause error // nil for none
}

func (t trouble) Error() string { return t.text }
func (t trouble) Unwrap() error { return t.cause }

// Transient says so to source.WrapError.
func (trouble) Transient() bool { return true }

// isFull says whether a disk has no room left, or a user's share of it.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// imageError puts what went wrong with an image in words about it; nil stays nil.
func imageError(ctx context.Context, img source.Image, err error) error {
	if isFull(err) {
		err = trouble{fmt.Sprintf("no space left for converting it: %v", err), err}
	}
	return source.WrapError(ctx, img.Reference, err)
}
