package server

import (
	"net/http"

	"github.com/cl-slurm/cl-slurm/server/store"
)

// bundleActions kills bundles. A bundle without a worker is killed at once. For the others the
// server sends kill messages until the runs have ended (codalab/rest/bundle_actions.py:
// create_bundle_actions).
func (s *Server) bundleActions(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := readObjects(w, r)
	if err != nil {
		return err
	}
	type action struct {
		Type string `json:"type"`
		UUID string `json:"uuid"`
	}
	actions := make([]action, len(objects))
	for i, o := range objects { // check all before changing any
		if o.Decode(&actions[i]) != nil {
			return refuse(http.StatusBadRequest, "An action has a type and a uuid")
		}
		if actions[i].Type != "kill" {
			return refuse(http.StatusBadRequest, "Action '%s' is not supported by this server, only kill", actions[i].Type)
		}
		b, err := s.writable(r.Context(), u, actions[i].UUID)
		if err != nil {
			return err
		}
		if err := killable(b); err != nil {
			return err
		}
	}
	data := []any{}
	for _, a := range actions {
		_, err := s.Store.Change(r.Context(), a.UUID, func(b *store.Bundle) error {
			if err := killable(*b); err != nil {
				return err
			}
			requestKill(b)
			return nil
		})
		if err != nil {
			return err
		}
		s.changed(a.UUID)
		data = append(data, map[string]any{"type": "bundle-actions", "id": nil, "attributes": a})
	}
	return writeDocument(w, data, nil)
}

func killable(b store.Bundle) error {
	if b.State.Final() {
		return refuse(http.StatusBadRequest, "Cannot execute this action on a bundle that is in the following states: ready, failed, killed. "+
			"Kill action can be executed on bundles in created, uploading, staged, making, starting, running, preparing, or finalizing state.")
	}
	if b.Frozen != nil {
		return refuse(http.StatusForbidden, "Cannot mutate frozen bundle %s(%s).", b.UUID, b.Metadata.String("name"))
	}
	return nil
}
