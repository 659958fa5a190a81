package checkin

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// startBundle answers a worker that claims a run (codalab/rest/workers.py: start_bundle).
func (s *CheckIns) startBundle(w http.ResponseWriter, r *http.Request, u store.User) error {
	one := codalab.BundleStart{UUID: r.PathValue("uuid")}
	if err := rest.ReadJSON(w, r, &one.StartBundle); err != nil {
		return err
	}
	answers, err := s.claim(r.Context(), u, r.PathValue("worker"), []codalab.BundleStart{one})
	if err != nil {
		return err
	}
	if no := answers[0]; no.Status != 0 {
		return rest.Refuse(no.Status, "%s", no.Message)
	}
	return rest.WriteJSON(w, http.StatusOK, answers[0].Started)
}

// startBundles answers a worker that claims several runs. The refusal of one of them is no reason to refuse the others. After
// an error the worker may have some of them, and repeats the call, as it repeats a claim whose answer is lost.
func (s *CheckIns) startBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in codalab.StartBundles
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if len(in.Bundles) > codalab.MostStarts {
		return rest.Refuse(http.StatusRequestEntityTooLarge, "A worker may claim %d bundles at once", codalab.MostStarts)
	}
	named := make(map[string]bool, len(in.Bundles))
	for _, one := range in.Bundles {
		if named[one.UUID] {
			return rest.Refuse(http.StatusBadRequest, "Bundle %s is claimed twice", one.UUID)
		}
		named[one.UUID] = true
	}
	answers, err := s.claim(r.Context(), u, r.PathValue("worker"), in.Bundles)
	if err != nil {
		return err
	}
	return rest.WriteJSON(w, http.StatusOK, codalab.StartedBundles{Bundles: answers})
}

// claim gives runs, each named once, to their worker, and returns the answers in their order.
func (s *CheckIns) claim(ctx context.Context, u store.User, worker string, starts []codalab.BundleStart) ([]codalab.StartedBundle, error) {
	uuids := make([]string, len(starts))
	for i, one := range starts {
		uuids[i] = one.UUID
	}
	may, err := s.config.Access.Permissions(ctx, access.AnyWorker(u), uuids) // Claim asks whether the worker has it
	if err != nil {
		return nil, err
	}
	key := plan.Worker{User: u.ID, ID: worker}
	preemptible := s.config.Hub.LastCheckIn(key).Preemptible
	granted := map[string]bool{}
	var changes []store.BundleChange
	for _, one := range starts {
		if may[one.UUID] < store.PermissionAll {
			continue
		}
		changes = append(changes, store.BundleChange{UUID: one.UUID, Decide: func(b *store.Bundle) error {
			var next plan.Bundle
			next, granted[b.UUID] = stored.Plan(*b).Claim(key, one.StartBundle, preemptible)
			stored.Become(b, next)
			return nil
		}})
	}
	changed, err := s.config.Store.ChangeEach(ctx, changes)
	answers := make([]codalab.StartedBundle, 0, len(starts))
	var claimed []string
	for _, one := range starts {
		answer := codalab.StartedBundle{UUID: one.UUID}
		_, there := changed[one.UUID]
		switch {
		case there:
			answer.Started = granted[one.UUID]
		case may[one.UUID] == store.PermissionRead:
			answer.Status, answer.Message = http.StatusForbidden, "User does not have permission to run bundle."
		default: // one that the user may not read, as if it were deleted
			answer.Status, answer.Message = http.StatusNotFound, "Could not find bundle with uuid "+one.UUID
		}
		if answer.Started {
			claimed = append(claimed, one.UUID)
		}
		answers = append(answers, answer)
	}
	if len(claimed) > 0 {
		s.config.Changed(claimed...)
	}
	return answers, err
}
