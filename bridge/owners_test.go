package bridge_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// ownerService is a server whose offers do not name owners, as CodaLab's own. It knows user 1 as bob; with a status, it
// answers with that.
type ownerService struct {
	mu     sync.Mutex
	status int
	asked  int
}

func (s *ownerService) UserByID(_ context.Context, id string) (codalab.User, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.status != 0 {
		return codalab.User{}, &codalab.Error{Method: "GET", Path: "/users/" + id, Status: s.status, Message: "no"}
	}
	return codalab.User{ID: id, UserName: "bob"}, nil
}

func (s *ownerService) set(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// onStockServer starts a bridge whose server does not name owners in its offers. The site charges bob's jobs to nlp.
func (s *site) onStockServer(service *ownerService) {
	s.alter = func(b *bridge.Bridge) {
		b.Owners = service
		b.Policy.Map = []plan.Mapping{{Users: []string{"bob"}, Billing: plan.Billing{Account: "nlp"}}}
	}
	s.start()
}

func TestOwnersNameIsAskedOfAServerThatDoesNotTellItOnceForManyBundles(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		service := &ownerService{}
		s.onStockServer(service)
		for n := range 5 {
			s.offerWith(bundleID(n), "sleep 60", func(m *codalab.Message) { m.Bundle.Metadata = codalab.Metadata{"name": "train"} })
			s.phase(10*time.Second, bundleID(n), plan.Running)
		}
		for _, r := range s.rows() {
			if !strings.HasPrefix(string(r.SubmissionName), "cl-bob-train-") {
				t.Errorf("job %q", r.SubmissionName)
			}
		}
		if service.asked != 1 {
			t.Errorf("asked %d times", service.asked)
		}
	})
}

// The table may need the name, so a bundle is not claimed without it; but an owner whom the server has deleted has none.
func TestBundleIsNotClaimedWhileItsOwnersNameIsNotKnown(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		service := &ownerService{status: http.StatusBadGateway}
		s.onStockServer(service)
		s.offer(bundleID(1), "sleep 60")
		time.Sleep(5 * time.Second)
		if r := s.rows()[bundleID(1)]; r.Phase != plan.Claiming {
			t.Fatalf("%s: %s", r.Phase, r.Reason)
		}
		service.set(http.StatusNotFound)
		s.phase(2*time.Minute, bundleID(1), plan.Running)
		if r := s.rows()[bundleID(1)]; !strings.HasPrefix(string(r.SubmissionName), "cl-ann-") {
			t.Error(r.SubmissionName)
		}
	})
}
