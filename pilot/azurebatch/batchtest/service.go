package batchtest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// object is an object of JSON.
type object = map[string]any

// Service is a Batch account with one job on one pool. Its methods are for concurrent use; its fields are set before
// the first request.
type Service struct {
	// URL, Account and Key are for clients.
	URL, Account, Key string
	// Job and Pool are the ids of the job and of its pool.
	Job, Pool string
	// Bearer, if not empty, is a token of Entra that is accepted, too.
	Bearer string
	// PageSize bounds the tasks in one answer.
	PageSize int
	// Execute runs a task, until its end or until ctx ends, and returns its exit code. If it is nil, tasks run until
	// Finish or a request ends them.
	Execute func(ctx context.Context, r Run) int
	// Now is the service's clock.
	Now func() time.Time

	tb    testing.TB
	web   *httptest.Server
	ctx   context.Context // the life of the tasks
	tasks sync.WaitGroup

	mu       sync.Mutex
	jobState string
	pool     object
	nodes    []*node
	all      []*task
	faults   []fault
	paths    []fault // by path
	cut      *cut
	lost     int // answers of new tasks to lose
	requests []string
	serial   int
}

// node is a node of the pool.
type node struct {
	id, state string
	slots     int // free ones
	failure   object
}

// New starts a service with a job on a pool of n nodes of one slot. It ends with the test.
func New(tb testing.TB, n int) *Service {
	tb.Helper()
	key := make([]byte, 64)
	_, _ = rand.Read(key) // it never fails
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	s := &Service{
		Account: "lab", Key: base64.StdEncoding.EncodeToString(key), Job: "prod-cpu", Pool: "cpus", PageSize: 1000, Now: time.Now,
		tb: tb, ctx: ctx, jobState: "active",
	}
	s.pool = object{
		"vmSize": "standard_d4d_v5", "state": "active", "allocationState": "steady", "taskSlotsPerNode": 1, "enableAutoScale": false,
		"targetLowPriorityNodes": 0, "currentLowPriorityNodes": 0, "resizeTimeout": "PT15M",
		"virtualMachineConfiguration": object{
			"imageReference":         object{"publisher": "microsoft-azure-batch", "offer": "ubuntu-server-container", "sku": "20-04-lts", "version": "latest"},
			"nodeAgentSKUId":         "batch.node.ubuntu 20.04",
			"containerConfiguration": object{"type": "dockerCompatible"},
		},
	}
	s.AddNodes(n)
	s.web = httptest.NewServer(s)
	s.URL = s.web.URL
	tb.Cleanup(func() {
		stop()
		s.tasks.Wait()
		s.web.Close()
	})
	return s
}

// AddNodes adds idle nodes to the pool. Waiting tasks start on them.
func (s *Service) AddNodes(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.serial++
		s.nodes = append(s.nodes, &node{id: fmt.Sprintf("tvmps_%08x_d", s.serial), state: "idle", slots: 1})
	}
	s.schedule()
}

// SetNodes gives all nodes a state, such as unusable, and an error of this code and message unless it is empty.
func (s *Service) SetNodes(state, code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		n.state = state
		if code != "" {
			n.failure = object{"code": code, "message": message}
		}
	}
	s.schedule()
}

// SetPool sets properties of the pool, as they are in JSON.
func (s *Service) SetPool(properties map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, value := range properties {
		s.pool[name] = value
	}
}

// SetJob sets the job's state.
func (s *Service) SetJob(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobState = state
	s.schedule()
}

// RefusePath answers requests whose path has this end with an error.
func (s *Service) RefusePath(end string, status int, code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths = append(s.paths, fault{path: end, status: status, code: code, message: message})
}

// fault is an answer in place of the real one.
type fault struct {
	path          string
	status        int
	code, message string
	header        map[string]string
}

// Refuse answers the next n requests with an error. header has pairs of a name and a value.
func (s *Service) Refuse(n, status int, code, message string, header ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := fault{status: status, code: code, message: message, header: map[string]string{}}
	for pair := range slices.Chunk(header, 2) {
		f.header[pair[0]] = pair[1]
	}
	for range n {
		s.faults = append(s.faults, f)
	}
}

// LoseAnswers cuts the connection after each of the next n tasks is added, before the answer.
func (s *Service) LoseAnswers(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = n
}

// Cut answers n further requests that change something. The next one takes effect, but its answer is lost, and then no
// request arrives until Mend.
func (s *Service) Cut(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = &cut{left: n}
}

// Mend lets requests arrive again.
func (s *Service) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = nil
}

// cut is the loss of the network after some changes.
type cut struct {
	left int
	lost bool
}

// arrives reports whether a request arrives, and whether its answer does.
func (s *Service) arrives(r *http.Request) (request, reply bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cut == nil:
		return true, true
	case s.cut.lost:
		return false, false
	case r.Method == http.MethodGet:
		return true, true
	}
	s.cut.left--
	s.cut.lost = s.cut.left < 0
	return true, !s.cut.lost
}

// Requests returns the requests so far, as method and path.
func (s *Service) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP answers a request.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, reply := s.arrives(r)
	switch {
	case !request:
		panic(http.ErrAbortHandler) // the connection ends here
	case !reply:
		s.serve(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	s.serve(w, r)
}

func (s *Service) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	var f *fault
	if len(s.faults) > 0 {
		f = &s.faults[0]
		s.faults = s.faults[1:]
	}
	for i := range s.paths {
		if strings.HasSuffix(r.URL.Path, s.paths[i].path) {
			f = &s.paths[i]
		}
	}
	s.mu.Unlock()
	w.Header().Set("Date", s.Now().UTC().Format(http.TimeFormat))
	if f != nil {
		for name, value := range f.header {
			w.Header().Set(name, value)
		}
		refuse(w, f.status, f.code, f.message)
		return
	}
	if detail := s.authenticate(r); detail != "" {
		refuse(w, http.StatusForbidden, "AuthenticationFailed",
			"Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.",
			"AuthenticationErrorDetail", detail)
		return
	}
	switch version := r.URL.Query().Get("api-version"); version {
	case oldVersion, "2025-06-01", "2026-10-01":
		s.routes().ServeHTTP(w, r)
	case "":
		refuse(w, http.StatusBadRequest, "MissingRequiredQueryParameter", "A query parameter that's mandatory for this request is not specified.")
	default:
		refuse(w, http.StatusBadRequest, "UnsupportedRequestVersion", "The specified request version is not supported.")
	}
}

// oldVersion is the version of Microsoft's client for JavaScript.
const oldVersion = "2022-10-01.16.0"

// routes returns the handlers of the calls.
func (s *Service) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /jobs/{job}":                           s.getJob,
		"GET /jobs/{job}/taskcounts":                s.countTasks,
		"POST /jobs/{job}/tasks":                    s.addTask,
		"GET /jobs/{job}/tasks":                     s.listTasks,
		"GET /jobs/{job}/tasks/{task}":              s.getTask,
		"DELETE /jobs/{job}/tasks/{task}":           s.deleteTask,
		"POST /jobs/{job}/tasks/{task}/terminate":   s.terminateTask,
		"GET /jobs/{job}/tasks/{task}/files/{file}": s.getFile,
		"GET /pools/{pool}":                         s.getPool,
		"GET /pools/{pool}/nodes":                   s.listNodes,
		"GET /nodecounts":                           s.countNodes,
		"/":                                         notThere,
	} {
		mux.HandleFunc(pattern, handle)
	}
	return mux
}

func notThere(w http.ResponseWriter, _ *http.Request) {
	refuse(w, http.StatusBadRequest, "InvalidUri", "The requested URI does not represent any resource on the server.")
}
