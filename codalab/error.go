package codalab

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Error is a failed call of a CodaLab server.
type Error struct {
	Method string
	// Path is the path of the call, without the server's address.
	Path string
	// Status is the HTTP status; 0 if no valid answer came.
	Status int
	// Message is the server's one-line message, or the reason why there is no valid answer.
	Message string
	// Later is set if the server refused the call only for now, by a Retry-After.
	Later bool
	// Err is the cause, if it is known.
	Err error
}

// Error prints the server's message and the call that it answers.
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("%s %s: %s", e.Method, e.Path, e.Message)
	}
	return fmt.Sprintf("%s %s: %d %s", e.Method, e.Path, e.Status, e.Message)
}

// Unwrap returns the cause, if it is known.
func (e *Error) Unwrap() error { return e.Err }

// Transient reports whether the same call may succeed later: no answer came, or the server was in
// trouble or too busy, or it refused the call only for now. Other refusals are not transient.
func (e *Error) Transient() bool {
	return e.Later || e.Status == 0 || e.Status >= 500 || e.Status == 408 || e.Status == 429
}

// IsStatus reports whether err is a call that a server answered with one of these HTTP statuses; 0 stands for a
// call without a valid answer.
func IsStatus(err error, statuses ...int) bool {
	call, ok := errors.AsType[*Error](err)
	return ok && slices.Contains(statuses, call.Status)
}

// IsTaken reports whether a server refused a new bundle because there is one of its uuid, or was. An older cl-server says so with
// status 400.
func IsTaken(err error) bool {
	call, ok := errors.AsType[*Error](err)
	return ok && (call.Status == 409 || call.Status == 400 && strings.HasSuffix(strings.TrimRight(call.Message, ".\n"), " exists already"))
}

// UnknownRoute reports whether the server does not know the call. Both servers answer so in words alone, because a missing object
// has the same status (codalab/server/rest_server.py: error_handler).
func (e *Error) UnknownRoute() bool {
	return e.Status == 405 || e.Status == 404 && strings.HasPrefix(e.Message, "Not found: '/")
}

// TooLarge reports whether the server refused a request for its size. It has not read the request.
func (e *Error) TooLarge() bool { return e.Status == 413 }

// OverDiskQuota begins the refusal of contents that exceed the rest of their owner's disk quota.
const OverDiskQuota = cannotSave + "user disk quota exceeded."

// cannotSave begins that refusal of CodaLab's own server too (codalab/model/bundle_model.py: update_disk_metadata).
const cannotSave = "Can't save bundle, "

// OverDiskQuota reports whether the server refused contents because they exceed the rest of their owner's disk quota.
func (e *Error) OverDiskQuota() bool {
	return e.Status == 400 && strings.HasPrefix(e.Message, uploadFailed+cannotSave)
}

// DiskQuotaLeft returns what was left of the quota, in words, if the server's refusal of contents tells that; else "".
func (e *Error) DiskQuotaLeft() string {
	_, rest, _ := strings.Cut(e.Message, "disk quota left: ")
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	left, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return ""
	}
	return FormatSize(left)
}

// UnpackFailed reports whether the server could not unpack an archive. CodaLab's own server
// answers with 400 and the same sentence when the upload is no archive, when it broke off, and
// when the server's disk is full (codalab/lib/zip_util.py: unpack). A caller that knows its
// archive to be complete may send it again.
func (e *Error) UnpackFailed() bool {
	return e.Status == 400 && strings.HasPrefix(e.Message, uploadFailed+"Invalid archive upload: failed to unpack archive")
}
