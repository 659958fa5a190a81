// Package clientele finds the users whose runs workers take (plan.Clientele). It reads the scopes of worker accounts, the
// members of groups, and the permissions of the workers' users.
package clientele

import (
	"context"

	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Fill fills in the Serves of capacities. A worker for a group takes single runs of its members: runsOf returns the uuids
// of the runs in question of these users, by id; members is nil for those of all users.
func Fill(ctx context.Context, data *store.Store, capacities []plan.Capacity, runsOf func(members map[string]bool) []string) error {
	f := finder{store: data, runsOf: runsOf, found: map[[2]string]plan.Clientele{}}
	for i := range capacities {
		c := &capacities[i]
		var err error
		if c.Serves, err = f.of(ctx, c.Worker.User, c.Group); err != nil {
			return err
		}
	}
	return nil
}

// finder finds the clientele of workers, once for all workers of a user and a group.
type finder struct {
	store  *store.Store
	runsOf func(members map[string]bool) []string
	found  map[[2]string]plan.Clientele // by user and group
}

// of returns the clientele of a user's worker that serves a group; an empty group is none.
func (f finder) of(ctx context.Context, userID, group string) (plan.Clientele, error) {
	key := [2]string{userID, group}
	if known, ok := f.found[key]; ok {
		return known, nil
	}
	one := plan.Clientele{Everybody: userID == store.RootID, Owners: map[string]bool{}}
	scopes, err := f.store.Scopes(ctx, userID)
	if err != nil {
		return one, err
	}
	var groups []string
	for _, scope := range scopes {
		switch {
		case scope.GroupUUID != "":
			groups = append(groups, scope.GroupUUID)
		case scope.OwnerID != "":
			one.Owners[scope.OwnerID] = true
		default:
			one.Everybody = true
		}
	}
	members, err := f.store.Members(ctx, groups)
	if err != nil {
		return one, err
	}
	for _, m := range members {
		one.Owners[m.UserID] = true
	}
	if group != "" && !one.Everybody {
		one.Members, one.Permitted, err = f.permitted(ctx, userID, group)
	}
	f.found[key] = one
	return one, err
}

// permitted returns the members of a group, and those of their runs on which a user has all permissions.
func (f finder) permitted(ctx context.Context, userID, group string) (members, permitted map[string]bool, err error) {
	if group != store.PublicGroup {
		list, err := f.store.Members(ctx, []string{group})
		if err != nil {
			return nil, nil, err
		}
		members = map[string]bool{}
		for _, m := range list {
			members[m.UserID] = true
		}
	}
	granted, err := f.store.Granted(ctx, store.SharedBundle, userID, f.runsOf(members))
	permitted = map[string]bool{}
	for uuid, permission := range granted {
		permitted[uuid] = permission == store.PermissionAll
	}
	return members, permitted, err
}
