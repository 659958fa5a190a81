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
)

// maxRefusalBytes bounds what is read of a refusal.
const maxRefusalBytes = 64 << 10

// refusal is an answer of a registry, or of who signs its tokens, that is not
// what was asked for.
type refusal struct {
	status  int
	message string        // the registry's own words, in one line
	after   time.Duration // when to come again; zero when it did not say
	limit   string        // what is allowed, such as "100 pulls in 6h0m0s"
	spent   bool          // all that is allowed has been used up
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
	if r.message != "" {
		text += ": " + r.message
	}
	return text
}

// newRefusal reads a refusal, but does not close it.
func newRefusal(resp *http.Response) *refusal {
	r := &refusal{status: resp.StatusCode, after: retryAfter(resp.Header)}
	r.limit, r.spent = rateLimit(resp.Header)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusalBytes))
	if err != nil {
		return r // the status says enough
	}
	r.message = refusalMessage(body)
	return r
}

// refusalMessage finds the words of a refusal in the forms that registries have
// for them (distribution registry/api/errcode; Docker Hub has "message" alone).
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

// retryAfter is when a server wants to be asked again (RFC 9110, 10.2.3). A
// date counts from the server's own.
func retryAfter(header http.Header) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	then, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return 0
	}
	return max(0, then.Sub(now))
}

// rateLimit reads what a registry allows: "100;w=21600" is a hundred pulls in
// six hours (Docker Hub's manual, "Pull usage and limits").
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

// refusing turns the answers of a server that is in trouble, or asked too
// often, into errors, wherever on the way they come: from the registry, from
// who signs its tokens, or from where it redirects.
type refusing struct{ http.RoundTripper }

// RoundTrip makes a request.
func (t refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err //nolint:wrapcheck // a transport's errors go through as they are
	}
	switch {
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout, resp.StatusCode >= http.StatusInternalServerError:
		refused := newRefusal(resp)
		_ = resp.Body.Close()
		return nil, refused
	}
	return resp, nil
}

// asRefusal finds the refusal in an error, which may be ggcr's.
func asRefusal(err error) *refusal {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused
	}
	var status *transport.Error
	if !errors.As(err, &status) || status.StatusCode == 0 {
		return nil
	}
	refused = &refusal{status: status.StatusCode}
	if len(status.Errors) > 0 {
		var body bytes.Buffer
		if json.NewEncoder(&body).Encode(map[string]any{"errors": status.Errors}) == nil {
			refused.message = refusalMessage(body.Bytes())
		}
	}
	return refused
}

// mayPass says whether the same request may succeed in a moment.
func mayPass(err error) bool {
	if refused := asRefusal(err); refused != nil {
		return refused.status == http.StatusTooManyRequests && !refused.spent ||
			refused.status == http.StatusRequestTimeout || refused.status >= http.StatusInternalServerError
	}
	return !isUnknownHost(err) && certificateTrouble(err) == "" && !errors.Is(err, errRedirects) && !errors.Is(err, errInward) &&
		!isPlainAnswer(err) && (isNetwork(err) || errors.Is(err, errStalled) || errors.Is(err, io.ErrUnexpectedEOF))
}

// worded puts what went wrong with a registry in a sentence.
func (p *place) worded(err error) error {
	var said sentence
	if err == nil || errors.As(err, &said) {
		return err
	}
	var slow stalled
	var nameless unresolved
	trouble := certificateTrouble(err)
	if refused := asRefusal(err); refused != nil && trouble == "" {
		return p.refused(refused)
	}
	say := func(transient bool, format string, args ...any) error {
		return sentence{text: fmt.Sprintf(format, args...), cause: err, transient: transient}
	}
	switch {
	case errors.As(err, &slow) && slow.bytes > 0:
		return say(true, "registry %s is too slow: it sent %.3g bytes a second in the last %s", p.host, slow.rate(), slow.in)
	case errors.Is(err, errStalled), errors.Is(err, context.DeadlineExceeded):
		return say(true, "registry %s cannot be reached: it does not answer", p.host)
	case isPlainAnswer(err):
		return say(false, "registry %s speaks plain HTTP, which the site has not allowed for it", p.host)
	case errors.Is(err, errRedirects), errors.Is(err, errInward):
		return say(false, "registry %s cannot be used: %v", p.host, plainNetwork(err))
	case trouble != "":
		return say(false, "registry %s cannot be trusted: %s", p.host, trouble)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return say(true, "the connection to registry %s broke off", p.host)
	case errors.As(err, &nameless):
		return say(true, "registry %s cannot be reached: %v; no other name is found either, so the name service may be away", p.host, plainNetwork(nameless.error))
	case isNetwork(err):
		return say(!isUnknownHost(err), "registry %s cannot be reached: %v", p.host, plainNetwork(err))
	default:
		return say(false, "registry %s cannot be used: %v", p.host, err)
	}
}

// refused words a refusal.
func (p *place) refused(r *refusal) error {
	say := func(transient bool, format string, args ...any) error {
		return sentence{text: fmt.Sprintf(format, args...), cause: r, transient: transient, after: r.after}
	}
	switch code := r.status; {
	case code == http.StatusNotFound:
		return say(false, "not found in the registry")
	case (code == http.StatusUnauthorized || code == http.StatusForbidden) && p.login != nil:
		return say(false, "the registry denies access with the login of %s: the image does not exist, or that login may not read it or has ended", p.login.whose)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return say(false, "the registry denies access: the image is private or does not exist, and there is no login for %s", p.host)
	case code == http.StatusTooManyRequests:
		return say(true, "%s", p.limited(r))
	case code >= http.StatusInternalServerError || code == http.StatusRequestTimeout:
		return say(true, "the registry is in trouble (%d %s)%s", code, http.StatusText(code), comeAgain(r.after))
	default:
		return say(false, "the registry refuses: %v", r)
	}
}

// limited says how a registry's limit came about and what helps.
func (p *place) limited(r *refusal) string {
	text := "the registry refuses further requests for a while (429 Too Many Requests)"
	if r.limit != "" {
		text += ": it allows " + r.limit
		if p.login == nil {
			text += " without a login"
		}
	}
	text += comeAgain(r.after)
	if p.login == nil {
		return text + "; a login or a mirror for " + p.host + " would help"
	}
	return text + "; a mirror for " + p.host + " would help"
}

func comeAgain(after time.Duration) string {
	if after == 0 {
		return ""
	}
	return ", and wants to be asked again in " + after.String()
}

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

// isPlainAnswer says whether plain HTTP came where TLS was spoken.
func isPlainAnswer(err error) bool {
	var record tls.RecordHeaderError
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/"
}

// certificateTrouble says what is wrong with a registry's certificate.
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

// plainNetwork drops the request from an error that names it: the image's name
// is in the sentence already, and an address may be signed.
func plainNetwork(err error) error {
	var u *url.Error
	for errors.As(err, &u) {
		err = u.Err
	}
	return err
}
