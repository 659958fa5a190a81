package server

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/server/contents"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/signin"
	"github.com/cl-slurm/cl-slurm/server/terminal"
)

// routes returns all routes but that of sign-ins (codalab/rest/*.py).
func (s *Server) routes() []rest.Route {
	var all []rest.Route
	for _, some := range [][]rest.Route{
		s.accounts.Routes(), s.worksheets.Routes(), s.bundles.Routes(), s.contents.Routes(), s.checkIns.Routes(), s.signIns.Routes(), s.secrets.Routes(), s.queues.Routes(), s.notices.Routes(), s.workerCodeRoutes(),
	} {
		all = append(all, some...)
	}
	return all
}

// absent returns the routes of CodaLab's own server that this one does not have, each with the reason.
func absent() map[string]string {
	const stores = "there are no bundle stores beside the server's own"
	return map[string]string{
		"GET /worksheets/":                         "no page calls it any more",
		"GET /oauth2/authorize":                    "no program asks for an authorization code",
		"GET /oauth2/errors":                       "no program asks for an authorization code",
		"DELETE /bundle_stores":                    stores,
		"GET /bundles/{uuid}/locations/{store}/":   stores,
		"GET /bundles/locations":                   stores,
		"POST /bundles/{uuid}/state":               "clients call it after an upload to another store",
		"PATCH /bundles/{uuid}/contents/filesize/": "clients call it after an upload to another store",
	}
}

// Call is one call of CodaLab's REST API, compared with CodaLab's own server.
type Call struct {
	Pattern string
	// Public calls need no sign-in. Worker calls are those that worker accounts may make, WorkerToken calls
	// those that a worker token allows.
	Public, Worker, WorkerToken bool
	// Manager calls are those that a worker manager's token allows besides.
	Manager bool
	// Verdict is "same", "differs" or "absent". Why lists the differences, or gives the reason for the absence.
	Verdict, Why string
}

// Calls returns all calls of CodaLab's REST API, sorted by path.
func Calls() []Call {
	calls := []Call{
		{"POST /oauth2/token", true, true, false, false, "differs", "failed sign-ins are slowed: 429 until a time that the answer names; a program that sends device_token gets one, by which it is known at its next sign-in"},
		{"GET /account/reset", true, true, true, false, "differs", "the page asks for an e-mail address or the operator's one-time code, and itself sends no mail"},
		{"POST /account/reset/finalize", true, true, true, false, "differs", "answers programs in plain text; ends all sessions of the user"},
		{"POST /account/login", true, true, true, false, "differs", "the addresses to go on to are paths of this server; failed sign-ins are slowed; the cookie cannot be read by scripts, and is no proof in a request from another site's page"},
		{"GET /account/logout", true, true, true, false, "differs", "it ends the session; the address to go on to is a path of this server"},
		{"GET /account/css", true, true, true, false, "differs", "it has no name of the user"},
		{"POST /oauth2/device_authorization", true, true, true, false, "differs", "only this server has it, with --oidc-issuer: a program begins a sign-in by a browser (RFC 8628)"},
		{"GET /sso", true, true, true, false, "differs", "only this server has it, with --oidc-issuer: the page for the code that cl login --sso shows"},
		{"POST /sso", true, true, true, false, "differs", "the same; it sends the browser to the provider"},
		{"GET /sso/callback", true, true, true, false, "differs", "the same; the browser comes back from the provider"},
		{"POST /oauth2/revoke", true, true, true, false, "differs", "ends all tokens of the session"},
	}
	for _, one := range append((&Server{contents: &contents.Contents{}}).routes(), (&terminal.Terminal{}).Routes(nil)...) {
		verdict := "same"
		if one.Differs != "" {
			verdict = "differs"
		}
		calls = append(calls, Call{one.Pattern, one.Public, one.Worker, one.WorkerToken, one.Manager, verdict, one.Differs})
	}
	for _, one := range (&signin.SignIns{}).PageCalls() {
		calls = append(calls, Call{one.Pattern, true, true, true, false, "differs", one.Differs})
	}
	for pattern, why := range absent() {
		calls = append(calls, Call{Pattern: pattern, Verdict: "absent", Why: why})
	}
	slices.SortFunc(calls, func(a, b Call) int {
		methodA, pathA, _ := strings.Cut(a.Pattern, " ")
		methodB, pathB, _ := strings.Cut(b.Pattern, " ")
		return cmp.Or(strings.Compare(pathA, pathB), strings.Compare(methodA, methodB))
	})
	return calls
}

// Handler returns the service's HTTP handler. The answer to a known path with another method is
// 405.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.health)
	mux.HandleFunc("GET /ws/{path...}", s.checkIns.Doorbell)
	mux.HandleFunc("POST /rest/oauth2/token", s.signIns.Token)
	mux.HandleFunc("POST /rest/oauth2/revoke", s.signIns.Revoke)
	mux.HandleFunc("POST /rest/account/login", s.signIns.Login)
	mux.HandleFunc("GET /rest/account/logout", s.signIns.Logout)
	mux.HandleFunc("GET "+ResetPath, s.signIns.ResetPage)
	mux.HandleFunc("POST "+ResetPath+"/finalize", s.signIns.Reset)
	mux.HandleFunc("GET /rest/account/css", signin.PageStyle)
	for _, one := range s.signIns.PageCalls() {
		method, path, _ := strings.Cut(one.Pattern, " ")
		mux.HandleFunc(method+" /rest"+path, one.Answer)
	}
	if s.sso != nil {
		s.sso.Handle(mux)
	}
	for _, one := range append(s.routes(), s.terminal.Routes(mux)...) {
		method, path, _ := strings.Cut(one.Pattern, " ")
		mux.HandleFunc(method+" /rest"+path, s.authenticated(one))
	}
	s.pages.Handle(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		rest.Drain(w, r, false)
		status, message := unknownRoute(mux, r)
		if isPage(r) {
			s.pages.Missing(w, r, status, message)
			return
		}
		rest.AnswerError(s.Log, w, r, rest.Refuse(status, "%s", message))
	})
	return rest.Paced(mux, s.TransferTimeout)
}

// isPage reports whether a request is for a page, and not for a part of an API or of a page.
func isPage(r *http.Request) bool {
	below, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !slices.Contains([]string{"rest", "ws", "static", "healthz"}, below)
}

func unknownRoute(mux *http.ServeMux, r *http.Request) (status int, message string) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" && method != r.Method {
			return http.StatusMethodNotAllowed, "Method not allowed."
		}
	}
	return http.StatusNotFound, "Not found: '" + strings.TrimPrefix(r.URL.Path, "/rest") + "'"
}
