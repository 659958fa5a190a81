package pilot_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// reception is a server on which another manager has the name while busy is set. It holds all check-ins but the first one:
// that one it answers at once.
type reception struct {
	busy    atomic.Bool
	answers chan struct{} // each element ends one held check-in
	calls   int
}

func (*reception) WorkerToken(context.Context, string, time.Duration) (string, error) {
	return "token", nil
}

func (*reception) EndWorkerTokens(context.Context, string) error { return nil }

func (r *reception) CheckIn(ctx context.Context, _ string, _ codalab.CheckIn) ([]codalab.Message, error) {
	if r.calls++; r.calls > 1 {
		select {
		case <-r.answers:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if r.busy.Load() {
		return nil, &codalab.Error{Status: http.StatusConflict, Message: "Worker 'm' is in use by another program"}
	}
	return nil, nil
}

// TestManagerWhoseNameIsTakenWaitsUntilTheServerAcceptsIt tells new reasons, and lets check-ins fail, while another manager has
// the name: neither is an answer of the server.
func TestManagerWhoseNameIsTakenWaitsUntilTheServerAcceptsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &reception{answers: make(chan struct{})}
		server.busy.Store(true)
		ctx, stop := context.WithCancel(t.Context())
		p := &pilot.Presence{Server: server, Name: "m", Log: slog.New(slog.DiscardHandler)}
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		if p.Conflict(ctx) == "" {
			t.Fatal("the manager does not know that its name is taken")
		}
		time.Sleep(5 * time.Second) // of the bubble: the next check-in is held
		p.Tell("a worker waits for its start")
		synctest.Wait()
		if p.Conflict(ctx) == "" {
			t.Error("a check-in that a new reason has interrupted counts as an answer")
		}
		time.Sleep(time.Minute) // check-ins end without an answer
		if p.Conflict(ctx) == "" {
			t.Error("a check-in without an answer counts as one")
		}
		server.busy.Store(false)
		server.answers <- struct{}{}
		synctest.Wait()
		if conflict := p.Conflict(ctx); conflict != "" {
			t.Errorf("after the server has accepted the manager: %s", conflict)
		}
		close(server.answers)
		stop()
		<-ended
	})
}

// overtaking is a server that a manager's first check-in reaches only after the manager's last one. It holds check-ins until
// the next one.
type overtaking struct {
	reception
	last chan struct{} // closed when the last check-in has arrived
	mu   sync.Mutex
	seen []bool        // of each check-in that has arrived, whether it was a last one
	held chan struct{} // closed when the held check-in is answered
}

func (s *overtaking) CheckIn(ctx context.Context, _ string, in codalab.CheckIn) ([]codalab.Message, error) {
	if !in.IsTerminating {
		<-s.last // the network is slow
	}
	s.mu.Lock()
	s.seen = append(s.seen, in.IsTerminating)
	if s.held != nil {
		close(s.held)
		s.held = nil
	}
	if in.IsTerminating {
		if len(s.seen) == 1 {
			close(s.last)
		}
		s.mu.Unlock()
		return nil, nil
	}
	held := make(chan struct{})
	s.held = held
	s.mu.Unlock()
	select {
	case <-held:
	case <-ctx.Done():
	}
	return nil, ctx.Err()
}

func TestManagerThatEndsFreesItsNameThoughAnEarlierCheckInArrivesLast(t *testing.T) {
	t.Parallel()
	for name, tells := range map[string]bool{"it ends during the earlier one": false, "a reason has interrupted the earlier one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &overtaking{last: make(chan struct{})}
				ctx, stop := context.WithCancel(t.Context())
				p := &pilot.Presence{Server: server, Name: "m", Log: slog.New(slog.DiscardHandler)}
				ended := make(chan struct{})
				go func() { p.Run(ctx); close(ended) }()
				synctest.Wait()
				if tells {
					p.Tell("a worker waits for its start")
					synctest.Wait()
				}
				stop()
				<-ended
				if n := len(server.seen); n < 3 || !server.seen[0] || !server.seen[n-1] {
					t.Errorf("the server has seen %v, want a last check-in first, and again at the end", server.seen)
				}
			})
		})
	}
}
