package bundles

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/sharing"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// edit is a client's change of a bundle.
type edit struct {
	codalab.BundleEdit
	owner string // empty to keep it
	root  bool   // root makes the change
	by    string // the id of the user who makes it
}

// patchBundles changes bundles. Metadata is merged key by key (codalab/rest/bundles.py:
// _update_bundles).
func (s *Bundles) patchBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	edits := make([]edit, len(objects))
	for i, o := range objects { // check all before changing any
		if o.Decode(&edits[i]) != nil {
			return rest.Refuse(http.StatusBadRequest, "A bundle's attributes have the wrong types")
		}
		b, err := s.config.Access.Writable(r.Context(), u, o.ID)
		if err != nil {
			return err
		}
		if edits[i].owner, err = s.config.Access.NewOwner(r.Context(), o); err != nil {
			return err
		}
		edits[i].root, edits[i].by = u.Root(), u.ID
		if err := edits[i].apply(&b); err != nil {
			return err
		}
	}
	var uuids []string
	for i, o := range objects {
		b, err := s.config.Store.Change(r.Context(), o.ID, edits[i].apply)
		if err != nil {
			return err
		}
		s.config.Changed(b.UUID)
		uuids = append(uuids, b.UUID)
	}
	return s.writeBundles(w, r, u, uuids)
}

// setPermissions sets the permissions of groups on bundles (codalab/rest/bundles.py: set_bundle_permissions).
func (s *Bundles) setPermissions(w http.ResponseWriter, r *http.Request, u store.User) error {
	return sharing.Set(w, r, s.config.Access, store.SharedBundle, func(uuid string) error {
		b, err := s.config.Access.Writable(r.Context(), u, uuid)
		if err != nil {
			return err
		}
		return access.BundleNotFrozen(b)
	})
}

// apply makes the change or refuses it.
func (e edit) apply(b *store.Bundle) error {
	freeze, thaw := len(e.Frozen) > 0 && string(e.Frozen) != "null", string(e.Frozen) == "null"
	if err := access.BundleNotFrozen(*b); err != nil && !thaw {
		return err
	}
	if freeze && !b.State.Final() {
		return rest.Refuse(http.StatusForbidden, "Cannot freeze bundle %s(%s), bundle is not in a final state.", b.UUID, b.Metadata.String("name"))
	}
	if err := codalab.CheckMetadata(b.Type, e.Metadata, false); err != nil {
		return rest.Refuse(http.StatusBadRequest, "%s", err)
	}
	if name, ok := e.Metadata["name"].(string); ok {
		if err := access.CheckName(name); err != nil {
			return err
		}
	}
	if err := e.checkUnfinished(*b); err != nil {
		return err
	}
	if err := e.checkSecrets(*b); err != nil {
		return err
	}
	changed := e.changedKeys(*b)
	maps.Copy(b.Metadata, e.Metadata)
	if err := checkTextSize(b.Metadata, rest.Deref(b.Command)); err != nil {
		return err
	}
	if e.Metadata.Has("data_size") { // clients cannot change the size
		b.Metadata["data_size"] = b.DataSize
	}
	if e.IsAnonymous != nil {
		b.IsAnonymous = *e.IsAnonymous
	}
	if len(changed) > 0 {
		b.Record(codalab.ActionEdited, codalab.EventDetails{Keys: changed})
	}
	if e.owner != "" {
		b.OwnerID = e.owner
	}
	if thaw && b.Frozen != nil {
		b.Frozen = nil
		b.Record(codalab.ActionThawed, codalab.EventDetails{})
	}
	if freeze {
		var at string
		if json.Unmarshal(e.Frozen, &at) != nil {
			return rest.Refuse(http.StatusBadRequest, "frozen must be a time or null")
		}
		b.Frozen = &at
		b.Record(codalab.ActionFroze, codalab.EventDetails{})
	}
	return nil
}

// changedKeys returns the keys that the change gives other values than a bundle has.
func (e edit) changedKeys(b store.Bundle) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
		was, err := json.Marshal(b.Metadata[key])
		is, err2 := json.Marshal(e.Metadata[key])
		if err != nil || err2 != nil || !bytes.Equal(was, is) || !b.Metadata.Has(key) {
			keys = append(keys, key)
		}
	}
	if e.IsAnonymous != nil && *e.IsAnonymous != b.IsAnonymous {
		keys = append(keys, "is_anonymous")
	}
	return keys
}

// checkUnfinished refuses changes of a bundle that has not ended which others would have to pay for: its
// command would run as that of another owner, a worker would be counted as fuller or emptier than it
// is, or the owner's time as less than it was.
func (e edit) checkUnfinished(b store.Bundle) error {
	if b.State.Final() || e.root {
		return nil
	}
	if e.owner != "" && e.owner != b.OwnerID {
		return rest.Refuse(http.StatusForbidden, "Bundle %s has not ended: only root can change its owner now.", b.UUID)
	}
	for _, key := range codalab.MetadataKeys(b.Type) {
		kept := key.Generated && key.Key != "failure_message" || b.State.OnWorker() && strings.HasPrefix(key.Key, "request_")
		if kept && e.Metadata.Has(key.Key) {
			return rest.Refuse(http.StatusForbidden, "Metadata key %s cannot be changed while bundle %s is %s.", key.Key, b.UUID, b.State)
		}
	}
	return nil
}
