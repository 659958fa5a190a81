package queues

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/server/clientele"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Config has what Queues needs. All fields are required.
type Config struct {
	Log   *slog.Logger
	Now   func() time.Time
	Store *store.Store
	Hub   *hub.Hub
	Site  plan.Site
}

// Queues shows queues to users.
type Queues struct{ config Config }

// New returns Queues.
func New(c Config) *Queues { return &Queues{c} }

// Routes returns the routes for queues.
func (s *Queues) Routes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /queues", Serve: s.list, Differs: "only this server has it: the queues that take runs of the user, what one run can have at most in each, its load, and the time for which a new run probably waits; the user sees the names of groups and users that the user knows"},
	}
}

// list answers with the queues that serve a user; root sees all of them.
func (s *Queues) list(w http.ResponseWriter, r *http.Request, u store.User) error {
	v, err := s.viewOf(r.Context(), u)
	if err != nil {
		return err
	}
	shown := []codalab.Queue{}
	for _, q := range plan.Queues(v.capacities, v.shows) {
		one := q.Show(s.config.Site)
		if one.Serves, err = v.users(r.Context(), s.config.Store, q[0]); err != nil {
			return err
		}
		shown = append(shown, one)
	}
	return rest.WriteDocument(w, shown, nil)
}

// newRun stands for the uuid of a run that is not there yet.
const newRun = ""

// viewOf returns the workers as a user sees them. A worker for a group takes those runs of its members on which its user
// has all permissions. The view shows it to all members: new runs may have these permissions.
func (s *Queues) viewOf(ctx context.Context, u store.User) (view, error) {
	capacities := s.config.Hub.Capacities(s.config.Now())
	v := view{user: u, capacities: capacities, groups: map[string]string{}}
	groups, err := s.config.Store.Groups(ctx, u.ID)
	if err != nil {
		return v, err
	}
	for _, g := range groups {
		v.groups[g.UUID] = g.Name
	}
	none := func(map[string]bool) []string { return nil }
	if err := clientele.Fill(ctx, s.config.Store, capacities, none); err != nil {
		return v, err
	}
	for i, c := range capacities {
		if _, member := v.groups[c.Group]; member && !c.Serves.Everybody {
			capacities[i].Serves.Permitted = map[string]bool{newRun: true}
		}
	}
	return v, nil
}
