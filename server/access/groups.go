package access

import (
	"context"
	"net/http"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Group returns the group with this uuid, beginning of a uuid, or name (codalab/objects/permission.py:
// unique_group).
func (a Access) Group(ctx context.Context, spec string) (store.Group, error) {
	found, err := a.Store.FindGroups(ctx, spec)
	how := "name"
	if codalab.IsUUID(spec) || codalab.IsUUIDPrefix(spec) {
		how = "uuid starting with"
	}
	switch {
	case err != nil:
		return store.Group{}, err
	case len(found) == 0:
		return store.Group{}, rest.Refuse(http.StatusNotFound, "Found no group with %s '%s'", how, spec)
	case len(found) > 1:
		return store.Group{}, rest.Refuse(http.StatusBadRequest, "Found multiple groups with %s '%s'", how, spec)
	}
	return found[0], nil
}

// Administered returns a group that the user may change: root, its owner and its admins may
// (codalab/rest/util.py: get_group_info).
func (a Access) Administered(ctx context.Context, u store.User, spec string) (store.Group, error) {
	g, err := a.Group(ctx, spec)
	if err != nil {
		return store.Group{}, err
	}
	if !g.UserDefined {
		return store.Group{}, rest.Refuse(http.StatusForbidden, "Cannot modify the public group %s.", spec)
	}
	if u.Root() || rest.Deref(g.OwnerID) == u.ID {
		return g, nil
	}
	members, err := a.Store.Members(ctx, []string{g.UUID})
	if err != nil {
		return store.Group{}, err
	}
	if !slices.ContainsFunc(members, func(m store.Member) bool { return m.UserID == u.ID && m.Admin }) {
		return store.Group{}, rest.Refuse(http.StatusForbidden, "You are not the admin of group %s.", spec)
	}
	return g, nil
}

// VisibleGroup returns the uuid of a group of the user, or of any group for root
// (codalab/rest/util.py: get_group_info).
func (a Access) VisibleGroup(ctx context.Context, u store.User, spec string) (string, error) {
	g, err := a.Group(ctx, spec)
	if err != nil || u.Root() || g.UUID == store.PublicGroup || u.ID != "" && rest.Deref(g.OwnerID) == u.ID {
		return g.UUID, err
	}
	members, err := a.Store.Members(ctx, []string{g.UUID})
	if err == nil && !slices.ContainsFunc(members, func(m store.Member) bool { return m.UserID == u.ID }) {
		err = rest.Refuse(http.StatusNotFound, "Found no group with name '%s'", spec)
	}
	return g.UUID, err
}
