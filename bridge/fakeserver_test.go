package bridge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// fakeServer is a CodaLab server with one user's bundles.
type fakeServer struct {
	mu         sync.Mutex
	concurrent bool // a newer check-in ends the older ones
	hold       time.Duration
	down       bool
	denies     bool            // check-ins
	replaced   bool            // the worker has begun again elsewhere
	failures   int             // that many check-ins fail
	deaf       bool            // acknowledgements are lost
	restored   map[string]bool // bundles that it does not know any more
	messages   []codalab.Message
	unclaimed  map[string]codalab.Message
	arrived    chan struct{}
	superseded chan struct{} // closed by a newer check-in
	held, most int
	checkIns   int
	first      codalab.CheckIn
	last       codalab.CheckIn // the newest
	runs       map[string]codalab.RunReport
	finished   map[string]codalab.RunReport
	acked      map[string]bool
	verdicts   map[string]int // how often a run was reported as finalizing
	uploads    map[string]string
	identities map[string]codalab.Identity // of what was offered last
	reported   func(codalab.RunReport)     // if not nil, is called with each report, under the lock
	replies    map[int64]codalab.ReadReply
	data       map[int64][]byte
}

func newFakeServer() *fakeServer {
	return &fakeServer{
		concurrent: true, hold: 5 * time.Second, arrived: make(chan struct{}, 1), superseded: make(chan struct{}),
		unclaimed: map[string]codalab.Message{}, runs: map[string]codalab.RunReport{}, finished: map[string]codalab.RunReport{}, acked: map[string]bool{}, verdicts: map[string]int{},
		identities: map[string]codalab.Identity{}, uploads: map[string]string{}, replies: map[int64]codalab.ReadReply{}, data: map[int64][]byte{},
	}
}

var errDown = &codalab.Error{Method: "POST", Path: "/workers", Message: "connection refused"}

var errDenied = &codalab.Error{Method: "POST", Path: "/workers", Status: http.StatusUnauthorized, Message: "User is not authenticated."}

var errReplaced = &codalab.Error{Method: "POST", Path: "/workers", Status: http.StatusGone, Message: "Worker 'w' has begun again elsewhere"}

func (s *fakeServer) CheckIn(ctx context.Context, _ string, in codalab.CheckIn) ([]codalab.Message, error) {
	s.mu.Lock()
	s.checkIns++
	if s.down || s.failures > 0 {
		s.failures--
		s.mu.Unlock()
		return nil, errDown
	}
	if s.denies || s.replaced {
		err := errDenied
		if s.replaced {
			err = errReplaced
		}
		s.mu.Unlock()
		return nil, err
	}
	if s.last = in; s.checkIns == 1 {
		s.first = in
	}
	s.held++
	s.most = max(s.most, s.held)
	if s.concurrent {
		close(s.superseded)
		s.superseded = make(chan struct{})
	}
	superseded := s.superseded
	s.report(in.Reports)
	s.mu.Unlock()
	s.wait(ctx, superseded)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	if s.superseded != superseded || s.down {
		return nil, nil
	}
	messages := s.messages
	s.messages = nil
	return messages, nil
}

// wait holds a check-in until there is a message for it.
func (s *fakeServer) wait(ctx context.Context, superseded chan struct{}) {
	timer := time.NewTimer(s.hold)
	defer timer.Stop()
	for {
		s.mu.Lock()
		waiting := len(s.messages) > 0
		s.mu.Unlock()
		if waiting {
			return
		}
		select {
		case <-s.arrived:
		case <-superseded:
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// change alters or reads the fake under its lock.
func (s *fakeServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// setDown has the server not answer, or answer again.
func (s *fakeServer) setDown(down bool) { s.change(func() { s.down = down }) }

// report takes the runs in, and acknowledges those that have ended.
func (s *fakeServer) report(runs []codalab.RunReport) {
	for _, run := range runs {
		s.runs[run.UUID] = run
		if s.reported != nil {
			s.reported(run)
		}
		if run.State == codalab.StateFinalizing {
			s.verdicts[run.UUID]++
		}
		if run.State == codalab.StateFinalizing && !s.acked[run.UUID] && !s.restored[run.UUID] {
			s.acked[run.UUID], s.finished[run.UUID] = true, run
			if s.deaf {
				continue
			}
			s.messages = append(s.messages, codalab.Message{Type: codalab.MessageMarkFinalized, UUID: run.UUID})
		}
	}
}

func (s *fakeServer) send(m codalab.Message) {
	s.mu.Lock()
	s.messages = append(s.messages, m)
	if m.Bundle != nil {
		s.identities[m.Bundle.UUID] = m.Bundle.Identity()
	}
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

func (s *fakeServer) StartBundle(_ context.Context, _, bundle string, _ codalab.StartBundle) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return false, errDown
	}
	delete(s.unclaimed, bundle)
	return true, nil
}

// Standing is what the server believes of a bundle.
func (s *fakeServer) Standing(_ context.Context, bundle string) (codalab.Standing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return codalab.Standing{}, errDown
	}
	if s.restored[bundle] {
		return codalab.Standing{}, &codalab.Error{Method: "GET", Path: "/bundles/" + bundle, Status: http.StatusNotFound, Message: "not found"}
	}
	if s.acked[bundle] {
		state := codalab.StateReady
		if run := s.finished[bundle]; run.FailureMessage != nil || run.ExitCode != nil && *run.ExitCode != 0 {
			state = codalab.StateFailed
		}
		return codalab.Standing{Identity: s.identities[bundle], State: state}, nil
	}
	run := s.runs[bundle]
	return codalab.Standing{Identity: s.identities[bundle], State: run.State, RunStatus: run.RunStatus, Remote: run.Remote}, nil
}

func (s *fakeServer) Reply(_ context.Context, _ string, socket int64, r codalab.ReadReply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[socket] = r
	return nil
}

func (s *fakeServer) ReplyData(_ context.Context, _ string, socket int64, body io.Reader) error {
	data, err := io.ReadAll(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data[socket] = data
	return err
}

func (s *fakeServer) Open(_ codalab.RunBundle, runDir string) (*os.Root, error) {
	return os.OpenRoot(runDir)
}

// GiveUp sends the end of the output.
func (s *fakeServer) GiveUp(_ context.Context, run codalab.RunBundle, runDir string, _ spool.ResultsMode) (*spool.HeldResults, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uploads[run.UUID] = "the end of the output"
	return &spool.HeldResults{Size: "8g in 3 entries", Dir: runDir, Output: true}, nil
}

func (*fakeServer) Measure(context.Context, codalab.RunBundle, string, spool.ResultsMode) spool.MeasuredResults {
	return spool.MeasuredResults{Small: true}
}

// Collect uploads a run's standard output.
func (s *fakeServer) Collect(_ context.Context, run codalab.RunBundle, runDir string, _ spool.ResultsMode, progress func(string)) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return "", errDown
	}
	data, err := os.ReadFile(filepath.Join(runDir, "stdout"))
	progress("Uploading results.")
	s.uploads[run.UUID] = string(data)
	return fmt.Sprintf("%d bytes", len(data)), err
}
