package source

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/cl-slurm/cl-slurm/internal/outbound"
)

// maxRefusalBytes limits the body of a refusal.
const maxRefusalBytes = 64 << 10

// refusal is an error response of a registry, or of the server that signs its tokens.
type refusal struct {
	status  int
	message string        // the registry's, on one line
	after   time.Duration // the demanded pause; zero if there is none
	limit   string        // the rate limit, such as "100 pulls in 6h0m0s"
	spent   bool          // the rate limit is used up
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
	if r.message != "" {
		text += ": " + r.message
	}
	return text
}

// newRefusal reads an error response, and leaves it open.
func newRefusal(resp *http.Response) *refusal {
	r := &refusal{status: resp.StatusCode, after: retryAfter(resp.Header)}
	r.limit, r.spent = rateLimit(resp.Header)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusalBytes))
	if err != nil {
		return r // the status is enough
	}
	r.message = refusalMessage(body)
	return r
}

// refusalMessage finds the message in the forms of registries (distribution registry/api/errcode;
// Docker Hub has only "message").
func refusalMessage(body []byte) string {
	var form struct {
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
		Message string `json:"message"`
		Details string `json:"details"`
	}
	if json.Unmarshal(body, &form) != nil {
		return ""
	}
	message := form.Message
	if len(form.Errors) > 0 {
		message = form.Errors[0].Message
	}
	if message == "" {
		message = form.Details
	}
	const longest = 300
	message = strings.Join(strings.Fields(message), " ")
	return strings.ToValidUTF8(message[:min(len(message), longest)], "")
}

// retryAfter parses the header Retry-After (RFC 9110, 10.2.3). A date counts from the server's own.
func retryAfter(header http.Header) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	then, thenErr := http.ParseTime(value)
	now, nowErr := http.ParseTime(header.Get("Date"))
	if thenErr != nil || nowErr != nil {
		return 0
	}
	return max(0, then.Sub(now))
}

// rateLimit parses a registry's rate limit: "100;w=21600" is a hundred pulls in six hours (Docker
// Hub's manual, "Pull usage and limits").
func rateLimit(header http.Header) (limit string, spent bool) {
	number, window, _ := strings.Cut(header.Get("RateLimit-Limit"), ";w=")
	pulls, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return "", false
	}
	left, _, _ := strings.Cut(header.Get("RateLimit-Remaining"), ";")
	limit = fmt.Sprintf("%d pulls", pulls)
	if seconds, err := strconv.ParseUint(window, 10, 31); err == nil {
		limit += " in " + (time.Duration(seconds) * time.Second).String()
	}
	return limit, left == "0"
}

// refusing returns responses as errors if they mean "too many requests" or trouble, from the
// registry, from the server that signs its tokens, or from a redirection.
func refusing(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err != nil {
			return nil, err //nolint:wrapcheck // the transport's error
		}
		switch status := resp.StatusCode; {
		case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= http.StatusInternalServerError:
			defer func() { _ = resp.Body.Close() }()
			return nil, newRefusal(resp)
		}
		return resp, nil
	})
}

// asRefusal finds the refusal in an error, including errors of ggcr. It returns nil if there is
// none.
func asRefusal(err error) *refusal {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused
	}
	status, ok := errors.AsType[*transport.Error](err)
	if !ok || status.StatusCode == 0 {
		return nil
	}
	refused := &refusal{status: status.StatusCode}
	if len(status.Errors) > 0 {
		var body bytes.Buffer
		if json.NewEncoder(&body).Encode(map[string]any{"errors": status.Errors}) == nil {
			refused.message = refusalMessage(body.Bytes())
		}
	}
	return refused
}

// mayPass reports whether the same request may succeed soon. It may not if err is already a
// sentence, such as about the site's logins, or if a rate limit is used up.
func (e *endpoint) mayPass(err error) bool {
	var worded plainError
	if refused := asRefusal(err); errors.As(err, &worded) || refused != nil && refused.spent {
		return false
	}
	return errors.As(e.explain(err), &worded) && worded.transient
}

