package pilottest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
)

func passesToken(t *testing.T, s Site) {
	t.Helper()
	b := s.Open("a")
	if b.TokenLife() == 0 {
		t.Skip("the pilots of this site take no tokens")
	}
	name := start(t, b, 1)[0]
	p := await(t, b, name, pilot.Active)
	var followed log
	reader := s.Open("a")
	ctx, stop := context.WithCancel(t.Context())
	done := background.Go(func() { _ = reader.WriteLog(ctx, &followed, p, true) })
	var text string
	testenv.Await(t, "the worker has printed its token", func() bool {
		text = followed.String()
		return strings.Contains(text, HasToken+Token(name)+"\n")
	}, &text)
	stop()
	<-done
}

// needsLogin also runs a manager of a server without tokens: it ends if its pilots would have no login.
func needsLogin(t *testing.T, s Site) {
	t.Helper()
	b := s.Open("a")
	var refusal error
	if n, ok := b.(pilot.TokenNeeder); ok {
		refusal = n.NeedsToken()
	}
	name := b.NewName()
	want := []string{name}
	_, err := b.Start(t.Context(), name, "")
	if (err != nil) != (refusal != nil) || err != nil && !errors.Is(err, pilot.ErrNoLogin) {
		t.Errorf("the start ends with %v; NeedsToken says %v", err, refusal)
	}
	if err != nil {
		want = nil
		m := &pilot.Manager{Server: &server{none: true}, Backend: b, Min: 1, Max: 1, MostFailed: -1, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}
		if ended := m.Run(t.Context()); !errors.Is(ended, pilot.ErrNoLogin) {
			t.Errorf("the manager ends with %v", ended)
		}
	}
	if got := live(t, b); !slices.Equal(got, want) {
		t.Errorf("shown are %q, want %q", got, want)
	}
}

// endsTokens runs the passes of a manager that may start two pilots.
func endsTokens(t *testing.T, s Site) {
	t.Helper()
	b := s.Open("a")
	if b.TokenLife() == 0 {
		t.Skip("the pilots of this site take no tokens")
	}
	server, now := &server{valid: map[string]int{}}, time.Unix(1_800_000_000, 0)
	m := &pilot.Manager{
		Server: server, Backend: b, Min: 2, Max: 2, MostFailed: -1, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now },
	}
	pass := func() {
		t.Helper()
		now = now.Add(b.Refresh())
		testenv.Must(t, m.Pass(t.Context()))
	}
	pass()
	names := live(t, b)
	if len(names) != 2 {
		t.Fatalf("started are %q", names)
	}
	valid := func(want ...int) bool {
		return slices.Equal(want, []int{server.tokens(names[0]), server.tokens(names[1])})
	}
	// Which one runs first is the batch system's choice.
	testenv.Await(t, "one of the pilots runs", func() bool {
		if find(t, b, names[0]).Phase != pilot.Active {
			slices.Reverse(names)
		}
		return find(t, b, names[0]).Phase == pilot.Active
	}, &names)
	m.Min = 0
	pass()
	if !valid(1, 1) {
		t.Errorf("the tokens of live pilots are %v", server.valid)
	}
	testenv.Must(t, b.Stop(t.Context(), find(t, b, names[0])))
	testenv.Await(t, "the token ends, at the latest when the worker has given its runs back", func() bool {
		pass()
		return valid(0, 1)
	}, &server.valid)
}

// server is a CodaLab server that has no bundles and gives out worker tokens.
type server struct {
	none  bool // it gives out no tokens
	mu    sync.Mutex
	valid map[string]int // by worker id
}

// tokens returns the number of a pilot's tokens that have not ended.
func (s *server) tokens(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.valid[pilot.WorkerID(name)]
}

// WorkerToken returns the Token of a pilot, and counts it.
func (s *server) WorkerToken(_ context.Context, workerID string, _ time.Duration) (string, error) {
	if s.none {
		return "", errors.ErrUnsupported
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.valid[workerID]++
	return Token(strings.TrimPrefix(workerID, pilot.WorkerID(""))), nil
}

// EndWorkerTokens ends the tokens of a worker.
func (s *server) EndWorkerTokens(_ context.Context, workerID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.valid, workerID)
	return nil
}

// SearchBundles finds none.
func (*server) SearchBundles(context.Context, string, []string) ([]client.BundleInfo, json.RawMessage, error) {
	return nil, nil, nil
}

// Workers returns none.
func (*server) Workers(context.Context) ([]codalab.WorkerInfo, error) { return nil, nil }

// Bundle finds none.
func (*server) Bundle(context.Context, string, ...string) (client.BundleInfo, error) {
	return client.BundleInfo{}, errors.ErrUnsupported
}
