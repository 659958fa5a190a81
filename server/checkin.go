package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// checkIn takes what a worker reports and answers with what it is to do, at once or as soon as
// there is something, and with [null] when there was nothing for a while
// (codalab/rest/workers.py: checkin).
//
// A worker may check in again while a check-in is held. CodaLab's own server then gives its
// messages to the newer one and holds the older one to its end; this server ends the older one
// at once. Several messages may be in one answer.
func (s *Server) checkIn(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	var in codalab.CheckIn
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	key, runs := store.Worker{User: u.ID, ID: r.PathValue("worker")}, in.Runs
	p, changed := s.hub.arrive(key, in, s.Now())
	defer s.hub.leave(p)
	if changed {
		s.changed() // there may be room for a bundle that waits
	}
	messages, err := s.takeReports(ctx, p, runs)
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		if messages, err = s.hold(ctx, p); err != nil {
			return err
		}
	}
	if len(messages) == 0 {
		return writeJSON(w, http.StatusOK, []any{nil})
	}
	return writeJSON(w, http.StatusOK, messages)
}

// hold waits until a worker is to be told something, a newer check-in has come, or it has
// waited long enough.
func (s *Server) hold(ctx context.Context, p *poll) ([]codalab.Message, error) {
	timer := time.NewTimer(s.Hold)
	defer timer.Stop()
	for {
		messages, err := s.messages(ctx, p)
		if err != nil || len(messages) > 0 {
			return messages, err
		}
		select {
		case <-p.wake:
		case <-p.over:
			return nil, nil
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// messages turns what is due into messages. A run is looked up again, so that one that has
// been taken away meanwhile is not handed out.
func (s *Server) messages(ctx context.Context, p *poll) ([]codalab.Message, error) {
	duties, messages := s.hub.due(p, s.Now())
	var starting []string
	for _, d := range duties {
		if d.kind == codalab.MessageRun {
			starting = append(starting, d.uuid)
		} else {
			messages = append(messages, codalab.Message{Type: d.kind, UUID: d.uuid, KillMessage: d.message})
		}
	}
	if len(starting) == 0 {
		return messages, nil
	}
	bundles, err := s.store.Bundles(ctx, starting)
	if err != nil {
		return nil, err
	}
	for _, uuid := range starting {
		b, ok := bundles[uuid]
		if !ok || b.State != codalab.StateStarting || b.Worker != p.worker.key {
			continue
		}
		m := s.runMessage(b)
		if s.sharesDisk(p.worker.key) {
			if err := s.addPlaces(ctx, m.Bundle, b); err != nil {
				s.logError(ctx, "send bundle "+uuid+" to its worker", err)
				continue // it is sent again
			}
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// runMessage tells a worker to run a bundle (codalab/server/bundle_manager.py:
// _construct_run_message).
func (s *Server) runMessage(b store.Bundle) codalab.Message {
	deps := make([]codalab.RunDependency, 0, len(b.Dependencies))
	for _, d := range b.Dependencies {
		deps = append(deps, codalab.RunDependency{Dependency: d})
	}
	for key, value := range map[string]any{"exclude_patterns": []string{}, "store": ""} {
		if !b.Metadata.Has(key) { // the stock worker needs them
			b.Metadata[key] = value
		}
	}
	resources := s.resources(b)
	return codalab.Message{
		Type: codalab.MessageRun, Resources: &resources,
		Bundle: &codalab.RunBundle{
			UUID: b.UUID, Type: b.Type, OwnerID: b.OwnerID, Command: deref(b.Command), State: b.State,
			Frozen: b.Frozen, IsAnonymous: b.IsAnonymous, Metadata: b.Metadata, Args: commandLine(b), Dependencies: deps,
		},
	}
}

// startBundle answers a worker that asks whether a run is still its own, and notes that it has
// begun (codalab/rest/workers.py: start_bundle).
func (s *Server) startBundle(w http.ResponseWriter, r *http.Request, u store.User) error {
	uuid, key := r.PathValue("uuid"), store.Worker{User: u.ID, ID: r.PathValue("worker")}
	var start codalab.StartBundle
	if err := readJSON(w, r, &start); err != nil {
		return err
	}
	_, err := s.writable(r.Context(), u, uuid)
	var no *refusal
	if errors.As(err, &no) && no.status == http.StatusForbidden {
		return refuse(http.StatusForbidden, "User does not have permission to run bundle.")
	}
	if err != nil {
		return err
	}
	granted := false
	b, err := s.store.Change(r.Context(), uuid, func(b *store.Bundle) error {
		granted = claim(b, key, start, s.hub.preemptible(key))
		return nil
	})
	if err != nil {
		return err
	}
	if granted {
		s.changed(b.UUID)
	}
	return writeJSON(w, http.StatusOK, granted)
}
