package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const unpackFailed = "Upload failed: Invalid archive upload: failed to unpack archive."

// runServer has one run bundle and treats uploads as CodaLab's own server does: one that
// breaks off makes the bundle failed, and its message stays.
type runServer struct {
	mu      sync.Mutex
	state   codalab.State
	message string
	stored  string
	// zombie is another upload of the same bundle, which breaks off once a whole
	// one has been answered.
	zombie bool
	calls  []string
	from   []string // the connections
}

func (s *runServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.from = append(s.calls, r.Method), append(s.from, r.RemoteAddr)
	switch {
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body)
		if want := `{"data":[{"type":"bundles","id":"` + uuid + `","attributes":{"metadata":{"error_traceback":"","failure_message":""}}}]}`; string(body) != want {
			http.Error(w, "PATCH "+string(body), http.StatusBadRequest)
			return
		}
		s.message = ""
		say(w, `{"data":[]}`)
	case r.Method == http.MethodGet:
		say(w, `{"data":{"type":"bundles","id":%q,"attributes":{"state":%q,"metadata":{"failure_message":%q}}}}`, uuid, s.state, s.message)
	case s.state.Final():
		http.Error(w, "Contents cannot be modified, bundle already finalized.", http.StatusForbidden)
	default:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			s.throwAway()
			return
		}
		if s.stored = string(body); s.zombie {
			s.throwAway()
		}
	}
}

func (s *runServer) throwAway() {
	s.stored, s.state, s.message, s.zombie = "", codalab.StateFailed, unpackFailed, false
}

// checkIn is a worker's report that it still has the run.
func (s *runServer) checkIn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = codalab.StateRunning
}

func (s *runServer) open(t *testing.T) *client.Client {
	t.Helper()
	return newSite(t, s.ServeHTTP).client(t, nil)
}

func deliver(t *testing.T, c *client.Client, body io.Reader) error {
	t.Helper()
	return c.UploadContents(t.Context(), uuid, client.UploadOptions{Filename: "bundle.tar.gz", Unpack: true, Confirm: true}, body)
}

// wantTransient wants a failed call that may succeed later.
func wantTransient(t *testing.T, err error, says string) {
	t.Helper()
	var failed *codalab.Error
	if !errors.As(err, &failed) || !failed.Transient() || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want a transient error that says %q", err, says)
	}
}

func TestUploadHasAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	s := &runServer{state: codalab.StateRunning}
	c := s.open(t)
	for range 2 {
		if err := deliver(t, c, strings.NewReader("archive")); err != nil {
			t.Fatal(err)
		}
	}
	// GET, PUT, GET and the same again
	if want := []string{"GET", "PUT", "GET", "GET", "PUT", "GET"}; !slices.Equal(s.calls, want) {
		t.Fatalf("called %v, want %v", s.calls, want)
	}
	if s.from[1] == s.from[0] || s.from[1] == s.from[4] || s.from[4] == s.from[0] {
		t.Errorf("uploads shared a connection: %v", s.from)
	}
	if s.from[2] != s.from[0] {
		t.Errorf("other calls do not share theirs: %v", s.from)
	}
}

// endless is an upload of which there is always more.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestSuccessBeforeTheWholeUploadDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		answer := http.NewResponseController(w)
		w.Header().Set("Content-Length", "0")
		if err := errors.Join(answer.EnableFullDuplex(), answer.Flush()); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, r.Body) // until the client goes
	})
	err := s.client(t, nil).UploadContents(t.Context(), uuid, client.UploadOptions{Filename: "f"}, endless{})
	wantTransient(t, err, "answered before")
}

func TestUploadThatTheServerCutsIsTransient(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		panic(http.ErrAbortHandler)
	})
	err := s.client(t, nil).UploadContents(t.Context(), uuid, client.UploadOptions{Filename: "f"}, endless{})
	wantTransient(t, err, "cannot reach the server")
}

func TestResultsThatTheServerThrewAwayAreNotDelivered(t *testing.T) {
	t.Parallel()
	s := &runServer{state: codalab.StateRunning, zombie: true}
	c := s.open(t)
	wantTransient(t, deliver(t, c, strings.NewReader("archive")), unpackFailed)
	if got, err := c.Standing(t.Context(), uuid); err != nil || got.UploadFailure == "" {
		t.Errorf("a failed upload was taken for the end of the run: %+v, %v", got, err)
	}
	s.calls = nil
	wantTransient(t, deliver(t, c, strings.NewReader("archive")), unpackFailed)
	if diff := cmp.Diff([]string{"GET"}, s.calls); diff != "" {
		t.Errorf("a bundle that takes nothing was sent something:\n%s", diff)
	}
	s.checkIn()
	s.calls = nil
	if err := deliver(t, c, strings.NewReader("archive")); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"GET", "PATCH", "PUT", "GET"}, s.calls); diff != "" || s.stored != "archive" || s.message != "" {
		t.Errorf("stored %q with the message %q:\n%s", s.stored, s.message, diff)
	}
}

// CodaLab's own server makes a run failed when it refuses the results for the quota. Until the next report, it refuses
// the end of the output that a bridge sends in their place, too.
func TestQuotaRefusalOfAnEarlierUploadIsOne(t *testing.T) {
	t.Parallel()
	s := &runServer{state: codalab.StateFailed, message: "Upload failed: Can't save bundle, user disk quota exceeded. Bundle size 25004101 greater than user's disk quota left: -20138000.0"}
	c := s.open(t)
	refused, ok := errors.AsType[*codalab.Error](deliver(t, c, strings.NewReader("archive")))
	if !ok || !refused.OverDiskQuota() || refused.Transient() {
		t.Errorf("%v, want the refusal for the quota", refused)
	}
	if want := []string{"GET"}; !slices.Equal(s.calls, want) {
		t.Errorf("called %v, want %v", s.calls, want)
	}
	s.checkIn()
	if err := deliver(t, c, strings.NewReader("archive")); err != nil {
		t.Error(err)
	}
}

func TestOtherFailuresAreNoUploadFailures(t *testing.T) {
	t.Parallel()
	s := &runServer{state: codalab.StateFailed, message: "Exit code 1"}
	got, err := s.open(t).Standing(t.Context(), uuid)
	if err != nil || got.State != codalab.StateFailed || got.UploadFailure != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestOnlyAnArchiveThatWasNotUnpackedIsInDoubt(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		unpackFailed: true,
		"Upload failed: Can't save bundle, user disk quota exceeded.": false,
		"Schema error": false,
	} {
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, message, http.StatusBadRequest) })
		err := s.client(t, nil).UploadContents(t.Context(), uuid, client.UploadOptions{Filename: "f"}, strings.NewReader("x"))
		if got := wantStatus(t, err, http.StatusBadRequest); got.UnpackFailed() != want {
			t.Error(fmt.Sprintf("%q:", message), got.UnpackFailed())
		}
	}
}
