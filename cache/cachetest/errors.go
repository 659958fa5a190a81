package cachetest

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/cache"
)

// errBroken is what a fill fails with that is to fail.
var errBroken = errors.New("the fill is to fail")

// kind sorts an error for the summary: the name of a system error, or one of a
// few words; "" for none.
func kind(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errBroken), strings.Contains(err.Error(), errBroken.Error()): // the latter when it has panicked
		return "broken fill"
	case errors.Is(err, cache.ErrFull):
		return "full"
	case errors.Is(err, cache.ErrLost):
		return "lost"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, errWrong), errors.Is(err, errMixed):
		return "wrong"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case errors.Is(err, fs.ErrNotExist):
		return "ENOENT"
	default:
		return "other"
	}
}

// transient says that a faulty file system may have made the error.
func transient(err error) bool {
	return slices.Contains([]string{"EIO", "ESTALE", "ETIMEDOUT", "ENOSPC", "EDQUOT", "EAGAIN", "EINTR", "EREMOTEIO"}, kind(err))
}
