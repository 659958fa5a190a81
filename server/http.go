package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/server/hub"
)

// maxBody bounds the bodies that are JSON.
const maxBody = 8 << 20

// maxItems bounds the items of a worksheet that one request adds: each is a row, which the one writer of
// the database inserts while others wait.
const maxItems = 20_000

func checkItems(n int) error {
	if n > maxItems {
		return refuse(http.StatusRequestEntityTooLarge, "A request may add %d items to a worksheet, not %d", maxItems, n)
	}
	return nil
}

// refusal is an error for the client: an HTTP status and one sentence, which CodaLab's clients
// show unchanged.
type refusal struct {
	status  int
	message string
	// later means that the same request may succeed soon: the answer has a Retry-After.
	later bool
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, message: fmt.Sprintf(format, args...)}
}

// hasStatus reports whether err is a refusal with this status.
func hasStatus(err error, status int) bool {
	var no *refusal
	return errors.As(err, &no) && no.status == status
}

// refusalOf is what a client is told of an error. It logs those that a client cannot mend.
func (s *Server) refusalOf(r *http.Request, err error) *refusal {
	var no *refusal
	switch {
	case errors.As(err, &no):
		return no
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, sqldb.ErrFull):
		s.logError(r.Context(), r.Method+" "+r.URL.Path, err)
		return &refusal{status: http.StatusInternalServerError, message: "The server's disk is full."}
	case errors.Is(err, sqldb.ErrUnavailable), errors.Is(err, sqldb.ErrInDoubt):
		s.logError(r.Context(), r.Method+" "+r.URL.Path, err)
		return &refusal{status: http.StatusServiceUnavailable, message: "The server's database does not answer. Try again later."}
	}
	s.logError(r.Context(), r.Method+" "+r.URL.Path, err)
	return &refusal{status: http.StatusInternalServerError, message: "Unexpected Internal Error (see the server's log)."}
}

// answerError answers a failed request. CodaLab's own server labels its messages as HTML. This
// one does not, since they repeat what the client sent.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return // the handler has answered
	}
	no := s.refusalOf(r, err)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if no.later {
		w.Header().Set("Retry-After", strconv.Itoa(int(hub.AwayAfter/time.Second)))
	}
	w.WriteHeader(no.status)
	if _, err := io.WriteString(w, no.message); err != nil {
		s.Log.LogAttrs(r.Context(), slog.LevelDebug, "answer not delivered", slog.String("error", err.Error()))
	}
}

// checkTexts refuses a path or query with text that PostgreSQL cannot hold, before the text reaches the
// database. A file in a bundle may have any name, and a running bundle gets its requests as they are.
func checkTexts(pattern string, r *http.Request) error {
	texts := []string{strings.TrimSuffix(r.URL.Path, r.PathValue("path"))}
	if !strings.Contains(pattern, "{path...}") {
		for name, values := range r.URL.Query() {
			texts = append(append(texts, name), values...)
		}
	}
	for _, text := range texts {
		if !isText(text) {
			return refuse(http.StatusBadRequest, "The address has characters that are not UTF-8, or are zero: %q", text)
		}
	}
	return nil
}

// isText reports whether PostgreSQL can hold a text.
func isText(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// nulOrEscape matches a zero character in JSON, and whole escapes before it, such as a backslash's.
var nulOrEscape = regexp.MustCompile(`\\(?:u0000|.)`)

// withoutNUL replaces zero characters in JSON, which PostgreSQL cannot hold. encoding/json replaces
// invalid UTF-8 in the same way. Refusing them would be worse: a run's failure message may have one, and
// its worker must be able to report it.
func withoutNUL(body []byte) []byte {
	if !bytes.Contains(body, []byte(`\u0000`)) {
		return body
	}
	return nulOrEscape.ReplaceAllFunc(body, func(found []byte) []byte {
		if string(found) == `\u0000` {
			return []byte(`\ufffd`)
		}
		return found
	})
}

// readBody reads a request's body, which is bounded.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refuse(http.StatusRequestEntityTooLarge, "Request is larger than %d bytes", maxBody)
	case tooSlow(err):
		return nil, refuse(http.StatusBadRequest, "Request came too slowly")
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "Request was cut off")
	}
	return body, nil
}

// readJSON reads a request's body into v.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(withoutNUL(body), v); err != nil {
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
		return nil, refuse(http.StatusBadRequest, "The request's data must be a list of objects")
	}
	noteObjects(r.Context(), objects)
	return objects, nil
}

// readIDs reads a request whose data is a link to an object of a kind, or a list of such links
// (codalab/rest/util.py: get_resource_ids).
func readIDs(w http.ResponseWriter, r *http.Request, kind string) ([]string, error) {
	objects, err := readObjects(w, r)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, o := range objects {
		if o.Type != kind || o.ID == "" {
			return nil, refuse(http.StatusBadRequest, "type must be '%s', and each object must have an id", kind)
		}
		ids = append(ids, o.ID)
	}
	return ids, nil
}

// writeMeta answers with a JSON:API document that has no data.
func writeMeta(w http.ResponseWriter, key string, value any) error {
	return writeJSON(w, http.StatusOK, map[string]any{"meta": map[string]any{"version": codalab.Version, key: value}})
}

// writeJSON answers with v. The content type names no character set, since clients compare it
// as a whole.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return nil //nolint:nilerr // the client has gone
	}
	return nil
}

// writeDocument answers with a JSON:API document. Data is an object or a list.
func writeDocument(w http.ResponseWriter, data any, included []codalab.Object) error {
	doc := map[string]any{"data": data, "meta": map[string]string{"version": codalab.Version}}
	if len(included) > 0 {
		doc["included"] = included
	}
	return writeJSON(w, http.StatusOK, doc)
}

// boolParam reads a query parameter that is 0 or 1; missing is the value if it is absent.
func boolParam(q url.Values, name string, missing bool) (bool, error) {
	switch q.Get(name) {
	case "":
		return missing, nil
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, refuse(http.StatusBadRequest, "%s must be 0 or 1, not '%s'", name, q.Get(name))
}

// intParam reads a query parameter that is a number into to, and leaves to unchanged if it is
// absent.
func intParam(q url.Values, name string, to *int) error {
	text := q.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return refuse(http.StatusBadRequest, "%s must be a number, not '%s'", name, text)
	}
	*to = n
	return nil
}

// includes reads the query parameter include, which may list names of known.
func includes(q url.Values, known ...string) (map[string]bool, error) {
	set := map[string]bool{}
	if q.Get("include") == "" {
		return set, nil
	}
	for name := range strings.SplitSeq(q.Get("include"), ",") {
		if !slices.Contains(known, name) {
			return nil, refuse(http.StatusBadRequest, "Unsupported include: '%s'", name)
		}
		set[name] = true
	}
	return set, nil
}
