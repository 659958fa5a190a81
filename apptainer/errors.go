package apptainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// ImageError says why an image could not be brought here. It reads as one
// sentence with the image's name.
type ImageError struct {
	// Image is the reference as the user wrote it.
	Image string
	// Err is the cause.
	Err error

	transient bool
}

// Error gives the sentence.
func (e *ImageError) Error() string { return fmt.Sprintf("image %q: %v", e.Image, e.Err) }

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// Transient says whether the same request may succeed later without anybody
// changing it: trouble with the network, the registry or the local disk, or
// the caller's own context. An unknown image, a missing platform or an
// unsupported layer is not.
func (e *ImageError) Transient() bool { return e.transient }

// errStalled is the cause when a registry stops sending.
var errStalled = errors.New("the registry has stopped sending")

// imageError puts err, from whatever source, in words about the image. An error
// that came with the end of ctx is that.
func imageError(ctx context.Context, ref Reference, err error) error {
	if err == nil {
		return nil
	}
	e := &ImageError{Image: ref.String(), Err: err}
	var status *transport.Error
	switch {
	case ctx.Err() != nil:
		e.Err, e.transient = ctx.Err(), true
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Err, e.transient = fmt.Errorf("no space left for converting it: %w", err), true
	case errors.Is(err, errStalled):
		e.transient = true
	case errors.As(err, &status):
		e.Err, e.transient = statusError(status)
	case errors.Is(err, context.DeadlineExceeded):
		e.Err, e.transient = sentence{fmt.Sprintf("registry %s cannot be reached: it does not answer", ref.host()), err}, true
	case errors.Is(err, io.ErrUnexpectedEOF):
		e.Err, e.transient = sentence{fmt.Sprintf("the connection to registry %s broke off", ref.host()), err}, true
	case isNetwork(err):
		e.Err, e.transient = fmt.Errorf("registry %s cannot be reached: %w", ref.host(), plainNetwork(err)), !isUnknownHost(err)
	}
	return e
}

// statusError words a registry's refusal.
func statusError(e *transport.Error) (err error, transient bool) { //nolint:revive // the error is the value here
	switch code := e.StatusCode; {
	case code == http.StatusNotFound:
		return sentence{"not found in the registry", e}, false
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return sentence{"the registry denies access: the image is private or does not exist", e}, false
	case code == http.StatusTooManyRequests:
		return sentence{"the registry refuses further requests for a while (429 Too Many Requests)", e}, true
	case code >= http.StatusInternalServerError || code == http.StatusRequestTimeout:
		return sentence{fmt.Sprintf("the registry is in trouble (%d %s)", code, http.StatusText(code)), e}, true
	default:
		return fmt.Errorf("the registry refuses: %w", e), false
	}
}

// sentence is an error that says something plainer than its cause.
type sentence struct {
	text  string
	cause error
}

func (s sentence) Error() string { return s.text }
func (s sentence) Unwrap() error { return s.cause }

// isNetwork says whether err comes from the way to the registry.
func isNetwork(err error) bool {
	var op *net.OpError
	var request *url.Error
	return errors.As(err, &op) || errors.As(err, &request)
}

func isUnknownHost(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// plainNetwork drops the request from an error that names it: the image's name
// is in the sentence already.
func plainNetwork(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
