package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// How long the server may take until its answer begins. Streams have no limit
// from then on, and uploads none at all: a server answers them when it has
// unpacked what it got.
const (
	answerWithin = 30 * time.Second
	// checkInWithin is above the five seconds that CodaLab's server holds a
	// check-in, and leaves room for one that holds it longer.
	checkInWithin = 60 * time.Second
	// relayWithin is for calls that the server passes on to a worker, for
	// which it gives that worker a minute.
	relayWithin = 90 * time.Second
)

// answerLimit is the most that is read of an answer which is not a stream.
const answerLimit = 64 << 20

// errSilent is why a call without an answer in time ended.
var errSilent = errors.New("no answer in time")

// The ids by which a server knows the kinds of clients
// (codalab/server/oauth2_provider.py).
const (
	CommandClient = "codalab_cli_client"
	WorkerClient  = "codalab_worker_client"
)

// Options says how a Client identifies itself and whom it asks for what.
type Options struct {
	// HTTP does the requests; nil means a client of its own. It must not have
	// a Timeout, which would end streams.
	HTTP *http.Client
	// ClientID is CommandClient or WorkerClient; empty means WorkerClient.
	ClientID string
	// Credentials is asked for a user's name and password whenever the cached
	// token is no use. It may be called from any goroutine, one at a time.
	// Nil means that calls go without a token, as the public user.
	Credentials func(ctx context.Context) (user, password string, err error)
	// Tokens keeps the token between processes; nil keeps it in memory.
	Tokens TokenCache
	// Compress asks for files in compressed form, which is worth the server's
	// time where the network is slow. It does not concern directories, which
	// always come as compressed archives.
	Compress bool
	// Now tells the time; nil means the clock.
	Now func() time.Time
}

// Client calls one server as one user. It is safe for concurrent use.
type Client struct {
	address  string
	http     *http.Client
	auth     *authority
	compress bool
}

// New returns a client of the server at address, such as
// "http://127.0.0.1:2900". Nothing is sent yet.
func New(address string, o Options) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("server address %q: want http://HOST:PORT or https://HOST", redactAddress(u, address))
	}
	c := &Client{
		address:  strings.TrimRight(address, "/"),
		http:     o.HTTP,
		compress: o.Compress,
	}
	if c.http == nil {
		c.http = newHTTP()
	}
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // a token's age is a matter of the clock
	}
	if o.Credentials != nil {
		c.auth = &authority{
			credentials: o.Credentials,
			cache:       o.Tokens,
			grant:       c.grant(cmp.Or(o.ClientID, WorkerClient), o.Now),
			now:         o.Now,
		}
	}
	return c, nil
}

// Address returns the server's address as it was given, without a slash at
// its end.
func (c *Client) Address() string { return c.address }

// redactAddress keeps a password that somebody wrote into an address out of
// the error about it.
func redactAddress(u *url.URL, address string) string {
	if u == nil || u.User == nil {
		return address
	}
	return u.Redacted()
}

// newHTTP is Go's default client with room for a bridge's parallel streams.
func newHTTP() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}}
}

// call is one request. At most one of json and stream is set.
type call struct {
	method string
	// path is below /rest, its variable parts escaped.
	path   string
	query  url.Values
	header map[string]string
	json   any
	stream *source
	// within limits the time until the answer begins; 0 does not.
	within time.Duration
	// basic replaces the token by a client's id.
	basic string
	form  url.Values
}

// path joins the parts of a path, each escaped; a worker's id may contain
// parentheses and slashes.
func path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// do sends a call and reads its JSON answer into out, unless that is nil.
func (c *Client) do(ctx context.Context, in call, out any) error {
	_, err := c.exchange(ctx, in, out)
	return err
}

// exchange is do that returns the header of the answer as well.
func (c *Client) exchange(ctx context.Context, in call, out any) (http.Header, error) {
	resp, err := c.open(ctx, in)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	_ = resp.Body.Close() // the body has been read
	if err != nil {
		return nil, c.unanswered(in, err)
	}
	if out == nil {
		return resp.Header, nil
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = body
		return resp.Header, nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return nil, &codalab.Error{
			Method: in.method, Path: in.path, Status: resp.StatusCode,
			Message: "the answer is not what a CodaLab server sends; is " + c.address + " the address of one?",
			Err:     err,
		}
	}
	return resp.Header, nil
}

// open sends a call with a token and returns its successful answer, whose
// body the caller closes. A call that is refused for its token is sent once
// more with a new one, if what it carries can be sent again.
func (c *Client) open(ctx context.Context, in call) (*http.Response, error) {
	if in.stream != nil {
		defer in.stream.leave(ctx)
	}
	var refused string
	for {
		token := ""
		if c.auth != nil && in.basic == "" {
			var err error
			if token, err = c.auth.token(ctx, refused); err != nil {
				return nil, err
			}
		}
		resp, err := c.send(ctx, in, token)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 && resp.StatusCode < 300 {
			return resp, nil
		}
		err = refusal(in, resp)
		untouched := in.stream == nil || !in.stream.touched.Load()
		if resp.StatusCode != http.StatusUnauthorized || token == "" || refused != "" || !untouched {
			return nil, err
		}
		refused = token
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
	resp, err := c.http.Do(req)
	stop()
	if err != nil {
		defer cancel(nil)
		if in.stream != nil {
			if failed := in.stream.failure.Load(); failed != nil {
				return nil, *failed
			}
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, c.unanswered(in, err)
	}
	resp.Body = &cancelBody{ReadCloser: resp.Body, cancel: func() { cancel(nil) }}
	return resp, nil
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

// refusal turns an answer that is not a success into an error and closes it.
func refusal(in call, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<10))
	_ = resp.Body.Close() // nothing depends on the rest
	message := strings.TrimSpace(string(body))
	if err != nil || message == "" {
		message = http.StatusText(resp.StatusCode)
	}
	return &codalab.Error{Method: in.method, Path: in.path, Status: resp.StatusCode, Message: message}
}

// unanswered is the error of a call without a whole answer.
func (c *Client) unanswered(in call, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the address, which is in the message
	}
	return &codalab.Error{
		Method: in.method, Path: in.path, Err: err,
		Message: fmt.Sprintf("cannot reach the server at %s: %v", c.address, err),
	}
}

// cancelBody releases a call's context when its answer is closed.
type cancelBody struct {
	io.ReadCloser
	cancel func()
}

// Close closes the answer's body.
func (b *cancelBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err //nolint:wrapcheck // a body's errors are those of the connection
}
