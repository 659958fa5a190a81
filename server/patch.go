package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// edit is a client's change of a bundle. Absent fields stay as they are.
type edit struct {
	Metadata    codalab.Metadata `json:"metadata"`
	Frozen      json.RawMessage  `json:"frozen"`
	IsAnonymous *bool            `json:"is_anonymous"`
	owner       string           // empty to keep it
}

// patchBundles changes bundles. Metadata is merged key by key (codalab/rest/bundles.py:
// _update_bundles).
func (s *Server) patchBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := readObjects(w, r)
	if err != nil {
		return err
	}
	edits := make([]edit, len(objects))
	for i, o := range objects { // check all before changing any
		if o.Decode(&edits[i]) != nil {
			return refuse(http.StatusBadRequest, "A bundle's attributes have the wrong types")
		}
		b, err := s.writable(r.Context(), u, o.ID)
		if err != nil {
			return err
		}
		if edits[i].owner, err = s.newOwner(r.Context(), o); err != nil {
			return err
		}
		if err := edits[i].apply(&b); err != nil {
			return err
		}
	}
	var uuids []string
	for i, o := range objects {
		b, err := s.Store.Change(r.Context(), o.ID, edits[i].apply)
		if err != nil {
			return err
		}
		s.changed(b.UUID)
		uuids = append(uuids, b.UUID)
	}
	return s.writeBundles(w, r, u, uuids)
}

// newOwner returns the id of the owner that a client gives an object; empty if the request names
// none.
func (s *Server) newOwner(ctx context.Context, o codalab.Object) (string, error) {
	if rel, ok := o.Relationships["owner"]; !ok || string(rel.Data) == "null" {
		return "", nil
	}
	id, err := linkedID(o, "owner")
	if err != nil {
		return "", err
	}
	u, err := s.Store.User(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return "", refuse(http.StatusNotFound, "User %s not found", id)
	}
	return u.ID, err
}

// apply makes the change or refuses it.
func (e edit) apply(b *store.Bundle) error {
	freeze, thaw := len(e.Frozen) > 0 && string(e.Frozen) != "null", string(e.Frozen) == "null"
	if err := bundleNotFrozen(*b); err != nil && !thaw {
		return err
	}
	if freeze && !b.State.Final() {
		return refuse(http.StatusForbidden, "Cannot freeze bundle %s(%s), bundle is not in a final state.", b.UUID, b.Metadata.String("name"))
	}
	if err := codalab.CheckMetadata(b.Type, e.Metadata, false); err != nil {
		return refuse(http.StatusBadRequest, "%s", err)
	}
	if name, ok := e.Metadata["name"].(string); ok {
		if err := checkName(name); err != nil {
			return err
		}
	}
	for key, value := range e.Metadata {
		b.Metadata[key] = value
	}
	if e.Metadata.Has("data_size") { // clients cannot change the size
		b.SetDataSize(b.DataSize)
	}
	if e.IsAnonymous != nil {
		b.IsAnonymous = *e.IsAnonymous
	}
	if e.owner != "" {
		b.OwnerID = e.owner
	}
	if thaw {
		b.Frozen = nil
	}
	if freeze {
		var at string
		if json.Unmarshal(e.Frozen, &at) != nil {
			return refuse(http.StatusBadRequest, "frozen must be a time or null")
		}
		b.Frozen = &at
	}
	return nil
}

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
	return bundleNotFrozen(b)
}

func bundleNotFrozen(b store.Bundle) error {
	if b.Frozen != nil {
		return refuse(http.StatusForbidden, "Cannot mutate frozen bundle %s(%s).", b.UUID, b.Metadata.String("name"))
	}
	return nil
}
