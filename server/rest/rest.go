package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// maxBody bounds the bodies that are JSON.
const maxBody = 8 << 20

// CheckTexts refuses a path or query with text that PostgreSQL cannot hold, before the text reaches the
// database. A file in a bundle may have any name, and a running bundle gets its requests as they are.
func CheckTexts(pattern string, r *http.Request) error {
	texts := []string{strings.TrimSuffix(r.URL.Path, r.PathValue("path"))}
	if !strings.Contains(pattern, "{path...}") {
		for name, values := range r.URL.Query() {
			texts = append(append(texts, name), values...)
		}
	}
	for _, text := range texts {
		if !IsText(text) {
			return Refuse(http.StatusBadRequest, "The address has characters that are not UTF-8, or are zero: %q", text)
		}
	}
	return nil
}

// IsText reports whether PostgreSQL can hold a text.
func IsText(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

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

// ReadBody reads a request's body, which is bounded. It counts in the share of its owner (Shares).
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(counted(r, http.MaxBytesReader(w, r.Body, maxBody)))
	var large *http.MaxBytesError
	var no *RefusalError
	switch {
	case errors.As(err, &no):
		return nil, no
	case errors.As(err, &large):
		return nil, Refuse(http.StatusRequestEntityTooLarge, "Request is larger than %d bytes", maxBody)
	case TooSlow(err):
		return nil, Refuse(http.StatusBadRequest, "Request came too slowly")
	case err != nil:
		return nil, Refuse(http.StatusBadRequest, "Request was cut off")
	}
	return body, nil
}

// ReadJSON reads a request's body into v.
func ReadJSON(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := ReadBody(w, r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(withoutNUL(body), v); err != nil {
		return Refuse(http.StatusBadRequest, "Invalid JSON")
	}
	return nil
}

// ReadObjects reads a JSON:API request whose data is a list.
func ReadObjects(w http.ResponseWriter, r *http.Request) ([]codalab.Object, error) {
	var doc codalab.Document
	if err := ReadJSON(w, r, &doc); err != nil {
		return nil, err
	}
	objects, err := doc.Objects()
	if err != nil || len(objects) == 0 {
		return nil, Refuse(http.StatusBadRequest, "The request's data must be a list of objects")
	}
	noteObjects(r.Context(), objects)
	return objects, nil
}

// ReadIDs reads a request whose data is a link to an object of a kind, or a list of such links
// (codalab/rest/util.py: get_resource_ids).
func ReadIDs(w http.ResponseWriter, r *http.Request, kind string) ([]string, error) {
	objects, err := ReadObjects(w, r)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, o := range objects {
		if o.Type != kind || o.ID == "" {
			return nil, Refuse(http.StatusBadRequest, "type must be '%s', and each object must have an id", kind)
		}
		ids = append(ids, o.ID)
	}
	return ids, nil
}

// WriteMeta answers with a JSON:API document that has no data.
func WriteMeta(w http.ResponseWriter, key string, value any) error {
	return WriteJSON(w, http.StatusOK, map[string]any{"meta": map[string]any{"version": codalab.Version, key: value}})
}

// WriteJSON answers with v. The content type names no character set, since clients compare it
// as a whole.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	WriteBody(w, status, body)
	return nil
}

// WriteBody answers with a text in JSON. Nobody reads the error of a client that has gone.
func WriteBody(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// WriteDocument answers with a JSON:API document. Data is an object or a list.
func WriteDocument(w http.ResponseWriter, data any, included []codalab.Object) error {
	return WriteWarnings(w, data, included, nil)
}

// WriteWarnings is WriteDocument with sentences for the user in meta.warnings, which CodaLab's own server does not have.
func WriteWarnings(w http.ResponseWriter, data any, included []codalab.Object, warnings []string) error {
	meta := map[string]any{"version": codalab.Version}
	if len(warnings) > 0 {
		meta["warnings"] = warnings
	}
	WriteBody(w, http.StatusOK, codalab.AppendDocument(nil, data, included, meta))
	return nil
}

// MetadataKeys reads the query parameter metadata, a list of keys: an answer's bundles have only these keys of their metadata.
// It is nil without the parameter. CodaLab's own server ignores it.
func MetadataKeys(q url.Values) ([]string, error) {
	if q.Get("metadata") == "" {
		return nil, nil
	}
	keys := strings.Split(q.Get("metadata"), ",")
	for _, key := range keys {
		if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") != "" || key == "" || len(keys) > mostKeys {
			return nil, Refuse(http.StatusBadRequest, "metadata must be a list of up to %d keys of metadata, not '%s'", mostKeys, key)
		}
	}
	return keys, nil
}

// mostKeys bounds MetadataKeys; a bundle has fewer.
const mostKeys = 64

// BoolParam reads a query parameter that is 0 or 1; missing is the value if it is absent.
func BoolParam(q url.Values, name string, missing bool) (bool, error) {
	switch q.Get(name) {
	case "":
		return missing, nil
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, Refuse(http.StatusBadRequest, "%s must be 0 or 1, not '%s'", name, q.Get(name))
}

// IntParam reads a query parameter that is a number into to, and leaves to unchanged if it is
// absent.
func IntParam(q url.Values, name string, to *int) error {
	text := q.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return Refuse(http.StatusBadRequest, "%s must be a number, not '%s'", name, text)
	}
	*to = n
	return nil
}

// Includes reads the query parameter include, which may list names of known.
func Includes(q url.Values, known ...string) (map[string]bool, error) {
	set := map[string]bool{}
	if q.Get("include") == "" {
		return set, nil
	}
	for name := range strings.SplitSeq(q.Get("include"), ",") {
		if !slices.Contains(known, name) {
			return nil, Refuse(http.StatusBadRequest, "Unsupported include: '%s'", name)
		}
		set[name] = true
	}
	return set, nil
}
