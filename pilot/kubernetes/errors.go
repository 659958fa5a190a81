package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Error is a failed request to a cluster.
type Error struct {
	// Op is the failed action.
	Op string
	// Err is the cause.
	Err error

	advice               string
	transient, uncertain bool
}

// Error returns the action, the cause in the cluster's words, and the thing to do.
func (e *Error) Error() string { return e.Op + ": " + e.cause().Error() }

// cause returns the error without the action.
func (e *Error) cause() error {
	if e.advice == "" {
		return e.Err
	}
	return fmt.Errorf("%w: %s", e.Err, e.advice)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient reports whether the same request may succeed later.
func (e *Error) Transient() bool { return e.transient }

// Uncertain reports whether a failed start may have started the pilot.
func (e *Error) Uncertain() bool { return e.uncertain }

// failed returns the error of an action. It returns the error of a context that has ended as it is.
func (c *Cluster) failed(op string, err error) error {
	var known *Error
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &known):
		return err
	}
	e := &Error{Op: op, Err: err}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		c.readStatus(e)
		return e
	}
	var address *url.Error
	if errors.As(err, &address) {
		e.Err = fmt.Errorf("the cluster %s does not answer: %w", c.Host, address.Err)
	}
	c.readNetwork(e, err)
	return e
}

// readStatus reads the API server's answer.
func (c *Cluster) readStatus(e *Error) {
	err := e.Err
	text := err.Error()
	switch {
	case apierrors.IsUnauthorized(err):
		e.advice = fmt.Sprintf("the cluster %s does not accept the login: the token may have expired", c.Host)
	case apierrors.IsForbidden(err) && strings.Contains(text, "exceeded quota"):
		e.transient = true // ResourceQuota has no reason of its own; the text is that of quota/controller.go: checkQuotas
	case apierrors.IsForbidden(err) && strings.Contains(text, `User "system:anonymous" cannot `):
		e.advice = "no token was given: name a file that has one with --auth-token-file"
	case apierrors.IsForbidden(err) && strings.Contains(text, " cannot "): // the authorizer's text: responsewriters.ForbiddenStatusError
		e.advice = "the account needs the role of docs/kubernetes/rbac.yaml there, or --namespace has to name another namespace"
	case apierrors.IsNotFound(err) && strings.HasPrefix(text, "namespaces "):
		e.advice = "--namespace has to name one that is there"
	case code(err) == http.StatusBadRequest && c.plain():
		e.advice = needsHTTPS
	case code(err) == http.StatusTooManyRequests, code(err) >= http.StatusInternalServerError, apierrors.IsConflict(err):
		e.transient = true
		e.uncertain = code(err) >= http.StatusInternalServerError
	}
}

// needsHTTPS is the advice after plain HTTP to a server of HTTPS, which answers 400 and breaks off (net/http: Server.serve).
const needsHTTPS = "the address has to begin with https://"

// plain reports whether requests go over plain HTTP, as to kubectl proxy.
func (c *Cluster) plain() bool { return strings.HasPrefix(c.Host, "http://") }

// code returns the HTTP status of the API server's answer.
func code(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// readNetwork reads the error of a connection.
func (c *Cluster) readNetwork(e *Error, err error) {
	var (
		unknown *x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		check   *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		lookup  *net.DNSError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		e.advice = "check the clock of this machine, then the cluster's certificate"
	case errors.As(err, &unknown), errors.As(err, &invalid), errors.As(err, &name), errors.As(err, &check):
		e.advice = "give the certificate of the cluster's authority with --cert-path or in the kubeconfig"
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // net/http has no type for it
		e.advice = "the address needs https:// or http:// as the cluster has it"
	case c.plain() && strings.Contains(strings.ToLower(err.Error()), "unexpected error when reading response body"): // rest/request.go: transformResponse
		e.advice = needsHTTPS
	case errors.As(err, &lookup) && lookup.IsNotFound:
		e.advice = "check the address"
	default:
		e.transient, e.uncertain = true, true
	}
}
