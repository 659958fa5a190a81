package access

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Group returns the group with this name or uuid, or the user's group with this beginning of a uuid. It is any group,
// so that users can share with groups of which they are no members (codalab/objects/permission.py: unique_group).
func (a Access) Group(ctx context.Context, u store.User, spec string) (store.Group, error) {
	found, err := a.Store.FindGroups(ctx, spec)
	if codalab.IsUUIDPrefix(spec) && !u.Root() { // a beginning tells nothing of others' groups
		found, err = a.ownGroups(ctx, u)
		found = slices.DeleteFunc(found, func(g store.Group) bool { return !strings.HasPrefix(g.UUID, spec) })
	}
	switch {
	case err != nil:
		return store.Group{}, err
	case len(found) == 0:
		return store.Group{}, noGroup(spec)
	case len(found) > 1:
		return store.Group{}, rest.Refuse(http.StatusBadRequest, "Found multiple groups with %s '%s'", howNamed(spec), spec)
	}
	return found[0], nil
}

// ownGroups returns the groups of a user; none of one who has not signed in.
func (a Access) ownGroups(ctx context.Context, u store.User) ([]store.Group, error) {
	if u.ID == "" {
		return nil, nil
	}
	return a.Store.Groups(ctx, u.ID)
}

func noGroup(spec string) error {
	return rest.Refuse(http.StatusNotFound, "Found no group with %s '%s'", howNamed(spec), spec)
}

func howNamed(spec string) string {
	if codalab.IsUUID(spec) || codalab.IsUUIDPrefix(spec) {
		return "uuid starting with"
	}
	return "name"
}

// Administered returns a group that the user may change: root, its owner and its admins may
// (codalab/rest/util.py: get_group_info).
func (a Access) Administered(ctx context.Context, u store.User, spec string) (store.Group, error) {
	g, err := a.Group(ctx, u, spec)
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
	g, err := a.Group(ctx, u, spec)
	if err != nil || g.UUID == store.PublicGroup {
		return g.UUID, err
	}
	own, err := a.SeesMembers(ctx, u, g)
	if err == nil && !own {
		err = noGroup(spec)
	}
	return g.UUID, err
}

// SeesMembers reports whether a user sees the members of a group: its members and its owner do, and root.
func (a Access) SeesMembers(ctx context.Context, u store.User, g store.Group) (bool, error) {
	if u.Root() || u.ID != "" && rest.Deref(g.OwnerID) == u.ID {
		return true, nil
	}
	members, err := a.Store.Members(ctx, []string{g.UUID})
	return slices.ContainsFunc(members, func(m store.Member) bool { return m.UserID == u.ID }), err
}
