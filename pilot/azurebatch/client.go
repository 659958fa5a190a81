package azurebatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// APIVersion is the version of the Batch service's interface. 2025-06-01 is the first of the present form (without
// a tail such as .20.0). The newer 2026-10-01 adds nothing that the client uses, and a year after its release the
// older one is in every region and in the sovereign clouds.
const APIVersion = "2025-06-01"

// scope is the scope of a token of Entra for the service (Azure Batch: "Authenticate requests to the Azure Batch service").
const scope = "https://batch.core.windows.net/.default"

// mediaType is the content type of the service's requests with a body.
const mediaType = "application/json; odata=minimalmetadata"

// Client speaks with one Batch account. Construct it with NewClient. It is for concurrent use.
type Client struct {
	service *url.URL
	account string // how errors name it
	pipe    runtime.Pipeline
	retry   policy.RetryOptions
	now     func() time.Time
	pause   holdUp
}

// Credential is a way to log in at the service: a key of the account, or else a credential of Entra.
type Credential struct {
	// Account and Key are the name of the account and one of its two keys, as the portal shows it.
	Account, Key string
	// Entra is used if there is no Key.
	Entra azcore.TokenCredential
}

// Options are settings of a client. The zero value is usable.
type Options struct {
	// ClientOptions are azcore's: the transport, retries, telemetry.
	policy.ClientOptions
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// The bounds on repeated requests. azcore repeats a request after 408, 429, 5xx and lost connections, with jitter and
// growing pauses. After a longer Retry-After than longestPause the error goes to the manager, which waits by itself.
const (
	retries      = 3
	firstPause   = time.Second
	longestPause = 20 * time.Second
	tryTimeout   = time.Minute
	// streamTimeout is the limit of a log that is read.
	streamTimeout = time.Hour
)

// NewClient returns a client of the service at this address. It sends nothing yet.
func NewClient(service string, c Credential, o Options) (*Client, error) {
	u, err := url.Parse(service)
	if err != nil || u.Host == "" || u.Scheme != "https" && !isLocal(u) || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%q is not the URL of a Batch account, such as https://mylab.westeurope.batch.azure.com", service)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	login, err := c.policy(isLocal(u))
	if err != nil {
		return nil, err
	}
	o.Retry = bounded(o.Retry)
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the clock's default
	}
	pipe := runtime.NewPipeline("cl-worker-manager", "v1", runtime.PipelineOptions{PerRetry: []policy.Policy{login, once{}}}, &o.ClientOptions)
	account := c.Account
	if account == "" {
		account, _, _ = strings.Cut(u.Hostname(), ".")
	}
	return &Client{service: u, account: account, pipe: pipe, retry: o.Retry, now: o.Now}, nil
}

// isLocal reports whether an address is one of this machine, without TLS. Tests use such addresses; a task has a token
// in it, and an address of storage a signature, which others could read on the network.
func isLocal(u *url.URL) bool { return u.Scheme == "http" && net.ParseIP(u.Hostname()).IsLoopback() }

// bounded returns settings for repetitions, or else the usual ones.
func bounded(r policy.RetryOptions) policy.RetryOptions {
	if r.MaxRetries == 0 {
		r = policy.RetryOptions{MaxRetries: retries, TryTimeout: tryTimeout, RetryDelay: firstPause, MaxRetryDelay: longestPause}
	}
	return r
}

// policy returns the policy that logs requests in. A plain service is one of this machine, without TLS.
func (c Credential) policy(plain bool) (policy.Policy, error) {
	switch {
	case c.Key != "" && c.Account == "":
		return nil, errors.New("an account key needs the name of its account")
	case c.Key != "":
		return newSharedKey(c.Account, c.Key)
	case c.Entra != nil:
		return runtime.NewBearerTokenPolicy(entra{c.Entra}, []string{scope}, &policy.BearerTokenOptions{InsecureAllowCredentialWithHTTP: plain}), nil
	}
	return nil, errors.New("there is no credential for Azure Batch")
}

// call is a request to the service.
type call struct {
	method string
	// path has its elements unescaped; query lacks the version. next replaces both.
	path  []string
	query url.Values
	next  string
	// header are additional headers. body is encoded as JSON; nil means none.
	header map[string]string
	body   any
	what   string // how errors name the request
}

// do sends a request, and decodes the answer into out unless out is nil.
func (c *Client) do(ctx context.Context, r call, out any) error {
	answer, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	if out == nil {
		return nil
	}
	if err := runtime.UnmarshalAsJSON(answer, out); err != nil {
		return &Error{What: r.what, Account: c.account, Err: fmt.Errorf("the answer is not readable: %w", err)}
	}
	return nil
}

// send returns the answer to a request, whose body the caller closes. The error is an *Error.
func (c *Client) send(ctx context.Context, r call) (*http.Response, error) {
	if asked := c.pause.left(c.now(), r.what); asked != nil {
		return nil, asked
	}
	address, err := c.address(r)
	if err != nil {
		return nil, &Error{What: r.what, Account: c.account, Err: err}
	}
	req, err := runtime.NewRequest(ctx, r.method, address)
	if err != nil {
		return nil, &Error{What: r.what, Account: c.account, Err: err}
	}
	req.Raw().Header.Set("Accept", "application/json")
	for name, value := range r.header {
		req.Raw().Header.Set(name, value)
	}
	if r.body != nil {
		err := runtime.MarshalAsJSON(req, r.body)
		if err == nil {
			req.Raw().Header.Set("Content-Type", mediaType)
		} else {
			return nil, &Error{What: r.what, Account: c.account, Err: err}
		}
	}
	if _, ok := r.header[rangeHeader]; ok {
		runtime.SkipBodyDownload(req)
	}
	answer, err := c.pipe.Do(req)
	var login *loginError
	switch {
	case errors.As(err, &login):
		return nil, &Error{What: r.what, Account: c.account, Err: login}
	case err != nil:
		return nil, &Error{What: r.what, Account: c.account, Err: withoutURL(err), sent: !isUnreachable(err)}
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return nil, c.refusal(r.what, answer)
	}
	return answer, nil
}

// address returns the URL of a request. The service's link to a further page has to be one of the same service: a
// request to another host would hand it our login.
func (c *Client) address(r call) (string, error) {
	if r.next != "" {
		u, err := url.Parse(r.next)
		if err != nil || u.Scheme != c.service.Scheme || u.Host != c.service.Host || u.User != nil {
			return "", errors.New("the link to the next page is none of this account's")
		}
		return r.next, nil
	}
	u := *c.service
	for _, element := range r.path {
		u.Path += "/" + element
	}
	query := url.Values{"api-version": {APIVersion}}
	for name, values := range r.query {
		query[name] = values
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // "+" is a plus for the service
	return u.String(), nil
}

// rangeHeader is the service's name for Range.
const rangeHeader = "ocp-range"
