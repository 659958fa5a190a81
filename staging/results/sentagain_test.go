package results

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/spool"
)

// fullServer takes uploads as CodaLab's own server does while its disk is full:
// it answers that the archive is to blame, and makes the bundle failed.
type fullServer struct {
	*directoryServer

	mu      sync.Mutex
	full    bool
	state   codalab.State
	message string
}

func (s *fullServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodGet:
		_, _ = fmt.Fprintf(w, `{"data":{"type":"bundles","id":%q,"attributes":{"state":%q,"metadata":{"failure_message":%q}}}}`, run1, s.state, s.message)
	case r.Method == http.MethodPatch:
		s.message = ""
		_, _ = io.WriteString(w, `{"data":[]}`)
	case s.state.Final():
		http.Error(w, "Contents cannot be modified, bundle already finalized.", http.StatusForbidden)
	case s.full:
		_, _ = io.Copy(io.Discard, r.Body)
		s.state, s.message = codalab.StateFailed, "Upload failed: Invalid archive upload: failed to unpack archive."
		http.Error(w, s.message, http.StatusBadRequest)
	default:
		if err := s.UploadContents(r.Context(), run1, client.UploadOptions{}, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

// put says whether the server's disk is full, and sets the bundle's state.
func (s *fullServer) put(full bool, state codalab.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full, s.state = full, state
}

func TestResultThatTheServerThrewAwayIsSentAgain(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "out"})
	s := &fullServer{directoryServer: r.server, full: true, state: codalab.StateRunning}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	c, err := client.New(web.URL, client.Options{})
	must(t, err)
	r.collector.Contents = c
	for range 2 { // the server refuses the second
		_, err := r.collect(spool.ResultsUpload)
		var failed interface{ Transient() bool }
		if !errors.As(err, &failed) || !failed.Transient() {
			t.Fatalf("got %v, want an error that passes", err)
		}
	}
	s.put(false, codalab.StateRunning)
	r.mustCollect(spool.ResultsUpload)
	if diff := cmp.Diff([]string{"stdout"}, r.uploaded()); diff != "" || s.message != "" {
		t.Errorf("uploaded (-want +got), with the message %q:\n%s", s.message, diff)
	}
}
