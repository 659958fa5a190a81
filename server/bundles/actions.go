package bundles

import (
	"context"
	"net/http"
	"regexp"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// checkAction returns an error for an action that no bundle allows.
func checkAction(a codalab.BundleAction) error {
	if a.Type == codalab.MessageKill {
		return nil
	}
	if a.Type != codalab.MessageWrite {
		return rest.Refuse(http.StatusBadRequest, "Unsupported bundle action '%s'", a.Type)
	}
	if a.Subpath == nil || a.String == nil {
		return rest.Refuse(http.StatusBadRequest, "A write action has a subpath and a string")
	}
	if !regexp.MustCompile(`^[a-zA-Z0-9_.-]*$`).MatchString(*a.Subpath) || strings.Trim(*a.Subpath, ".") == "" {
		return rest.Refuse(http.StatusBadRequest, "subpath must be the name of a file of letters, digits, '_', '.' and '-'")
	}
	return nil
}

// bundleActions kills bundles and writes files into running ones. A bundle without a worker is killed
// at once. For the others the server sends kill messages until the runs have ended
// (codalab/rest/bundle_actions.py: create_bundle_actions).
func (s *Bundles) bundleActions(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	actions := make([]codalab.BundleAction, len(objects))
	for i, o := range objects { // check all before doing any
		if o.Decode(&actions[i]) != nil {
			return rest.Refuse(http.StatusBadRequest, "An action has a type and a uuid")
		}
		if err := checkAction(actions[i]); err != nil {
			return err
		}
		b, err := s.config.Access.Writable(r.Context(), u, actions[i].UUID)
		if err != nil {
			return err
		}
		if err := checkTakesActions(b); err != nil {
			return err
		}
		if err := checkWrite(actions[i], u, b); err != nil {
			return err
		}
	}
	data := []any{}
	for _, a := range actions {
		if err := s.doAction(r.Context(), u, a); err != nil {
			return err
		}
		data = append(data, map[string]any{"type": "bundle-actions", "id": nil, "attributes": a})
	}
	return rest.WriteDocument(w, data, nil)
}

// doAction does one action of a request.
func (s *Bundles) doAction(ctx context.Context, u store.User, a codalab.BundleAction) error {
	if a.Type == codalab.MessageWrite {
		if err := s.config.Contents.Running.Write(ctx, a.UUID, *a.Subpath, *a.String); err != nil {
			return err
		}
	}
	leave, err := s.config.TakeTurn(ctx, u)
	if err != nil {
		return err
	}
	defer leave()
	_, err = s.config.Store.Change(ctx, a.UUID, func(b *store.Bundle) error {
		if a.Type == codalab.MessageWrite {
			b.Record(codalab.ActionWrote, codalab.EventDetails{File: *a.Subpath})
			b.Metadata["actions"] = append(b.Metadata.Strings("actions"), string(codalab.MessageWrite)+"\t"+*a.Subpath+"\t"+*a.String)
			return checkTextSize(b.Metadata, rest.Deref(b.Command))
		}
		if err := checkTakesActions(*b); err != nil {
			return err
		}
		if b.KillMessage == "" {
			b.Record(codalab.ActionKilled, codalab.EventDetails{})
		}
		stored.Become(b, stored.Plan(*b).Kill())
		return nil
	})
	if err == nil {
		s.config.Changed(a.UUID)
	}
	return err
}

// checkTakesActions refuses an action on a bundle that has ended or is frozen.
func checkTakesActions(b store.Bundle) error {
	if b.State.Final() {
		return rest.Refuse(http.StatusBadRequest, "Cannot execute this action on a bundle that is in the following states: ready, failed, killed. "+
			"Kill action can be executed on bundles in created, uploading, staged, making, starting, running, preparing, or finalizing state.")
	}
	return access.BundleNotFrozen(b)
}
