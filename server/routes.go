package server

import (
	"net/http"
	"strings"

	"github.com/cl-slurm/cl-slurm/server/store"
)

// handler serves one route for a user. It writes the answer or returns an error.
type handler func(w http.ResponseWriter, r *http.Request, u store.User) error

// route is one way to call the server.
type route struct {
	pattern string // of http.ServeMux, below /rest
	serve   handler
	// public routes also serve users who have not signed in. For them the user has no id, and
	// the permissions of the group "public".
	public bool
	// worker routes also serve worker accounts (store.User.IsWorker). The others refuse them.
	worker bool
}

// routes returns all routes but that of sign-ins (codalab/rest/*.py).
func (s *Server) routes() []route {
	var all []route
	for _, some := range [][]route{
		s.userRoutes(), s.groupRoutes(), s.worksheetRoutes(), s.bundleRoutes(), s.contentsRoutes(), s.interpretRoutes(), s.workerRoutes(),
	} {
		all = append(all, some...)
	}
	return all
}

// Patterns returns the patterns of all routes, such as "GET /bundles/{uuid}", below /rest.
func Patterns() []string {
	var patterns []string
	for _, one := range (&Server{}).routes() {
		patterns = append(patterns, one.pattern)
	}
	return patterns
}

// Handler returns the service's HTTP handler. The answer to a known path with another method is
// 405.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.health)
	mux.HandleFunc("POST /rest/oauth2/token", s.token)
	mux.HandleFunc("POST /rest/oauth2/revoke", s.revoke)
	for _, one := range s.routes() {
		method, path, _ := strings.Cut(one.pattern, " ")
		mux.HandleFunc(method+" /rest"+path, s.authenticated(one))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		drain(w, r, false)
		s.answerError(w, r, unknownRoute(mux, r))
	})
	return s.paced(mux)
}

func unknownRoute(mux *http.ServeMux, r *http.Request) error {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" && method != r.Method {
			return refuse(http.StatusMethodNotAllowed, "Method not allowed.")
		}
	}
	return refuse(http.StatusNotFound, "Not found: '%s'", strings.TrimPrefix(r.URL.Path, "/rest"))
}
