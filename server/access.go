package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/server/store"
)

func permissionSpec(permission int) string {
	switch permission {
	case store.PermissionRead:
		return "read"
	case store.PermissionAll:
		return "all"
	}
	return "none"
}

// has returns a user's permission on an object: all for its owner and root, and for others what
// groups grant them (codalab/model/bundle_model.py: get_user_permissions).
func has(u store.User, ownerID string, granted int) int {
	if u.Root() || u.ID == ownerID {
		return store.PermissionAll
	}
	return granted
}

// bundlePermissions returns a user's permission on each of these bundles, by uuid.
func (s *Server) bundlePermissions(ctx context.Context, u store.User, bundles ...store.Bundle) (map[string]int, error) {
	if u.OnlyWorker != "" {
		return s.tokenPermissions(ctx, u, bundles)
	}
	if u.IsWorker {
		return s.workerPermissions(ctx, u, bundles)
	}
	owners := map[string]string{}
	for _, b := range bundles {
		owners[b.UUID] = b.OwnerID
	}
	return permissions(ctx, u, owners, s.Store.GrantedBundles)
}

// workerPermissions returns the permissions of a worker account: all on the runs that its workers
// have, and read on their inputs and on the runs that they had at their end.
func (s *Server) workerPermissions(ctx context.Context, u store.User, bundles []store.Bundle) (map[string]int, error) {
	have := make(map[string]int, len(bundles))
	var others []string
	for _, b := range bundles {
		switch {
		case b.Worker.User == u.ID && b.State.OnWorker():
			have[b.UUID] = store.PermissionAll
		case b.Worker.User == u.ID:
			have[b.UUID] = store.PermissionRead
		default:
			have[b.UUID] = store.PermissionNone
			others = append(others, b.UUID)
		}
	}
	inputs, err := s.Store.WorkerReads(ctx, u.ID, others)
	for _, uuid := range inputs {
		have[uuid] = store.PermissionRead
	}
	return have, err
}

// worksheetPermissions returns a user's permission on each of these worksheets, by uuid. A worker token has
// none.
func (s *Server) worksheetPermissions(ctx context.Context, u store.User, worksheets ...store.Worksheet) (map[string]int, error) {
	owners := map[string]string{}
	if u.OnlyWorker != "" {
		return map[string]int{}, nil
	}
	for _, w := range worksheets {
		owners[w.UUID] = w.OwnerID
	}
	return permissions(ctx, u, owners, s.Store.GrantedWorksheets)
}

// permissions returns a user's permissions on objects with these owners. It asks granted only
// about the objects on which neither root nor the owner asks.
func permissions(ctx context.Context, u store.User, owners map[string]string,
	granted func(context.Context, string, []string) (map[string]int, error),
) (map[string]int, error) {
	var others []string
	have := make(map[string]int, len(owners))
	for uuid, owner := range owners {
		have[uuid] = has(u, owner, store.PermissionNone)
		if have[uuid] == store.PermissionNone {
			others = append(others, uuid)
		}
	}
	if len(others) == 0 {
		return have, nil
	}
	found, err := granted(ctx, u.ID, others)
	if err != nil {
		return nil, err
	}
	for uuid, permission := range found {
		have[uuid] = permission
	}
	return have, nil
}

// forbidden is the refusal of a user without permission (codalab/objects/permission.py:
// _check_permissions).
func forbidden(u store.User, kind, uuid string, have, need int) error {
	return refuse(http.StatusForbidden, "User %s does not have sufficient permissions on %s %s (have %s, need %s).",
		spellUser(u), kind, uuid, permissionSpec(have), permissionSpec(need))
}

func spellUser(u store.User) string {
	if u.ID == "" {
		return "who has not signed in"
	}
	return u.Name + "(" + u.ID + ")"
}

// readable returns a bundle that the user may read.
func (s *Server) readable(ctx context.Context, u store.User, uuid string) (store.Bundle, error) {
	return s.permitted(ctx, u, uuid, store.PermissionRead)
}

// writable returns a bundle that the user may change.
func (s *Server) writable(ctx context.Context, u store.User, uuid string) (store.Bundle, error) {
	return s.permitted(ctx, u, uuid, store.PermissionAll)
}

// permitted returns a bundle on which the user has at least the permission need.
func (s *Server) permitted(ctx context.Context, u store.User, uuid string, need int) (store.Bundle, error) {
	b, err := s.Store.Bundle(ctx, uuid)
	if errors.Is(err, store.ErrNotFound) {
		return store.Bundle{}, refuse(http.StatusNotFound, "Could not find bundle with uuid %s", uuid)
	}
	if err != nil {
		return store.Bundle{}, err
	}
	permissions, err := s.bundlePermissions(ctx, u, b)
	if err != nil {
		return store.Bundle{}, err
	}
	if have := permissions[uuid]; have < need {
		return store.Bundle{}, forbidden(u, "bundle", uuid, have, need)
	}
	return b, nil
}

// openWorksheet returns a worksheet on which the user has at least the permission need, and the
// permission.
func (s *Server) openWorksheet(ctx context.Context, u store.User, uuid string, need int) (w store.Worksheet, have int, err error) {
	w, err = s.Store.Worksheet(ctx, uuid)
	if errors.Is(err, store.ErrNotFound) {
		return store.Worksheet{}, 0, refuse(http.StatusNotFound, "Could not find worksheet with uuid %s", uuid)
	}
	if err != nil {
		return store.Worksheet{}, 0, err
	}
	have, err = s.checkWorksheet(ctx, u, w, need)
	return w, have, err
}

// checkWorksheet returns a user's permission on a worksheet, and refuses one that is less than need.
func (s *Server) checkWorksheet(ctx context.Context, u store.User, w store.Worksheet, need int) (have int, err error) {
	permissions, err := s.worksheetPermissions(ctx, u, w)
	if err != nil {
		return 0, err
	}
	if have = permissions[w.UUID]; have < need {
		return 0, forbidden(u, "worksheet", w.UUID, have, need)
	}
	return have, nil
}

// changeable returns a worksheet that the user may change and that is not frozen.
func (s *Server) changeable(ctx context.Context, u store.User, uuid string) (store.Worksheet, error) {
	w, _, err := s.openWorksheet(ctx, u, uuid, store.PermissionAll)
	if err != nil {
		return store.Worksheet{}, err
	}
	return w, notFrozen(w)
}

func notFrozen(w store.Worksheet) error {
	if w.Frozen != nil {
		return refuse(http.StatusForbidden, "Cannot mutate frozen worksheet %s(%s).", w.UUID, w.Name)
	}
	return nil
}
