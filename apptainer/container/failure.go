package container

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrNoShell is the cause when ShellCommand is set and the image has neither /bin/bash nor /bin/sh.
// It counts as a *RequestError.
var ErrNoShell = errors.New("the image has no shell: neither /bin/bash nor /bin/sh")

// HostError means that the command did not begin, and that this host is at fault: another host may
// run the same container.
type HostError struct {
	Err error
	// AnyRuntime is set if this host's other runtimes would meet the same fault, such as a full
	// scratch. Otherwise the host lacks or forbids something that this runtime needs, Err
	// is a sentence with the remedy for the site, and a caller may try another runtime.
	AnyRuntime bool
	// Doubtful is set if nothing proves that the host is at fault. If the same container begins on
	// no host, the request is at fault.
	Doubtful bool
}

// Error returns the sentence.
func (e *HostError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *HostError) Unwrap() error { return e.Err }

// HostErrorf formats a HostError of one runtime, like fmt.Errorf.
func HostErrorf(format string, args ...any) error {
	return &HostError{Err: fmt.Errorf(format, args...)}
}

// RequestError means that the command did not begin, and that no host would begin it: the image or
// the caller's request is at fault.
type RequestError struct{ Err error }

// Error returns the cause.
func (e *RequestError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.Err }

// RequestErrorf formats a RequestError, like fmt.Errorf.
func RequestErrorf(format string, args ...any) error {
	return &RequestError{Err: fmt.Errorf(format, args...)}
}

// NotBegun returns the error of a step before the command as a doubtful fault of the host, unless
// the step has already named another one: a *RequestError, ErrNoShell, or a more exact *HostError.
func NotBegun(err error) error {
	if _, ok := errors.AsType[*HostError](err); ok || err == nil || isOfRequest(err) {
		return err
	}
	return &HostError{Err: err, AnyRuntime: true, Doubtful: true}
}

func isOfRequest(err error) bool {
	_, ok := errors.AsType[*RequestError](err)
	return ok || errors.Is(err, ErrNoShell)
}

// InImage returns the error of an operation on a file of the image as a *RequestError if the kind
// or the name of that file caused it. The host caused all other errors of such an operation.
func InImage(err error) error {
	for _, ofFile := range []error{
		syscall.ENOTDIR, syscall.EISDIR, syscall.ENOTEMPTY, syscall.EEXIST, syscall.ELOOP, syscall.ENAMETOOLONG,
	} {
		if errors.Is(err, ofFile) {
			return &RequestError{Err: err}
		}
	}
	return err
}

// Failure is an error in the form in which one process sends it to another.
type Failure struct {
	// Error is its text; empty means no error.
	Error string `json:",omitempty"`
	// The other fields tell its kind.
	NoShell    bool `json:",omitempty"`
	HostError  bool `json:",omitempty"`
	AnyRuntime bool `json:",omitempty"`
	Doubtful   bool `json:",omitempty"`
	OfRequest  bool `json:",omitempty"`
}

// FailureOf describes an error, which may be nil.
func FailureOf(err error) Failure {
	if err == nil {
		return Failure{}
	}
	f := Failure{Error: err.Error(), NoShell: errors.Is(err, ErrNoShell), OfRequest: isOfRequest(err)}
	if host, ok := errors.AsType[*HostError](err); ok {
		f.HostError, f.AnyRuntime, f.Doubtful = true, host.AnyRuntime, host.Doubtful
	}
	return f
}

// Err returns an error of the same kind.
func (f Failure) Err() error {
	switch {
	case f.Error == "":
		return nil
	case f.NoShell:
		return ErrNoShell
	case f.OfRequest:
		return &RequestError{Err: errors.New(f.Error)}
	case f.HostError:
		return &HostError{Err: errors.New(f.Error), AnyRuntime: f.AnyRuntime, Doubtful: f.Doubtful}
	}
	return errors.New(f.Error)
}
