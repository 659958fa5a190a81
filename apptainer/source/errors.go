package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// ImageError is the reason why an image could not be brought here. It reads as one sentence with
// the image's reference.
type ImageError struct {
	// Reference is the image, as the user wrote it.
	Reference string
	// Err is the cause.
	Err error
	// RetryAfter is the pause that the registry demands; zero if it demands none.
	RetryAfter time.Duration

	transient bool
}

// NewImageError returns an error about an image that another process found.
func NewImageError(reference string, err error, transient bool) *ImageError {
	return &ImageError{Reference: reference, Err: err, transient: transient}
}

// Error returns the sentence, on one line of at most 2,000 bytes. It may quote a registry or an
// image, without control characters.
func (e *ImageError) Error() string {
	const most = 2000
	text := fmt.Sprintf("image %q: %v", e.Reference, e.Err)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len("…")], "") + "…"
	}
	return termtext.OneLine(text)
}

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// Transient reports whether the same request may succeed later although its user changes nothing:
// after trouble with the network, the registry, the site's own logins or this host's disks and
// programs, or after the end of the caller's context. An unknown image, a missing platform and an
// unsupported layer are not transient.
func (e *ImageError) Transient() bool { return e.transient }

// WrapError returns err as an *ImageError; nil stays nil. If ctx has ended, its error is the cause.
// If err has a method Transient() bool, that decides. A system error is transient unless the image
// may have caused it.
func WrapError(ctx context.Context, ref Reference, err error) error {
	if err == nil {
		return nil
	}
	e := &ImageError{Reference: ref.String(), Err: err}
	var worded plainError
	var kind interface{ Transient() bool }
	switch {
	case ctx.Err() != nil:
		e.Err, e.transient = ctx.Err(), true
	case errors.As(err, &worded):
		e.transient, e.RetryAfter = worded.transient, worded.after
	case errors.As(err, &kind):
		e.transient = kind.Transient()
	default:
		e.transient = isHostError(err)
	}
	return e
}

// isHostError reports whether the system refused an operation, such as to read a disk, for a reason
// that does not depend on the image.
func isHostError(err error) bool {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return false
	}
	switch number {
	case syscall.EEXIST, syscall.EINVAL, syscall.EISDIR, syscall.ELOOP, syscall.EMLINK, syscall.ENAMETOOLONG:
		return false
	default: // only these come from names and counts in an image, or from a caller
	}
	return true
}

// plainError has a text that is plainer than its cause.
type plainError struct {
	text      string
	cause     error
	transient bool
	after     time.Duration // see ImageError.RetryAfter
}

func (e plainError) Error() string { return e.text }
func (e plainError) Unwrap() error { return e.cause }
