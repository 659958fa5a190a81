package azurebatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch/batchtest"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

// suite is a site for the suite of all backends. Its workers are functions of the test.
type suite struct {
	*site

	mu     sync.Mutex
	finish map[string]chan struct{} // by the name of a pilot that runs
}

func (s *suite) Open(manager string) pilot.Backend {
	return s.open(s.t, manager)
}

func (s *suite) LoseAnswer() { s.LoseAnswers(1) }

func (s *suite) Vanish(_ *testing.T, name string) { s.Service.Vanish(name) }

func (s *suite) Finish(_ *testing.T, name string) { close(s.end(name)) }

// OpenTroubled returns a backend whose account has no quota, some minutes later.
func (s *suite) OpenTroubled(manager string) (b pilot.Backend, words string) {
	s.RemoveNodes()
	s.SetPool(map[string]any{"targetDedicatedNodes": 4, "resizeErrors": []map[string]any{{"code": "AccountCoreQuotaReached", "message": "The specified account has reached core quota"}}})
	c := s.open(s.t, manager)
	c.Now = func() time.Time { return time.Now().Add(5 * time.Minute) }
	return c, "AccountCoreQuotaReached: The specified account has reached core quota"
}

func (s *suite) end(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finish[name] == nil {
		s.finish[name] = make(chan struct{})
	}
	return s.finish[name]
}

func (s *suite) work(ctx context.Context, r batchtest.Run) int {
	for _, variable := range r.Env {
		if token, ok := strings.CutPrefix(variable, "CODALAB_WORKER_TOKEN="); ok {
			_, _ = fmt.Fprintln(r.Stderr, pilottest.HasToken+token)
		}
	}
	_, _ = fmt.Fprintln(r.Stderr, pilottest.Begun)
	select {
	case <-s.end(r.ID):
	case <-ctx.Done():
	}
	_, _ = fmt.Fprintln(r.Stderr, pilottest.Done)
	return 0
}

func TestBackendKeepsThePromisesOfAll(t *testing.T) {
	t.Parallel()
	pilottest.Run(t, func(t *testing.T) pilottest.Site {
		t.Helper()
		s := &suite{site: newSite(t, 4), finish: map[string]chan struct{}{}}
		s.t, s.PageSize, s.Execute = t, pilottest.PageSize, s.work
		return s
	})
}
