package pilot_test

import (
	"context"
	"log/slog"
	"net/http"
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

func (*reception) WorkerToken(context.Context, string, time.Duration) (string, error) { return "token", nil }

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
