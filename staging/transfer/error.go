package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// Error is the reason why something could not be staged or collected.
type Error struct {
	// What names it as the researcher did: an image, a dependency, the results. It is empty if Err
	// contains the name.
	What string
	Err  error
	// Retry is set if another try may succeed.
	Retry bool
	// IsOutage is set if other bundles fail for the same reason: the server or a registry does not
	// answer, or the disk has no room.
	IsOutage bool
	// After is the pause that the registry demands, from now; 0 if it demands none.
	After time.Duration
}

func (e *Error) Error() string {
	if e.What == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %v", e.What, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Transient reports whether another try may succeed.
func (e *Error) Transient() bool { return e.Retry }

// RetryAfter returns the time for which another try is pointless, from now; 0 if that is unknown.
func (e *Error) RetryAfter() time.Duration { return e.After }

// Outage reports whether other bundles fail for the same reason.
func (e *Error) Outage() bool { return e.IsOutage }

// ServerError returns the Error for a failed question to the server about what. If the server
// fails, or refuses the bridge's login, the bundle is not at fault.
func ServerError(what string, err error) error {
	if serverErr, ok := errors.AsType[*codalab.Error](err); ok {
		outage := serverErr.Transient() || serverErr.Status == http.StatusUnauthorized
		return &Error{What: what, Err: errors.New(serverErr.Message), Retry: outage, IsOutage: outage}
	}
	return &Error{What: what, Err: err, Retry: true}
}

// IsFull reports whether a disk or the cache has no room.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, cache.ErrFull)
}

// IsDiskTrouble reports whether a disk failed or has no room. It returns false for a file that may
// not be read.
func IsDiskTrouble(err error) bool {
	var disk syscall.Errno
	return IsFull(err) || errors.As(err, &disk) && !errors.Is(err, fs.ErrPermission)
}

// DescribeSpace describes the free space of the shared disk, and the part of it that downloads must
// leave.
func DescribeSpace(free, reserve int64) string {
	return fmt.Sprintf("the cluster's shared disk has %s free, of which %s stay free", codalab.FormatSize(free), codalab.FormatSize(reserve))
}

// SizeError means that an image is larger than allowed.
type SizeError struct {
	// Size and Most are in bytes, as a registry sends the image.
	Size, Most int64
}

// Error returns a part of a sentence of CodaLab's own worker (codalab/worker/image_manager.py:
// get).
func (e *SizeError) Error() string {
	return fmt.Sprintf("its size %s exceeds the maximum image size allowed, %s (--max-image-size)", codalab.FormatSize(e.Size), codalab.FormatSize(e.Most))
}
