package checkin

import (
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// energy notes the energy of runs, which their worker may learn after it has reported their ends. As with reports, other
// workers' runs are ignored.
func (s *CheckIns) energy(w http.ResponseWriter, r *http.Request, u store.User) error {
	key := plan.Worker{User: u.ID, ID: r.PathValue("worker")}
	var in codalab.EnergyReport
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if len(in.Runs) > codalab.MostEnergyRuns {
		return rest.Refuse(http.StatusRequestEntityTooLarge, "A worker may tell the energy of %d runs at once", codalab.MostEnergyRuns)
	}
	joules, uuids := map[string]int64{}, make([]string, 0, len(in.Runs))
	for _, run := range in.Runs {
		if _, twice := joules[run.UUID]; !twice {
			uuids = append(uuids, run.UUID)
		}
		joules[run.UUID] = run.Joules
	}
	_, err := s.config.Store.ChangeAll(r.Context(), uuids, func(b *store.Bundle) error {
		if plan.Worker(b.Worker) == key {
			stored.Become(b, stored.Plan(*b).NoteEnergy(joules[b.UUID]))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return rest.WriteJSON(w, http.StatusOK, struct{}{})
}
