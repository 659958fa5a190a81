package sim

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// service is the server's API for one life of the bridge. Nothing calls the methods of the nil interface: a
// life drives check-ins itself, and no user reads files.
type service struct {
	bridge.BundleService
	*life
}

// StartBundle claims a bundle.
func (s service) StartBundle(_ context.Context, _, uuid string, in codalab.StartBundle) (bool, error) {
	srv := &s.w.server
	if s.crashes() {
		return false, errCrashed
	}
	if srv.isDown() {
		return false, errUnreachable
	}
	fails := s.w.fault(ClaimFails)
	switch {
	case !fails:
	case s.w.dice.coin(ClaimFails):
		return false, &codalab.Error{Status: http.StatusBadGateway, Message: "before"}
	case s.w.dice.below(ofServer, 2) == 0:
		return false, &codalab.Error{Status: http.StatusForbidden, Message: "not now"}
	}
	b := srv.bundleByID(uuid)
	if b == nil {
		return false, notFound(uuid)
	}
	accepted := srv.start(b, in)
	if accepted {
		s.w.checkClaim(b)
	}
	if fails {
		return false, &codalab.Error{Status: http.StatusBadGateway, Message: "after"}
	}
	if s.crashes() {
		return false, errCrashed
	}
	return accepted, nil
}

// start gives a bundle to the worker that claims it. CodaLab's own server checks only the assignment, not
// the state (codalab/model/bundle_model.py: transition_bundle_preparing).
func (s *server) start(b *bundle, in codalab.StartBundle) bool {
	if s.repeats {
		if b.state == codalab.StateStarting {
			s.enter(b, codalab.StatePreparing)
			b.status, b.remote, b.started = claimedStatus, in.Hostname, in.StartTime
		}
		return b.state.OnWorker()
	}
	if b.assigned {
		s.enter(b, codalab.StatePreparing)
		b.status, b.remote, b.started = claimedStatus, in.Hostname, in.StartTime
	}
	return b.assigned
}

// claimedStatus is the run_status of every claim.
const claimedStatus = "waits for its worker"

func notFound(uuid string) error {
	return &codalab.Error{Status: http.StatusNotFound, Message: "bundle " + uuid + " not found"}
}

// Standing returns a bundle's state.
func (s service) Standing(_ context.Context, uuid string) (codalab.Standing, error) {
	srv := &s.w.server
	if s.crashes() {
		return codalab.Standing{}, errCrashed
	}
	if srv.isDown() || s.w.fault(ConfirmFails) {
		return codalab.Standing{}, errUnreachable
	}
	b := srv.bundleByID(uuid)
	if b == nil {
		return codalab.Standing{}, notFound(uuid)
	}
	return codalab.Standing{Identity: b.identity(), State: b.state, RunStatus: b.status, Remote: b.remote, Started: b.started, UploadFailure: b.lost}, nil
}
