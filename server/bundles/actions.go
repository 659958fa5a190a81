package bundles

import (
	"context"
	"maps"
	"net/http"
	"regexp"
	"slices"
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
	actions, err := s.readActions(r.Context(), u, objects)
	if err != nil {
		return err
	}
	data, kills := []any{}, []string{}
	for _, a := range actions {
		data = append(data, map[string]any{"type": "bundle-actions", "id": nil, "attributes": a})
		if a.Type == codalab.MessageKill {
			kills = append(kills, a.UUID)
		} else if err := s.write(r.Context(), u, a); err != nil {
			return err
		}
	}
	if err := s.kill(r.Context(), u, kills); err != nil {
		return err
	}
	return rest.WriteDocument(w, data, nil)
}

// readActions reads the actions of a request. It checks all of them before one is done.
func (s *Bundles) readActions(ctx context.Context, u store.User, objects []codalab.Object) ([]codalab.BundleAction, error) {
	actions, uuids := make([]codalab.BundleAction, len(objects)), make([]string, len(objects))
	for i, o := range objects {
		if o.Decode(&actions[i]) != nil {
			return nil, rest.Refuse(http.StatusBadRequest, "An action has a type and a uuid")
		}
		if err := checkAction(actions[i]); err != nil {
			return nil, err
		}
		uuids[i] = actions[i].UUID
	}
	bundles, err := s.config.Access.AllWritable(ctx, u, uuids)
	if err != nil {
		return nil, err
	}
	for i, b := range bundles {
		if err := checkTakesActions(b); err != nil {
			return nil, err
		}
		if err := checkWrite(actions[i], u, b); err != nil {
			return nil, err
		}
	}
	return actions, nil
}

// write writes into a file of a running bundle.
func (s *Bundles) write(ctx context.Context, u store.User, a codalab.BundleAction) error {
	if err := s.config.Contents.Running.Write(ctx, a.UUID, *a.Subpath, *a.String); err != nil {
		return err
	}
	return s.inTurn(ctx, u, []string{a.UUID}, func(b *store.Bundle) error {
		b.Record(codalab.ActionWrote, codalab.EventDetails{File: *a.Subpath})
		b.Metadata["actions"] = append(b.Metadata.Strings("actions"), string(codalab.MessageWrite)+"\t"+*a.Subpath+"\t"+*a.String)
		return checkTextSize(b.Metadata, rest.Deref(b.Command))
	})
}

// kill kills bundles.
func (s *Bundles) kill(ctx context.Context, u store.User, uuids []string) error {
	slices.Sort(uuids)
	for some := range slices.Chunk(slices.Compact(uuids), changedInATurn) { // one that is named twice has ended by the first
		err := s.inTurn(ctx, u, some, func(b *store.Bundle) error {
			if err := checkTakesActions(*b); err != nil {
				return err
			}
			if b.KillMessage == "" {
				b.Record(codalab.ActionKilled, codalab.EventDetails{})
			}
			stored.Become(b, stored.Plan(*b).Kill())
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// changedInATurn is the number of bundles that a request changes in one turn of its user. Then others have theirs.
const changedInATurn = 50

// inTurn changes bundles when it is the user's turn.
func (s *Bundles) inTurn(ctx context.Context, u store.User, uuids []string, decide func(*store.Bundle) error) error {
	leave, err := s.config.TakeTurn(ctx, u)
	if err != nil {
		return err
	}
	defer leave()
	changed, err := s.config.Store.ChangeAll(ctx, uuids, decide)
	s.config.Changed(slices.Collect(maps.Keys(changed))...)
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
