package pilot

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// Survey is what is known of a manager's pilots and of the bundles that they cannot take.
type Survey struct {
	Pilots []Shown `json:"pilots"`
	// Staged counts the staged bundles. Misfits are those that no pilot of the manager's shape can take.
	Staged  int      `json:"staged"`
	Misfits []Misfit `json:"misfits"`
}

// Shown is a pilot, and what the server says of it.
type Shown struct {
	Name     string    `json:"name"`
	WorkerID string    `json:"worker_id"`
	Phase    Phase     `json:"phase"`
	Job      string    `json:"job"`
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Node     string    `json:"node"`
	Since    time.Time `json:"since,omitzero"`
	// Worker is nil if the server does not know the pilot, or not any more.
	Worker *client.WorkerInfo `json:"worker"`
}

// Misfit is a staged bundle that no pilot can take.
type Misfit struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Survey asks the backend and the server. It starts and changes nothing.
func (m *Manager) Survey(ctx context.Context) (Survey, error) {
	m.prepare()
	s := Survey{Pilots: []Shown{}, Misfits: []Misfit{}}
	pilots, err := m.Backend.Pilots(ctx)
	if err != nil {
		return s, err
	}
	if err := m.askServer(ctx); err != nil {
		return s, err
	}
	for _, p := range pilots {
		if p.Phase == Ended {
			continue
		}
		shown := Shown{
			Name: p.Name, WorkerID: WorkerID(p.Name), Phase: p.Phase, Job: p.Job, State: p.State, Reason: p.Reason, Node: p.Node, Since: p.Since,
		}
		if w, ok := m.workers[shown.WorkerID]; ok {
			shown.Worker = &w
			m.reached(ctx, &tracked{Pilot: p, reached: true}, w)
		}
		s.Pilots = append(s.Pilots, shown)
	}
	slices.SortFunc(s.Pilots, func(a, b Shown) int { return strings.Compare(a.Job+a.Name, b.Job+b.Name) })
	bundles, err := m.search(ctx)
	if err != nil {
		return s, err
	}
	s.Staged = len(bundles)
	shape := m.effective()
	for _, b := range bundles {
		if reason := shape.Misfit(b); reason != "" {
			s.Misfits = append(s.Misfits, Misfit{UUID: b.UUID, Name: b.Name, Reason: reason})
		}
	}
	return s, nil
}
