package azurebatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// streaming returns a context for a request whose answer is a log: it may be long, and the network slow.
func streaming(ctx context.Context, r policy.RetryOptions) context.Context {
	r.TryTimeout = streamTimeout
	return policy.WithRetryOptions(ctx, r)
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
