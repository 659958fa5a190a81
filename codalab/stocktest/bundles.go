package stocktest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// bundle is a bundle as the database has it.
type bundle struct {
	uuid, kind, owner, command string
	state                      codalab.State
	metadata                   codalab.Metadata
	dependencies               []codalab.Dependency
}

// set changes metadata; nil removes a key.
func (b *bundle) set(changes codalab.Metadata) {
	for k, v := range changes {
		if v == nil {
			delete(b.metadata, k)
		} else {
			b.metadata[k] = v
		}
	}
}

// bundle returns a bundle, nil if it does not exist; the caller holds the lock.
func (s *Server) bundle(uuid string) *bundle {
	for _, b := range s.bundles {
		if b.uuid == uuid {
			return b
		}
	}
	return nil
}

// runsIn returns the run bundles in a state; the caller holds the lock.
func (s *Server) runsIn(state codalab.State) []*bundle {
	var found []*bundle
	for _, b := range s.bundles {
		if b.kind == codalab.TypeRun && b.state == state {
			found = append(found, b)
		}
	}
	return found
}

// object returns the bundle as the server shows it to its owner (codalab/rest/util.py:
// get_bundle_infos); the caller holds the lock.
func (b *bundle) object() codalab.Object {
	o := codalab.NewObject("bundles", b.uuid, codalab.Bundle{
		UUID: b.uuid, Type: b.kind, Command: &b.command, State: b.state, Metadata: b.metadata,
		Dependencies: append([]codalab.Dependency{}, b.dependencies...), Permission: 2, PermissionSpec: "all",
	})
	o.Relationships = map[string]codalab.Relationship{"owner": codalab.ToOne("users", b.owner)}
	return o
}

// makeBundles is codalab/rest/bundles.py: _create_bundles.
func (s *Server) makeBundles(w http.ResponseWriter, _ *http.Request, u *account, in []codalab.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var made []codalab.Object
	for _, o := range in {
		b, err := s.makeBundle(o, u)
		if err != nil {
			return err
		}
		if b.kind != codalab.TypeRun {
			b.state = codalab.StateUploading
		}
		s.bundles = append(s.bundles, b)
		made = append(made, b.object())
	}
	return answerDocument(w, made)
}

func (s *Server) makeBundle(o codalab.Object, u *account) (*bundle, error) {
	var in codalab.Bundle
	if err := o.Decode(&in); err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if err := codalab.CheckMetadata(in.Type, in.Metadata, true); err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	b := &bundle{
		uuid: codalab.NewUUID(), kind: in.Type, owner: u.id, state: codalab.StateCreated,
		metadata: in.Metadata,
	}
	if in.Command != nil {
		b.command = *in.Command
	}
	for _, d := range in.Dependencies {
		d.ChildUUID, d.ParentName, d.ParentState = b.uuid, "", ""
		if parent := s.bundle(d.ParentUUID); parent != nil {
			d.ParentName = parent.metadata.String("name")
		}
		b.dependencies = append(b.dependencies, d)
	}
	b.metadata["created"] = time.Now().Unix()
	if b.kind == codalab.TypeRun {
		b.metadata["actions"], b.metadata["remote_history"] = []string{}, []string{}
	}
	return b, nil
}

func (s *Server) showBundle(w http.ResponseWriter, r *http.Request, u *account) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bundle(r.PathValue("uuid"))
	if !u.owns(b) { // of another user's bundle the original shows the UUID
		return refuse(http.StatusNotFound, "Bundle %s not found", r.PathValue("uuid"))
	}
	return answerDocument(w, b.object())
}

// changeBundles is codalab/rest/bundles.py: _update_bundles, but changes only metadata.
func (s *Server) changeBundles(w http.ResponseWriter, _ *http.Request, u *account, in []codalab.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changed []codalab.Object
	for _, o := range in {
		b, err := s.allowed(u, o.ID, "all")
		if err != nil {
			return err
		}
		var change struct {
			Metadata codalab.Metadata `json:"metadata"`
		}
		if err := o.Decode(&change); err != nil {
			return refuse(http.StatusBadRequest, "Invalid JSON")
		}
		b.set(change.Metadata)
		changed = append(changed, b.object())
	}
	return answerDocument(w, changed)
}

// actions is codalab/rest/bundle_actions.py: create_bundle_actions.
func (s *Server) actions(w http.ResponseWriter, _ *http.Request, u *account, in []codalab.Object) error {
	actions := make([]codalab.BundleAction, len(in))
	for i, o := range in {
		if json.Unmarshal(o.Attributes, &actions[i]) != nil || actions[i].Subpath != nil && strings.Contains(*actions[i].Subpath, "/") {
			return refuse(http.StatusBadRequest, "Invalid subpath")
		}
		if err := s.permit(u, actions[i].UUID, "all"); err != nil {
			return err
		}
	}
	for _, a := range actions {
		if err := s.applyAction(a); err != nil {
			return err
		}
	}
	return answerDocument(w, in)
}

func (s *Server) applyAction(a codalab.BundleAction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bundle(a.UUID)
	if b == nil || b.state.Final() {
		return refuse(http.StatusBadRequest, "Cannot execute this action on a bundle that is in the following states: ready, failed, killed. "+
			"Kill action can be executed on bundles in created, uploading, staged, making, starting, running, preparing, or finalizing state.")
	}
	word := string(a.Type)
	if a.Type == codalab.MessageWrite && a.Subpath != nil && a.String != nil {
		word += "\t" + *a.Subpath + "\t" + *a.String
	}
	actions := append(slices.Clone(b.metadata.Strings("actions")), word)
	if worker := s.runs[b.uuid]; worker != nil {
		s.mu.Unlock()
		delivered := s.send(worker.socket, a, relayTimeout)
		s.mu.Lock()
		if !delivered {
			return refuse(http.StatusInternalServerError, "Unable to reach worker.")
		}
	} else {
		// Any action kills a run that no worker has, a write too.
		b.state = codalab.StateKilled
	}
	b.set(codalab.Metadata{"actions": actions})
	return nil
}
