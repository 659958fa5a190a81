package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// call is one request. At most one of json, text, tar, form and stream is set.
type call struct {
	method string
	// path is below /rest, its variable parts escaped.
	path   string
	query  url.Values
	header map[string]string
	json   any
	text   string
	tar    []byte
	stream *uploadBody
	// within limits the time until the answer begins; 0 is no limit.
	within time.Duration
	// basic is the client id of a call without a token.
	basic string
	form  url.Values
	// oneToken is set for a call that is not sent again with another token.
	oneToken bool
}

// path joins the parts of a path, each escaped: a worker's id may contain parentheses and
// slashes.
func path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// itoa is a number as a part of a path or a query.
func itoa(n int) string { return strconv.Itoa(n) }

// do sends a call and decodes its JSON answer into out, unless that is nil. A *[]byte gets the
// undecoded answer. The answer to a change may be empty: then out stays as it is.
func (c *Client) do(ctx context.Context, in call, out any) error {
	resp, err := c.open(ctx, in)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit+1))
	_ = resp.Body.Close() // the body has been read
	switch {
	case err != nil:
		return c.unanswered(in, err)
	case len(body) > answerLimit:
		return &codalab.Error{
			Method: in.method, Path: in.path, Status: resp.StatusCode, Err: ErrTooLarge,
			Message: fmt.Sprintf("the answer has more than the %d MiB that fit into memory here; ask for less", answerLimit>>20),
		}
	}
	if out == nil || len(body) == 0 && in.method != http.MethodGet {
		return nil
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = body
		return nil
	}
	err = json.Unmarshal(body, out)
	if err != nil { // most often none
		err = json.Unmarshal(codalab.QuoteNonNumbers(body), out)
	}
	if err != nil {
		return c.noServer(in, resp.StatusCode, err)
	}
	return nil
}

// open sends a call with a token and returns its successful answer. The caller closes the
// body. If the server refuses the token, open sends the call once more with a new one, unless
// it has read from the call's stream already, or the call is for one token.
func (c *Client) open(ctx context.Context, in call) (*http.Response, error) {
	if in.stream != nil {
		defer in.stream.leave(ctx)
	}
	var refused string
	var refusedBy error
	for {
		token := ""
		if c.auth != nil && in.basic == "" {
			var err error
			if token, err = c.auth.token(ctx, refused); err != nil {
				return nil, c.tokenError(err, refusedBy)
			}
		}
		resp, err := c.send(ctx, in, token)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 && resp.StatusCode < 300 {
			if in.stream != nil && !in.stream.whole.Load() {
				_ = resp.Body.Close() // the upload has failed in any case
				return nil, c.unanswered(in, errEarly)
			}
			return resp, nil
		}
		err = refusal(in, resp)
		repeatable := in.stream == nil || !in.stream.begun.Load()
		if resp.StatusCode != http.StatusUnauthorized || token == "" || refused != "" || !repeatable || in.oneToken {
			return nil, err
		}
		refused, refusedBy = token, err
	}
}

// send sends a call once.
func (c *Client) send(ctx context.Context, in call, token string) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := c.request(ctx, in, token)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	stop := func() bool { return true }
	if in.within > 0 {
		timer := time.AfterFunc(in.within, func() { cancel(errSilent) })
		stop = timer.Stop
	}
	httpClient, done := c.http, func() {}
	if in.stream != nil {
		httpClient, done = withOwnConnection(c.http)
	}
	resp, err := httpClient.Do(req)
	stop()
	if err != nil {
		defer done()
		defer cancel(nil)
		if in.stream != nil {
			if failed := in.stream.failure.Load(); failed != nil {
				return nil, *failed
			}
		}
		return nil, c.unanswered(in, causeOf(ctx, err))
	}
	resp.Body = &cancelBody{ReadCloser: resp.Body, cancel: func() { cancel(nil); done() }}
	return resp, nil
}

// causeOf returns the cause of a failed request: no answer in time, or the end of its context. It
// returns ctx.Err instead of the caller's own cause, so that errors.Is recognises it.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return cause
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (c *Client) request(ctx context.Context, in call, token string) (*http.Request, error) {
	var body io.Reader
	kind := ""
	switch {
	case in.json != nil:
		data, err := json.Marshal(in.json)
		if err != nil {
			return nil, fmt.Errorf("%s %s: encode request: %w", in.method, in.path, err)
		}
		body, kind = bytes.NewReader(data), "application/json; charset=utf-8"
	case in.text != "":
		body, kind = strings.NewReader(in.text), "text/plain; charset=utf-8"
	case in.tar != nil:
		body, kind = bytes.NewReader(in.tar), "application/x-tar"
	case in.form != nil:
		body, kind = strings.NewReader(in.form.Encode()), "application/x-www-form-urlencoded"
	case in.stream != nil:
		body = io.NopCloser(in.stream) // a reader without a known length is sent in chunks
	}
	target := c.address + "/rest" + in.path
	if len(in.query) > 0 {
		target += "?" + in.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, in.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", in.method, in.path, err)
	}
	req.Header.Set("User-Agent", "cl-slurm/"+codalab.Version)
	// With this header the server answers errors in plain text.
	req.Header.Set("X-Requested-With", "XMLHttpRequest")
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if in.basic != "" {
		req.SetBasicAuth(in.basic, "")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for k, v := range in.header {
		req.Header.Set(k, v)
	}
	return req, nil
}

// refusal closes an unsuccessful answer and returns it as an error.
func refusal(in call, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<10))
	_ = resp.Body.Close() // nothing depends on the rest
	message := termtext.Escape(strings.TrimSpace(string(body)))
	switch {
	case err != nil || message == "":
		message = http.StatusText(resp.StatusCode)
	case isPage(message): // a proxy's
		message = fmt.Sprintf("%d %s (a web page, not the answer of a CodaLab server; check the address and the proxy on the way to it)", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	later := resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.Header.Get("Retry-After") != ""
	return &codalab.Error{Method: in.method, Path: in.path, Status: resp.StatusCode, Message: message, Later: later}
}

// isPage reports whether a refusal is a page of HTML. CodaLab's servers send plain text, which CodaLab's
// own labels as HTML.
func isPage(message string) bool {
	begin := strings.ToLower(message[:min(len(message), 64)])
	return strings.HasPrefix(begin, "<!doctype") || strings.HasPrefix(begin, "<html") || strings.HasPrefix(begin, "<head")
}

// unanswered returns the error of a call without a complete answer.
func (c *Client) unanswered(in call, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the message has the address already
	}
	return &codalab.Error{
		Method: in.method, Path: in.path, Err: err,
		Message: fmt.Sprintf("cannot reach the server at %s: %v", c.address, err),
	}
}

// cancelBody releases a call's context and connection when its answer is closed.
type cancelBody struct {
	io.ReadCloser
	cancel func()
}

// Close closes the answer's body.
func (b *cancelBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}
