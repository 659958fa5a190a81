package stocktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/pipenet"
)

// Options configures a Server. Dir and Users are required.
type Options struct {
	// Dir is an empty directory for the contents of bundles.
	Dir string
	// Users are the server's users. The one named RootName is its root user.
	Users  []User
	Faults Faults
}

// User is a user of a Server.
type User struct{ Name, Password string }

// The original's times: the hold of a check-in, the pause between two passes of the manager,
// and the time after which a worker without a check-in counts as gone.
const (
	hold          = 5 * time.Second
	passPause     = 500 * time.Millisecond
	workerTimeout = time.Minute
)

// RootName is the name of the root user. Its workers get everybody's runs.
const RootName = "codalab"

// Faults are functions by which a test injects faults. They may be nil, and must be safe for
// concurrent use.
type Faults struct {
	// LoseAnswer is called after a request has been served. If it returns true, the server
	// breaks the connection instead of answering.
	LoseAnswer func(r *http.Request) bool
	// BeforeCheckIn is called before a check-in is applied. It delays the check-in by waiting.
	BeforeCheckIn func()
}

// Server is a stand-in for CodaLab's own server: an http.Handler of the paths below /rest. It
// is safe for concurrent use.
type Server struct {
	o     Options
	mux   *http.ServeMux
	store *os.Root
	pipes *pipenet.Listener
	http  *http.Server // serves the connections of pipes

	serving sync.WaitGroup

	mu      sync.Mutex
	users   map[string]*account
	tokens  map[string]*account
	bundles []*bundle // the oldest first
	workers []*workerRow
	runs    map[string]*workerRow // the run rows, by bundle
	sockets map[int64]*socket
	number  int64 // the last socket's
	down    chan struct{}
}

// New returns a server without bundles. It changes no bundle by itself before Run.
func New(o Options) (*Server, error) {
	store, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the bundle store: %w", err)
	}
	s := &Server{
		o: o, mux: http.NewServeMux(), store: store,
		users: map[string]*account{}, tokens: map[string]*account{},
		runs: map[string]*workerRow{}, sockets: map[int64]*socket{}, down: make(chan struct{}),
	}
	for _, u := range o.Users {
		s.addUser(u)
	}
	s.routes()
	s.pipes, s.http = pipenet.Listen(), &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	s.serving.Go(func() { _ = s.http.Serve(s.pipes) }) // until Close
	return s, nil
}

// Run passes over the bundles until ctx ends (codalab/server/bundle_manager.py:
// BundleManager.run).
func (s *Server) Run(ctx context.Context) {
	for {
		s.managerPass()
		if pause.For(ctx, passPause) != nil {
			return
		}
	}
}

// Close waits for the requests of Client to end, some of which are held for a while, and
// closes the store. Run must have returned.
func (s *Server) Close() error {
	err := s.http.Shutdown(context.Background())
	s.serving.Wait()
	return errors.Join(err, s.store.Close())
}

// DropTokens makes all tokens invalid, so that clients must log in again.
func (s *Server) DropTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// Restart breaks off the requests that wait, as a restart of the server does: a held check-in
// gets no answer.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.down)
	s.down = make(chan struct{})
}

// State returns a bundle's state; empty for an unknown bundle.
func (s *Server) State(uuid string) codalab.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.bundle(uuid); b != nil {
		return b.state
	}
	return ""
}

// refusal is an answer with an error status (codalab/common.py: UsageError and its sibling
// classes).
type refusal struct {
	status int
	words  string
}

func (r refusal) Error() string { return r.words }

func refuse(status int, format string, a ...any) error {
	return refusal{status, fmt.Sprintf(format, a...)}
}

// handler serves a request of a user.
type handler func(w http.ResponseWriter, r *http.Request, u *account) error

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.o.Faults.LoseAnswer == nil {
		s.mux.ServeHTTP(w, r)
		return
	}
	kept := httptest.NewRecorder()
	s.mux.ServeHTTP(kept, r)
	if s.o.Faults.LoseAnswer(r) {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), kept.Header())
	w.WriteHeader(kept.Code)
	_, _ = w.Write(kept.Body.Bytes()) // the caller may have gone
}

// routes registers the routes that a worker and the suite call.
func (s *Server) routes() {
	s.mux.HandleFunc("POST /rest/oauth2/token", s.token)
	for pattern, h := range map[string]handler{
		"POST /rest/workers/{worker}/checkin":             s.checkIn,
		"POST /rest/workers/{worker}/start_bundle/{uuid}": s.startBundle,
		"POST /rest/workers/{worker}/reply/{socket}":      s.reply,
		"POST /rest/workers/{worker}/reply_data/{socket}": s.replyData,
		"GET /rest/user":                                   s.showUser,
		"POST /rest/bundle-actions":                        objects(s.actions),
		"POST /rest/bundles":                               objects(s.makeBundles),
		"PATCH /rest/bundles":                              objects(s.changeBundles),
		"GET /rest/bundles/{uuid}":                         s.showBundle,
		"GET /rest/bundles/{uuid}/contents/info/{path...}": s.info,
		"GET /rest/bundles/{uuid}/contents/blob/{path...}": s.blob,
		"PUT /rest/bundles/{uuid}/contents/blob/{$}":       s.put,
	} {
		s.route(pattern, h)
	}
}

// route adds a handler that needs a login.
func (s *Server) route(pattern string, h handler) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		u := s.caller(r)
		if u == nil {
			answerError(w, refuse(http.StatusUnauthorized, "User is not authenticated."))
			return
		}
		if err := h(w, r, u); err != nil {
			answerError(w, err)
		}
	})
}

// answerError writes an error in plain text (codalab/server/rest_server.py: ErrorAdapter).
func answerError(w http.ResponseWriter, err error) {
	var r refusal
	if !errors.As(err, &r) || r.status == http.StatusInternalServerError {
		r = refusal{http.StatusInternalServerError, fmt.Sprintf("Unexpected Internal Error (%v). The administrators have been notified.", err)}
	}
	answerText(w, r.status, r.words)
}

func answerText(w http.ResponseWriter, status int, words string) {
	w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(words)) // the caller may have gone
}

// answerJSON writes a value; the header has no charset, since CodaLab's own programs compare
// it whole.
func answerJSON(w http.ResponseWriter, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the caller may have gone
	return nil
}

// answerDocument writes a document with one object or a list.
func answerDocument[T codalab.Object | []codalab.Object](w http.ResponseWriter, data T) error {
	doc := codalab.NewDocument(data)
	doc.Meta = version()
	return answerJSON(w, doc)
}

func version() map[string]any { return map[string]any{"version": "1.7.3"} }

// read decodes the body of a request.
func read(r *http.Request, v any) error {
	if json.NewDecoder(r.Body).Decode(v) != nil {
		return refuse(http.StatusBadRequest, "Invalid JSON")
	}
	return nil
}

// objects makes a handler of a function that takes the objects of a request's document.
func objects(serve func(w http.ResponseWriter, r *http.Request, u *account, in []codalab.Object) error) handler {
	return func(w http.ResponseWriter, r *http.Request, u *account) error {
		var doc codalab.Document
		if err := read(r, &doc); err != nil {
			return err
		}
		in, err := doc.Objects()
		if err != nil {
			return refuse(http.StatusBadRequest, "Invalid JSON")
		}
		return serve(w, r, u, in)
	}
}
