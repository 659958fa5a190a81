package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Limits of the time until the server's answer begins. There is no limit for the rest of an answer, nor for
// uploads: a server answers an upload after it has unpacked it.
const (
	answerWithin = 30 * time.Second
	// CodaLab's own server holds a check-in for five seconds; other servers may hold it
	// longer.
	checkInWithin = 60 * time.Second
	// The server may pass a call on to a worker, which has a minute to answer.
	relayWithin = 90 * time.Second
)

// ErrTooLarge is the cause of an Error for an answer that is too large to be read into memory.
var ErrTooLarge = errors.New("the answer is too large")

// answerLimit bounds an answer that is not a stream, in bytes.
const answerLimit = 64 << 20

// errSilent ends a call that got no answer in time. errEarly is the error of an upload that
// the server answered with success before it had read all of the stream.
var (
	errSilent = errors.New("no answer in time")
	errEarly  = errors.New("the server answered before it had read the whole request")
)

// The client ids that a server accepts (codalab/server/oauth2_provider.py).
const (
	CommandClient = "codalab_cli_client"
	WorkerClient  = "codalab_worker_client"
)

// Options configures a Client. All fields may be left zero.
type Options struct {
	// HTTP sends the requests; nil means a client of its own. It must not have a Timeout,
	// which would end streams.
	HTTP *http.Client
	// ClientID is CommandClient or WorkerClient; empty means WorkerClient.
	ClientID string
	// Credentials returns the user's name and password. The Client calls it when it has no
	// usable token, from any goroutine; ctx ends when no call needs the token any more. Nil
	// means calls without a token, as the public user.
	Credentials func(ctx context.Context) (user, password string, err error)
	// Token returns a token that another program has got from the server, such as a worker token. The Client
	// uses it instead of Credentials. It calls Token before its first call, and again when the server refuses
	// the token.
	Token func(ctx context.Context) (string, error)
	// Tokens keeps the token for later processes; nil keeps it in memory only.
	Tokens TokenCache
	// Compress asks the server to compress files, which pays on a slow network. Directories
	// are always compressed archives.
	Compress bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log gets a warning for each message of the server that cannot be read; nil means no log.
	Log *slog.Logger
}

// Client calls one server as one user. It is safe for concurrent use.
type Client struct {
	address  string
	http     *http.Client
	auth     *authority
	compress bool
	log      *slog.Logger
	unknown  sync.Map // the unknown types of messages that were logged, by codalab.MessageType
}

// New returns a client of the server at address, such as "http://127.0.0.1:2900". It sends nothing.
func New(address string, o Options) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("server address %q: want http://HOST:PORT or https://HOST", redactAddress(u, address))
	}
	c := &Client{
		address:  strings.TrimRight(address, "/"),
		http:     o.HTTP,
		compress: o.Compress,
		log:      o.Log,
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.http == nil {
		c.http = newHTTP()
	}
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the default clock
	}
	if o.Credentials != nil || o.Token != nil {
		c.auth = &authority{
			given:       o.Token,
			credentials: o.Credentials,
			cache:       o.Tokens,
			grant:       c.grant(cmp.Or(o.ClientID, WorkerClient), o.Now),
			now:         o.Now,
		}
	}
	return c, nil
}

// Reach fails unless there is a CodaLab server at the address. It needs no login.
func (c *Client) Reach(ctx context.Context) error {
	in := call{method: http.MethodGet, path: "/user", within: answerWithin}
	resp, err := c.send(ctx, in, "")
	if err != nil {
		return err
	}
	err = refusal(in, resp)
	switch refused, ok := errors.AsType[*codalab.Error](err); {
	case ok && refused.Transient():
		return err
	case ok && refused.Status == http.StatusUnauthorized:
		return nil
	}
	return c.noServer(in, resp.StatusCode, nil)
}

// noServer is the error of an answer that no CodaLab server gives.
func (c *Client) noServer(in call, status int, err error) error {
	return &codalab.Error{
		Method: in.method, Path: in.path, Status: status, Err: err,
		Message: "the answer is not a CodaLab server's; check the address " + c.address,
	}
}

// Address returns the server's address as it was given, without a slash at its end.
func (c *Client) Address() string { return c.address }

// redactAddress hides a password in an address that an error names.
func redactAddress(u *url.URL, address string) string {
	if u == nil || u.User == nil {
		return address
	}
	return u.Redacted()
}

// An unused connection stays open for idleFor. CodaLab's own server closes it after two seconds (gunicorn's
// keepalive), and a call sent at that moment would fail.
const idleFor = 1500 * time.Millisecond

// newHTTP returns Go's default client with more idle connections, for a bridge's parallel
// streams.
func newHTTP() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	const readSize = 128 << 10 // contents come with fewer reads than through the default of 4 KiB
	return &http.Client{Transport: &http.Transport{
		ReadBufferSize:        readSize,
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       idleFor,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}}
}

// withOwnConnection returns a client that shares no connection with h, so that a late answer
// to another call is never taken for the answer to an upload. done closes the connection after
// the answer has been read. The client sends no "Connection: close": a server that closes the
// connection before it has read all of the stream may reset it before its answer arrives.
func withOwnConnection(h *http.Client) (own *http.Client, done func()) {
	transport := h.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	shared, ok := transport.(*http.Transport)
	if !ok {
		return h, func() {}
	}
	alone := *h
	alone.Transport = shared.Clone()
	return &alone, alone.CloseIdleConnections
}
