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

// errSilent ends a call that got no answer in time. errEarly is the error of a
// stream that the server answered with success before it had read all of it.
var (
	errSilent = errors.New("no answer in time")
	errEarly  = errors.New("the server answered before it had read the whole request")
)

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
	// Log gets a warning about messages of the server that cannot be read; nil
	// for none.
	Log *slog.Logger
}

// Client calls one server as one user. It is safe for concurrent use.
type Client struct {
	address  string
	http     *http.Client
	auth     *authority
	compress bool
	log      *slog.Logger
	unknown  sync.Map // the types of messages that were logged, by codalab.MessageType
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
		log:      o.Log,
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
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

// idleFor is how long a connection waits for another call. CodaLab's own server
// closes one after two seconds (gunicorn's keepalive), and a call that is sent at
// that moment fails.
const idleFor = 1500 * time.Millisecond

// newHTTP is Go's default client with room for a bridge's parallel streams.
func newHTTP() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       idleFor,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}}
}

// ownConnection returns a client that shares no connection with h, so that no
// answer to another call can be taken for the answer to a stream. done closes its
// connection once the answer has been read. The client sends no "Connection:
// close": a server that closes the connection with the end of the stream unread
// may reset it before its answer arrives.
func ownConnection(h *http.Client) (own *http.Client, done func()) {
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
