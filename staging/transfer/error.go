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

// Error is why something could not be brought in or delivered.
type Error struct {
	// What names it as the researcher did: an image, a dependency, the results. It is
	// empty if Err does.
	What string
	Err  error
	// Retry is set if another try may succeed.
	Retry bool
	// Away is set if the reason is an outage that hits other bundles too: the server or a
	// registry does not answer, or the disk has no room.
	Away bool
	// After is how long from now the registry wants to be left alone; 0 if it did not say.
	After time.Duration
}

// Error says what could not be moved and why.
func (e *Error) Error() string {
	if e.What == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %v", e.What, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient says whether another try may succeed.
func (e *Error) Transient() bool { return e.Retry }

// RetryAfter is how long from now another try is pointless.
func (e *Error) RetryAfter() time.Duration { return e.After }

// Outage says whether other bundles are hit by the same.
func (e *Error) Outage() bool { return e.Away }

// ServerError is the Error for a question to the server about what. If the server fails,
// or does not accept the bridge's login, that is no fault of the bundle's.
func ServerError(what string, err error) error {
	var answer *codalab.Error
	if errors.As(err, &answer) {
		away := answer.Transient() || answer.Status == http.StatusUnauthorized
		return &Error{What: what, Err: errors.New(answer.Message), Retry: away, Away: away}
	}
	return &Error{What: what, Err: err, Retry: true}
}

// IsFull says whether a disk or the cache has no room.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, cache.ErrFull)
}

// IsDiskTrouble says whether a disk failed, or has no room. A file that may not be read
// is no trouble of the disk's.
func IsDiskTrouble(err error) bool {
	var disk syscall.Errno
	return IsFull(err) || errors.As(err, &disk) && !errors.Is(err, fs.ErrPermission)
}

// DescribeSpace says what the shared disk has, and how much of it is not for downloads.
func DescribeSpace(free, reserve int64) string {
	return fmt.Sprintf("the cluster's shared disk has %s free, of which %s stay free", codalab.FormatSize(free), codalab.FormatSize(reserve))
}
