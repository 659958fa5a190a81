package source

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// ImageError says why an image could not be brought here. It reads as one
// sentence with the image's name.
type ImageError struct {
	// Image is the reference as the user wrote it.
	Image string
	// Err is the cause.
	Err error
	// RetryAfter is how long from now the registry wants to be left alone;
	// zero when it did not say.
	RetryAfter time.Duration

	transient bool
}

// NewImageError is an error about an image that another process found.
func NewImageError(image string, err error, transient bool) *ImageError {
	return &ImageError{Image: image, Err: err, transient: transient}
}

// Error gives the sentence.
func (e *ImageError) Error() string { return fmt.Sprintf("image %q: %v", e.Image, e.Err) }

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// Transient says whether the same request may succeed later without its user
// changing it: trouble with the network, the registry, the site's own logins,
// this host's disks and programs, or the caller's own context. An unknown
// image, a missing platform or an unsupported layer is not.
func (e *ImageError) Transient() bool { return e.transient }

// WrapError makes an *ImageError of err, whatever about the image it comes from;
// nil stays nil. An error that came with the end of ctx is that. Another that has
// a method Transient() bool is as it says, and one of the system is transient
// unless it may come from what the image is.
func WrapError(ctx context.Context, ref Reference, err error) error {
	if err == nil {
		return nil
	}
	e := &ImageError{Image: ref.String(), Err: err}
	var said sentence
	var kind interface{ Transient() bool }
	switch {
	case ctx.Err() != nil:
		e.Err, e.transient = ctx.Err(), true
	case errors.As(err, &said):
		e.transient, e.RetryAfter = said.transient, said.after
	case errors.As(err, &kind):
		e.transient = kind.Transient()
	default:
		e.transient = isHosts(err)
	}
	return e
}

// isHosts says whether the system has refused something that has nothing to do
// with what the image is, such as to read a disk.
func isHosts(err error) bool {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return false
	}
	switch number { //nolint:exhaustive // of all these come from names and counts in an image, or from a caller
	case syscall.EEXIST, syscall.EINVAL, syscall.EISDIR, syscall.ELOOP, syscall.EMLINK, syscall.ENAMETOOLONG:
		return false
	}
	return true
}

// sentence is an error that says something plainer than its cause.
type sentence struct {
	text      string
	cause     error
	transient bool
	after     time.Duration // how long a registry wants to be left alone
}

func (s sentence) Error() string { return s.text }
func (s sentence) Unwrap() error { return s.cause }

// errStalled is the cause when a registry does not answer, or stops sending.
var errStalled = errors.New("it has stopped sending")

// stalled is errStalled with what came in the end.
type stalled struct {
	bytes int64
	in    time.Duration
}

func (s stalled) Error() string {
	return fmt.Sprintf("it has sent %d bytes in %s", s.bytes, s.in)
}

// rate is how many bytes came in a second.
func (s stalled) rate() float64 { return float64(s.bytes) / s.in.Seconds() }

// Is says that it is errStalled.
func (stalled) Is(target error) bool { return target == errStalled }