// explain describes an error of a registry in a plain sentence.
func (e *endpoint) explain(err error) error {
	var worded plainError
	if err == nil || errors.As(err, &worded) {
		return err
	}
	var slow stalled
	var nameless unresolved
	var inward *outbound.RefusedError
	trouble := certificateTrouble(err)
	if refused := asRefusal(err); refused != nil && trouble == "" {
		return e.explainRefusal(refused)
	}
	fail := func(transient bool, format string, args ...any) error {
		return plainError{text: fmt.Sprintf(format, args...), cause: err, transient: transient}
	}
	switch {
	case errors.As(err, &slow) && slow.bytes > 0:
		return fail(true, "registry %s is too slow: it sent %.3g bytes a second in the last %s", e.host, float64(slow.bytes)/slow.in.Seconds(), slow.in)
	case errors.Is(err, errStalled), errors.Is(err, context.DeadlineExceeded):
		return fail(true, "registry %s cannot be reached: it does not answer", e.host)
	case isPlainAnswer(err):
		return fail(false, "registry %s speaks plain HTTP, which the site has not allowed for it", e.host)
	case errors.As(err, &inward):
		return fail(false, "registry %s cannot be used: %v, and fetch_private (a worker's --fetch-private) does not list it", e.host, inward)
	case errors.Is(err, errRedirects):
		return fail(false, "registry %s cannot be used: %v", e.host, plainNetwork(err))
	case trouble != "":
		return fail(false, "registry %s cannot be trusted: %s", e.host, trouble)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fail(true, "the connection to registry %s broke off", e.host)
	case errors.As(err, &nameless):
		return fail(true, "registry %s cannot be reached: %v; no other name is found either, so the name service may be down", e.host, plainNetwork(nameless.error))
	case isNetwork(err):
		return fail(!isUnknownHost(err), "registry %s cannot be reached: %v", e.host, plainNetwork(err))
	default:
		return fail(false, "registry %s cannot be used: %v", e.host, err)
	}
}

// explainRefusal is explain for a refusal.
func (e *endpoint) explainRefusal(r *refusal) error {
	fail := func(transient bool, format string, args ...any) error {
		return plainError{text: fmt.Sprintf(format, args...), cause: r, transient: transient, after: r.after}
	}
	known := e.login.Load()
	switch code := r.status; {
	case code == http.StatusNotFound:
		return fail(false, "not found in the registry")
	case (code == http.StatusUnauthorized || code == http.StatusForbidden) && known != nil:
		return fail(false, "the registry denies access with the login of %s: the image does not exist, or that login may not read it or has ended", known.owner)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fail(false, "the registry denies access: the image is private or does not exist, and there is no login for %s", e.host)
	case code == http.StatusTooManyRequests:
		return fail(true, "%s", e.explainLimit(r))
	case code >= http.StatusInternalServerError || code == http.StatusRequestTimeout:
		return fail(true, "the registry is in trouble (%d %s)%s", code, http.StatusText(code), askAgain(r.after))
	default:
		return fail(false, "the registry refuses: %v", r)
	}
}

// explainLimit describes a registry's rate limit and the remedies.
func (e *endpoint) explainLimit(r *refusal) string {
	text := "the registry refuses further requests for a while (429 Too Many Requests)"
	if r.limit != "" {
		text += ": it allows " + r.limit
		if e.login.Load() == nil {
			text += " without a login"
		}
	}
	text += askAgain(r.after)
	if e.login.Load() == nil {
		return text + "; a login or a mirror for " + e.host + " would help"
	}
	return text + "; a mirror for " + e.host + " would help"
}

func askAgain(after time.Duration) string {
	if after == 0 {
		return ""
	}
	return ", and wants to be asked again in " + after.String()
}

func isNetwork(err error) bool {
	var op *net.OpError
	var request *url.Error
	return errors.As(err, &op) || errors.As(err, &request)
}

func isUnknownHost(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

func isPlainAnswer(err error) bool {
	var record tls.RecordHeaderError
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/"
}

// certificateTrouble describes the fault of a registry's certificate; "" means none.
func certificateTrouble(err error) string {
	var unknown x509.UnknownAuthorityError
	var invalid *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is signed by an authority that this host does not know"
	case errors.As(err, &invalid):
		return invalid.Err.Error()
	default:
		return ""
	}
}

// plainNetwork drops the request from an error: the sentence already has the image's name, and an
// address may contain a signature.
func plainNetwork(err error) error {
	var u *url.Error
	for errors.As(err, &u) {
		err = u.Err
	}
	return err
}
