package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRerunNeedsNoSearch: what has changed since a run is a note, without which the run is repeated, too.
func TestRerunNeedsNoSearch(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.mustRun(t, "new", "w")
	s.mustRun(t, "work", "w")
	s.mustRun(t, "run", "true", "-n", "r")
	s.on(http.MethodGet, "/rest/bundles", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.RawQuery, ".sort-") {
			http.Error(w, "The search took too long.", http.StatusBadRequest)
			return
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.Replace(answer.Body.String(), `"attributes":{`, `"attributes":{"platform":{"site":"x"},`, 1))
	})
	wantText(t, "what is said of the run", s.mustRun(t, "rerun", "--check", "r"), "What your newest run ran on is not known: ")
	wantText(t, "what is said of the run", s.mustRun(t, "rerun", "--check", "r"), "The search took too long")
}
