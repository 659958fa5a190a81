package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// attempts is the number of tries of a request to a registry. A mirror gets one.
const attempts = 3

// endpoint is a repository that may have an image: the one in its reference, or a mirror of it.
type endpoint struct {
	source     Source
	host       string // "docker.io"
	repository string // "library/debian"
	mirror     bool
	plain      bool                  // plain HTTP is allowed
	down       atomic.Bool           // other endpoints are tried first
	login      atomic.Pointer[login] // nil for none; constant once there is a client

	mu               sync.Mutex
	client           *http.Client // logged in; nil before the first request
	closeConnections func()
}

func apiHost(host string) string {
	if host == dockerHub {
		return name.DefaultRegistry
	}
	return host
}

// connect returns a client that is logged in.
func (e *endpoint) connect(ctx context.Context) (*http.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client != nil {
		return e.client, nil
	}
	base, closeConnections, err := e.source.transport(e.host)
	if err != nil {
		return nil, err
	}
	found, err := e.source.Logins.findLogin(ctx, e.host, e.repository)
	if err != nil {
		return nil, err
	}
	e.login.Store(found)
	auth := authn.Anonymous
	if found != nil {
		auth = authn.FromConfig(found.config)
	}
	options := []name.Option{name.WeakValidation}
	if e.plain || isLoopback(e.host) {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(apiHost(e.host), options...)
	if err != nil {
		return nil, fmt.Errorf("read the registry's name: %w", err)
	}
	guarded := refusing(base)
	if !e.plain && !isLoopback(e.host) {
		guarded = withoutPlainHTTP(guarded, apiHost(e.host))
	}
	scope := registry.Repo(e.repository).Scope(transport.PullScope)
	loggedIn, err := transport.NewWithContext(ctx, registry, auth, transport.NewUserAgent(guarded, userAgent), []string{scope})
	if err != nil {
		closeConnections()
		return nil, err //nolint:wrapcheck // explain describes it
	}
	if found != nil && found.config.IdentityToken != "" {
		loggedIn = oneByOne(loggedIn)
	}
	e.client, e.closeConnections = &http.Client{Transport: loggedIn, CheckRedirect: checkRedirect}, closeConnections
	return e.client, nil
}

func (e *endpoint) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client != nil {
		e.closeConnections()
		e.client = nil
	}
}

// roundTripper is a function that implements http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip makes a request.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// oneByOne makes requests one at a time. With an identity token, each new token may come with
// another identity token, which ggcr stores without a lock (transport/bearer.go: refresh).
func oneByOne(base http.RoundTripper) http.RoundTripper {
	var mu sync.Mutex
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		return base.RoundTrip(req)
	})
}

var errPlain = errors.New("plain HTTP is not allowed for it")

// withoutPlainHTTP refuses plain HTTP to a registry, because ggcr tries it on all private
// addresses, and it would show logins.
func withoutPlainHTTP(base http.RoundTripper, host string) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Scheme == "http" && req.URL.Host == host {
			return nil, errPlain
		}
		return base.RoundTrip(req)
	})
}

// get makes a request to the repository, and repeats it if that may help. The response is 200 or
// 206. An error is a sentence.
func (e *endpoint) get(ctx context.Context, method, path string, header http.Header) (*response, error) {
	failures, most := 0, attempts
	if e.mirror {
		most = 1
	}
	for {
		resp, err := e.getOnce(ctx, method, path, header)
		if err == nil {
			return resp, nil
		}
		failures++
		wait, refused := backoff.After(failures, e.source.retryDelay(), time.Minute), asRefusal(err)
		if refused != nil {
			wait = max(wait, refused.after)
		}
		if failures == most || ctx.Err() != nil || !e.mayPass(err) || wait > e.source.maxRetryAfter() {
			e.down.Store(e.mirror && (refused == nil || refused.status != http.StatusNotFound))
			return nil, e.explain(e.source.doubtUnknownHost(ctx, e.host, err))
		}
		if err := pause.For(ctx, backoff.Spread(wait, nil)); err != nil {
			return nil, err
		}
	}
}

// getOnce makes one request. The response must begin within Source.Stall, which includes the time
// for a token and all redirections.
func (e *endpoint) getOnce(ctx context.Context, method, path string, header http.Header) (_ *response, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stall := time.AfterFunc(e.source.stall(), func() { cancel(errStalled) })
	defer stall.Stop()
	defer func() {
		if err == nil {
			return
		}
		if worded := (plainError{}); errors.Is(context.Cause(ctx), errStalled) && !errors.As(err, &worded) {
			err = errStalled
		}
		cancel(nil)
	}()
	client, err := e.connect(ctx)
	if err != nil {
		return nil, err
	}
	scheme := "https"
	if e.plain {
		scheme = "http" // the client uses https if the registry does
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+"://"+apiHost(e.host)+"/v2/"+e.repository+"/"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	for key, values := range header {
		req.Header[key] = values
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err //nolint:wrapcheck // explain describes it
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		defer func() { _ = resp.Body.Close() }()
		return nil, newRefusal(resp)
	}
	r := &response{Response: resp, from: e, ctx: ctx, cancel: cancel, stall: e.source.stall()}
	r.paced = readerFunc(r.receive)
	if e.source.Reader != nil {
		r.paced = e.source.Reader(ctx, r.paced)
	}
	return r, nil
}
