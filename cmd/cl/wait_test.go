package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const someUUID = "0x391c0ea24a8c49e98e2b9baf6b6d9bc1"

// TestWaitOutlivesTroubleOfTheServer follows a run on a server that fails some requests,
// breaks off in the middle of the output, and sends less of it than requested, also after
// the end.
func TestWaitOutlivesTroubleOfTheServer(t *testing.T) {
	t.Parallel()
	const output = "0123456789abcdefghijklmnopqrstuvwxyz"
	states := []string{"preparing", "down", "running", "running", "down", "finalizing", "down", "ready"}
	polls, broken := 0, false
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rest/oauth2/token", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}`)
	})
	mux.HandleFunc("GET /rest/bundles/{uuid}", func(w http.ResponseWriter, _ *http.Request) {
		state := states[min(polls, len(states)-1)]
		polls++
		if state == "down" {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		_, _ = fmt.Fprintf(w, `{"data": {"type": "bundles", "id": %q, "attributes": {"uuid": %q, "state": %q}}}`, someUUID, someUUID, state)
	})
	mux.HandleFunc("GET /rest/bundles/{uuid}/contents/blob/{path}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("path") == "stderr" {
			http.NotFound(w, r)
			return
		}
		var first, last int
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, output[first:min(first+4, len(output))])
		if !broken {
			broken = true
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	var out, errs bytes.Buffer
	err := run(t.Context(), program.Process{
		Args: []string{"wait", "--tail", someUUID}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now,
		Getenv: func(name string) string {
			return map[string]string{
				"CL_SERVER": s.URL, "CODALAB_USERNAME": "anna", "CODALAB_PASSWORD": "x", "CODALAB_HOME": t.TempDir(),
			}[name]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := output + someUUID + "\n"; out.String() != want || errs.Len() > 0 {
		t.Errorf("got %q and %q, want %q", out.String(), errs.String(), want)
	}
}
