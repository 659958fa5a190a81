package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// maxBody bounds the bodies that are JSON.
const maxBody = 8 << 20

// refusal is an answer other than success: a status and one sentence, which CodaLab's clients
// show as it is.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// handler serves one route for a user who has been authenticated. It answers itself, or
// returns why not.
type handler func(w http.ResponseWriter, r *http.Request, u store.User) error

// routes lists the routes of codalab/rest/*.py that are served. A path that is known with
// another method is 405.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rest/oauth2/token", s.token)
	for pattern, h := range map[string]handler{
		"GET /rest/user":                       s.ownUser,
		"PATCH /rest/user/increment_disk_used": s.incrementDiskUsed,
		"GET /rest/users/{user}":               s.user,

		"GET /rest/worksheets":        s.findWorksheets,
		"POST /rest/worksheets":       s.createWorksheets,
		"GET /rest/worksheets/{uuid}": s.worksheet,

		"GET /rest/bundles":                      s.findBundles,
		"POST /rest/bundles":                     s.createBundles,
		"PATCH /rest/bundles":                    s.patchBundles,
		"GET /rest/bundles/{uuid}":               s.bundle,
		"POST /rest/bundle-actions":              s.bundleActions,
		"GET /rest/bundles/{uuid}/locations/{$}": s.locations,
		// need_bypass: may the client upload elsewhere? It may not.
		"POST /rest/bundles/{uuid}/locations/{$}": s.addLocation,

		"GET /rest/bundles/{uuid}/contents/info/{path...}": s.contentsInfo,
		"GET /rest/bundles/{uuid}/contents/blob/{path...}": s.contentsBlob,
		"PUT /rest/bundles/{uuid}/contents/blob/{$}":       s.upload,

		"POST /rest/workers/{worker}/checkin":             s.checkIn,
		"POST /rest/workers/{worker}/start_bundle/{uuid}": s.startBundle,
		"POST /rest/workers/{worker}/reply/{socket}":      s.reply,
		"POST /rest/workers/{worker}/reply_data/{socket}": s.replyData,
	} {
		mux.HandleFunc(pattern, s.authenticated(h))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, unknownRoute(mux, r)) })
	return mux
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

// fail answers with why a request was not served. Messages are plain text, not HTML as the
// stock server labels them: they repeat what the client sent.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var no *refusal
	switch {
	case err == nil || r.Context().Err() != nil:
		return // answered, or nobody there to hear it
	case errors.As(err, &no):
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		s.logError(r.Context(), r.Method+" "+r.URL.Path, err)
		no = &refusal{http.StatusInternalServerError, "The server's disk is full."}
	default:
		s.logError(r.Context(), r.Method+" "+r.URL.Path, err)
		no = &refusal{http.StatusInternalServerError, "Unexpected Internal Error (see the server's log)."}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(no.status)
	if _, err := io.WriteString(w, no.message); err != nil {
		s.Log.LogAttrs(r.Context(), slog.LevelDebug, "answer not delivered", slog.String("error", err.Error()))
	}
}

// readJSON reads a request's body into v.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return refuse(http.StatusRequestEntityTooLarge, "Request is larger than %d bytes", maxBody)
	case err != nil:
		return refuse(http.StatusBadRequest, "Request was cut off")
	}
	if err := json.Unmarshal(body, v); err != nil {
		return refuse(http.StatusBadRequest, "Invalid JSON")
	}
	return nil
}

// readObjects reads a JSON:API request whose data is a list.
func readObjects(w http.ResponseWriter, r *http.Request) ([]codalab.Object, error) {
	var doc codalab.Document
	if err := readJSON(w, r, &doc); err != nil {
		return nil, err
	}
	objects, err := doc.Objects()
	if err != nil || len(objects) == 0 {
		return nil, refuse(http.StatusBadRequest, "The request's data is to be a list of objects")
	}
	return objects, nil
}

// writeJSON answers with v. Clients compare the content type as a whole, so it names no
// character set.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return nil //nolint:nilerr // the client has gone; it has its status
	}
	return nil
}

// writeDocument answers with a JSON:API document: data is an object or a list.
func writeDocument(w http.ResponseWriter, data any, included []codalab.Object) error {
	doc := map[string]any{"data": data, "meta": map[string]string{"version": codalab.Version}}
	if len(included) > 0 {
		doc["included"] = included
	}
	return writeJSON(w, http.StatusOK, doc)
}

// flag reads a query parameter that is 0 or 1.
func flag(q url.Values, name string, missing bool) (bool, error) {
	switch q.Get(name) {
	case "":
		return missing, nil
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, refuse(http.StatusBadRequest, "%s has to be 0 or 1, not '%s'", name, q.Get(name))
}

// includes reads the query parameter include, which may name any of known.
func includes(q url.Values, known ...string) (map[string]bool, error) {
	set := map[string]bool{}
	if q.Get("include") == "" {
		return set, nil
	}
	ok := map[string]bool{}
	for _, name := range known {
		ok[name] = true
	}
	for name := range strings.SplitSeq(q.Get("include"), ",") {
		if !ok[name] {
			return nil, refuse(http.StatusBadRequest, "Unsupported include: '%s'", name)
		}
		set[name] = true
	}
	return set, nil
}
