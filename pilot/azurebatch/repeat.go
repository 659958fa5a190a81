package azurebatch

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// isUnreachable reports whether an error means that the service's address is wrong: there is no such host, or the host
// is another one by its certificate. No request was sent.
func isUnreachable(err error) bool {
	name, noName := errors.AsType[*net.DNSError](err)
	_, stranger := errors.AsType[*tls.CertificateVerificationError](err)
	return noName && name.IsNotFound || stranger
}

// once is a policy by which azcore does not repeat a request to a wrong address.
type once struct{}

// Do sends a request.
func (once) Do(r *policy.Request) (*http.Response, error) {
	answer, err := r.Next()
	if isUnreachable(err) {
		err = lastingError{err}
	}
	return answer, err
}

type lastingError struct{ error }

// Unwrap returns the cause.
func (e lastingError) Unwrap() error { return e.error }

// NonRetriable tells azcore that the same request will not succeed at once.
func (lastingError) NonRetriable() {}

// holdUp is the time for which the service has asked for no more requests (Retry-After). azcore waits for a short one by
// itself. It is for concurrent use.
type holdUp struct {
	mu    sync.Mutex
	asked *Error
	until time.Time
}

// ask notes that an answer asks for a pause.
func (p *holdUp) ask(e *Error, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.until = e, until
}

// left returns the error of a request that would come within the pause; nil if there is none.
func (p *holdUp) left(now time.Time, what string) *Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == nil || !now.Before(p.until) {
		return nil
	}
	e := *p.asked
	e.What, e.held = what, true
	return &e
}
