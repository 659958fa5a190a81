package pilot

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Survey is the state of a manager's pilots, and of the bundles that they cannot take.
type Survey struct {
	Pilots []Shown `json:"pilots"`
	// Staged counts the staged bundles. Misfits are those that no pilot of the manager's shape can take.
	Staged  int      `json:"staged"`
	Misfits []Misfit `json:"misfits"`
}

// Shown is a pilot with the server's information about it.
type Shown struct {
	Name     string    `json:"name"`
	WorkerID string    `json:"worker_id"`
	Phase    Phase     `json:"phase"`
	Job      string    `json:"job"`
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Node     string    `json:"node"`
	Since    time.Time `json:"since,omitzero"`
	// Worker is nil if the server does not know the pilot, or no longer knows it.
	Worker *codalab.WorkerInfo `json:"worker"`
}

// Misfit is a staged bundle that no pilot can take.
type Misfit struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Survey asks the backend and the server. It starts and changes nothing. If only the server does not answer,
// it returns the pilots as the backend shows them, and the error; so it does if only the nodes cannot be read. If the
// backend does not answer, Pilots is nil.
func (m *Manager) Survey(ctx context.Context) (Survey, error) {
	m.prepare()
	pilots, err := m.Backend.Pilots(ctx)
	if err != nil {
		return Survey{}, err
	}
	pilots = slices.DeleteFunc(pilots, func(p Pilot) bool { return p.Phase == Ended })
	var unlocated error
	if l, ok := m.Backend.(Locator); ok {
		unlocated = l.Locate(ctx, pilots)
	}
	s := Survey{Pilots: []Shown{}, Misfits: []Misfit{}}
	for _, p := range pilots {
		s.Pilots = append(s.Pilots, Shown{
			Name: p.Name, WorkerID: WorkerID(p.Name), Phase: p.Phase, Job: p.Job, State: p.State, Reason: cmp.Or(p.Trouble, p.Reason), Node: p.Node, Since: p.Since,
		})
	}
	slices.SortFunc(s.Pilots, func(a, b Shown) int { return strings.Compare(a.Job+a.Name, b.Job+b.Name) })
	if err := m.askServer(ctx); err != nil {
		return s, errors.Join(unlocated, err)
	}
	for i := range s.Pilots {
		if w, ok := m.workers[s.Pilots[i].WorkerID]; ok {
			s.Pilots[i].Worker = &w
			m.noteCapacity(w)
		}
	}
	bundles, err := m.search(ctx)
	if err != nil {
		return s, errors.Join(unlocated, err)
	}
	s.Staged = len(bundles)
	shape := m.effective()
	for _, b := range bundles {
		if reason := shape.Misfit(b); reason != "" {
			s.Misfits = append(s.Misfits, Misfit{UUID: b.UUID, Name: b.Name, Reason: reason})
		}
	}
	return s, unlocated
}
