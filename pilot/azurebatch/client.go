package azurebatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
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
	pipe := runtime.NewPipeline("cl-worker-manager", "v1", runtime.PipelineOptions{PerRetry: []policy.Policy{login}}, &o.ClientOptions)
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

// streaming returns a context for a request whose answer is a log: it may be long, and the network slow.
func streaming(ctx context.Context, r policy.RetryOptions) context.Context {
	r.TryTimeout = streamTimeout
	return policy.WithRetryOptions(ctx, r)
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
		return nil, &Error{What: r.what, Account: c.account, Err: withoutURL(err), sent: true}
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

// AddTask adds a task to a job. An ErrTaskExists may be the answer to the repetition of a request that was carried out.
func (c *Client) AddTask(ctx context.Context, job string, t Task) error {
	return c.do(ctx, call{method: http.MethodPost, path: []string{"jobs", job, "tasks"}, body: t, what: "add a task to job " + job}, nil)
}

// TaskInfo returns a task as TaskFields say.
func (c *Client) TaskInfo(ctx context.Context, job, id string) (TaskInfo, error) {
	var t TaskInfo
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"jobs", job, "tasks", id}, query: url.Values{"$select": {taskFields}}, what: "read task " + id}, &t)
	return t, err
}

// ListTasks returns all tasks of a job that a filter names, from as many answers as it takes.
func (c *Client) ListTasks(ctx context.Context, job, filter string) ([]TaskInfo, error) {
	r := call{
		method: http.MethodGet, path: []string{"jobs", job, "tasks"}, what: "list the tasks of job " + job,
		query: url.Values{"$filter": {filter}, "$select": {taskFields}, "maxresults": {strconv.Itoa(pageSize)}},
	}
	var tasks []TaskInfo
	for {
		var page struct {
			Value []TaskInfo `json:"value"`
			Next  string     `json:"odata.nextLink"`
		}
		if err := c.do(ctx, r, &page); err != nil {
			return nil, err
		}
		tasks = append(tasks, page.Value...)
		if page.Next == "" {
			return tasks, nil
		}
		r = call{method: http.MethodGet, next: page.Next, what: r.what}
	}
}

// pageSize is the most that the service puts into one answer.
const pageSize = 1000

// Terminate ends a task. The task then is completed.
func (c *Client) Terminate(ctx context.Context, job, id string) error {
	return c.do(ctx, call{method: http.MethodPost, path: []string{"jobs", job, "tasks", id, "terminate"}, what: "end task " + id}, nil)
}

// DeleteTask removes a task and its files on the node.
func (c *Client) DeleteTask(ctx context.Context, job, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: []string{"jobs", job, "tasks", id}, what: "delete task " + id}, nil)
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, id string) (Job, error) {
	var j Job
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"jobs", id}, query: url.Values{"$select": {"id,state,poolInfo"}}, what: "read job " + id}, &j)
	return j, err
}

// Pool returns a pool.
func (c *Client) Pool(ctx context.Context, id string) (Pool, error) {
	var p Pool
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"pools", id}, what: "read pool " + id}, &p)
	return p, err
}

// Nodes returns the nodes of a pool in these states, at most ten.
func (c *Client) Nodes(ctx context.Context, pool string, states ...string) ([]Node, error) {
	filters := make([]string, len(states))
	for i, s := range states {
		filters[i] = "state eq '" + s + "'"
	}
	var page struct {
		Value []Node `json:"value"`
	}
	query := url.Values{"$filter": {strings.Join(filters, " or ")}, "$select": {"id,state,errors,startTaskInfo"}, "maxresults": {"10"}}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"pools", pool, "nodes"}, query: query, what: "list the nodes of pool " + pool}, &page)
	return page.Value, err
}

// NodeCounts returns the numbers of a pool's nodes by state. The service may be some seconds late.
func (c *Client) NodeCounts(ctx context.Context, pool string) (NodeCounts, error) {
	var page struct {
		Value []struct {
			Dedicated   NodeCounts `json:"dedicated"`
			LowPriority NodeCounts `json:"lowPriority"`
		} `json:"value"`
	}
	r := call{
		method: http.MethodGet, path: []string{"nodecounts"}, query: url.Values{"$filter": {"poolId eq '" + pool + "'"}},
		what: "count the nodes of pool " + pool,
	}
	if err := c.do(ctx, r, &page); err != nil || len(page.Value) == 0 {
		return NodeCounts{}, err
	}
	return page.Value[0].Dedicated.plus(page.Value[0].LowPriority), nil
}

// rangeHeader is the service's name for Range.
const rangeHeader = "ocp-range"

// ReadFile copies a file of a task from this offset on to w, and returns the number of bytes. The file is on the
// task's node: an error of ErrNoFile means that there is none, or not yet, or no longer.
func (c *Client) ReadFile(ctx context.Context, w io.Writer, job, id, file string, offset int64) (int64, error) {
	what := "read " + file + " of task " + id
	answer, err := c.send(streaming(ctx, c.retry), call{
		method: http.MethodGet, path: []string{"jobs", job, "tasks", id, "files", file}, what: what,
		header: map[string]string{rangeHeader: fmt.Sprintf("bytes=%d-", offset), "Accept": "application/octet-stream"},
	})
	switch {
	case errors.Is(err, errNoRange): // the file has no more bytes
		return 0, nil
	case err != nil:
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	n, err := io.Copy(w, answer.Body)
	if err != nil {
		return n, &Error{What: what, Account: c.account, Err: withoutURL(err), sent: true}
	}
	return n, nil
}
