package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// How often a request is made of a registry; of a mirror, once.
const attempts = 3

// place is a repository that may hold an image: the one that its reference
// names, or a mirror of it.
type place struct {
	source     Source
	host       string // "docker.io"
	repository string // "library/debian"
	mirror     bool
	plain      bool // it may be spoken to in plain HTTP
	down       atomic.Bool

	mu     sync.Mutex
	client *http.Client // logged in; nil before
	hangUp func()
	login  *login // nil for none; not written to once there is a client
}

// apiHost is where a registry is spoken to.
func apiHost(host string) string {
	if host == dockerHub {
		return name.DefaultRegistry
	}
	return host
}

// connect gives a client that is logged in.
func (p *place) connect(ctx context.Context) (*http.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		return p.client, nil
	}
	base, hangUp, err := p.source.transport(p.host)
	if err != nil {
		return nil, err
	}
	if p.login, err = p.source.Logins.find(ctx, p.host, p.repository); err != nil {
		return nil, err
	}
	auth := authn.Anonymous
	if p.login != nil {
		auth = authn.FromConfig(p.login.config)
	}
	options := []name.Option{name.WeakValidation}
	if p.plain {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(apiHost(p.host), options...)
	if err != nil {
		return nil, fmt.Errorf("read the registry's name: %w", err)
	}
	guarded := guarded{RoundTripper: refusing{base}, host: apiHost(p.host), plain: p.plain || isLoopback(p.host)}
	scope := registry.Repo(p.repository).Scope(transport.PullScope)
	carrier, err := transport.NewWithContext(ctx, registry, auth, transport.NewUserAgent(guarded, userAgent), []string{scope})
	if err != nil {
		hangUp()
		return nil, err //nolint:wrapcheck // worded by who asks
	}
	if p.login != nil && p.login.config.IdentityToken != "" {
		carrier = &oneByOne{RoundTripper: carrier}
	}
	p.client, p.hangUp = &http.Client{Transport: carrier, CheckRedirect: checkRedirect}, hangUp
	return p.client, nil
}

func (p *place) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		p.hangUp()
		p.client = nil
	}
}

// oneByOne makes one request after the other, up to its answer. With an
// identity token each new token may come with another one, which ggcr keeps
// without a lock (transport/bearer.go: refresh).
type oneByOne struct {
	http.RoundTripper

	mu sync.Mutex
}

// RoundTrip makes a request.
func (t *oneByOne) RoundTrip(req *http.Request) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.RoundTripper.RoundTrip(req) //nolint:wrapcheck // a transport's errors go through as they are
}

// guarded keeps requests to a registry, and with them logins, off plain HTTP
// where that is not allowed: ggcr tries it on all private addresses.
type guarded struct {
	http.RoundTripper

	host  string
	plain bool
}

var errPlain = errors.New("plain HTTP is not allowed for it")

// RoundTrip makes a request.
func (t guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" && req.URL.Host == t.host && !t.plain {
		return nil, errPlain
	}
	return t.RoundTripper.RoundTrip(req) //nolint:wrapcheck // a transport's errors go through as they are
}

// get asks for something of the repository, and again where that may help. The
// answer is 200 or 206; an error is worded.
func (p *place) get(ctx context.Context, method, what string, header http.Header) (*answer, error) {
	left, delay := attempts, p.source.retryDelay()
	if p.mirror {
		left = 1
	}
	for {
		got, err := p.ask(ctx, method, what, header)
		if err == nil {
			return got, nil
		}
		wait := delay
		if refused := asRefusal(err); refused != nil {
			wait = max(delay, refused.after)
		}
		if left--; left == 0 || ctx.Err() != nil || !mayPass(err) || wait > p.source.patience() {
			p.down.Store(p.mirror && isTrouble(err))
			return nil, p.worded(p.source.doubtUnknownHost(ctx, p.host, err))
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		delay *= 3
	}
}

// isTrouble says whether a place is not worth being asked first again.
func isTrouble(err error) bool {
	refused := asRefusal(err)
	return refused == nil || refused.status != http.StatusNotFound
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// ask makes one request, which has to be answered before a registry counts as
// silent: its token and all redirections included.
func (p *place) ask(ctx context.Context, method, what string, header http.Header) (_ *answer, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stall := time.AfterFunc(p.source.stall(), func() { cancel(errStalled) })
	defer stall.Stop()
	defer func() {
		if err == nil {
			return
		}
		if said := (sentence{}); errors.Is(context.Cause(ctx), errStalled) && !errors.As(err, &said) {
			err = errStalled
		}
		cancel(nil)
	}()
	client, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	scheme := "https"
	if p.plain {
		scheme = "http" // and the client knows better
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+"://"+apiHost(p.host)+"/v2/"+p.repository+"/"+what, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", what, err)
	}
	for key, values := range header {
		req.Header[key] = values
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err //nolint:wrapcheck // worded by who asks
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		defer func() { _ = resp.Body.Close() }()
		return nil, newRefusal(resp)
	}
	a := &answer{Response: resp, from: p, ctx: ctx, cancel: cancel, stall: p.source.stall()}
	a.paced = readerFunc(a.receive)
	if p.source.Reader != nil {
		a.paced = p.source.Reader(ctx, a.paced)
	}
	return a, nil
}

// answer is what a registry has answered. Whoever gets it closes it.
type answer struct {
	*http.Response

	from   *place
	ctx    context.Context //nolint:containedctx // the request's, for why it ended
	cancel context.CancelCauseFunc
	paced  io.Reader

	// How many bytes came, and how long they were waited for, since there last was
	// no reason to be impatient.
	stall  time.Duration
	got    int64
	waited time.Duration
}

// slowest is how many bytes a second a registry has to send, on the average of the
// time that it may be silent: as many as dnf wants (dnf.conf(5): minrate) and an
// hour for a layer of 3.6 MB, which no link that is of use falls below, not even
// where it is shared by all that is pulled at a time. What sends less may do so for
// ever, and others wait for its turn.
const slowest = 1000

// Read reads of the body, at the pace that the source has.
func (a *answer) Read(p []byte) (int, error) { return a.paced.Read(p) }

// receive reads what the registry sends, for no longer than it may be silent or
// slow. The time between two readings is not the registry's.
func (a *answer) receive(p []byte) (int, error) {
	began := time.Now() //nolint:forbidigo // how long it takes
	timer := time.AfterFunc(a.stall-a.waited, func() { a.cancel(errStalled) })
	defer timer.Stop()
	n, err := a.Body.Read(p)
	a.got += int64(n)
	if err != nil && err != io.EOF && errors.Is(context.Cause(a.ctx), errStalled) {
		return n, stalled{bytes: a.got, in: a.stall}
	}
	a.waited += time.Since(began) //nolint:forbidigo // how long it took
	if a.got >= int64(slowest*a.stall.Seconds()) {
		a.got, a.waited = 0, 0
	}
	return n, err
}

// Close ends the request. It may be called while another goroutine reads.
func (a *answer) Close() error {
	a.cancel(nil)
	return a.Body.Close()
}

// all reads a body of at most most bytes, in the time that a registry may be
// silent.
func (a *answer) all(most int64) ([]byte, error) {
	timer := time.AfterFunc(a.stall, func() { a.cancel(errStalled) })
	defer timer.Stop()
	data, err := io.ReadAll(io.LimitReader(a, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, sentence{text: fmt.Sprintf("its manifest is of more than %d bytes", most)}
	}
	return data, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
