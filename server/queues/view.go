package queues

import (
	"context"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// view has the workers as a user sees them. groups has the names of the user's groups, by uuid.
type view struct {
	user       store.User
	capacities []plan.Capacity
	groups     map[string]string
}

// shows reports whether the user may see a worker: it takes runs of the user, or the user is root.
func (v view) shows(c *plan.Capacity) bool {
	return v.user.Root() || c.Takes(&plan.Waiting{UUID: newRun, OwnerID: v.user.ID})
}

// users returns the users of a worker, as far as the user may know them: all of them for root and the worker's own user,
// and else the user and the user's groups.
func (v view) users(ctx context.Context, data *store.Store, c plan.Capacity) (codalab.QueueUsers, error) {
	if c.Serves.Everybody {
		return codalab.QueueUsers{Everybody: true}, nil
	}
	scopes, err := data.Scopes(ctx, c.Worker.User)
	if err != nil {
		return codalab.QueueUsers{}, err
	}
	ids, groups := []string{}, []string{}
	for _, scope := range scopes {
		if scope.GroupUUID != "" {
			groups = append(groups, scope.GroupUUID)
		} else {
			ids = append(ids, scope.OwnerID)
		}
	}
	if len(scopes) == 0 { // no worker account, which has no runs of its own
		ids = append(ids, c.Worker.User)
	}
	if c.Group != "" {
		groups = append(groups, c.Group)
	}
	if knowsAll := v.user.Root() || v.user.ID == c.Worker.User; !knowsAll {
		ids = slices.DeleteFunc(ids, func(id string) bool { return id != v.user.ID })
		groups = slices.DeleteFunc(groups, func(uuid string) bool { return v.groups[uuid] == "" })
	}
	return v.named(ctx, data, ids, groups, c)
}

// named returns users and groups by their names.
func (v view) named(ctx context.Context, data *store.Store, ids, groups []string, c plan.Capacity) (q codalab.QueueUsers, err error) {
	permitted := c.Group != "" && c.Worker.User != v.user.ID
	asked := ids
	if permitted {
		asked = append(slices.Clone(ids), c.Worker.User)
	}
	users, err := data.UsersByID(ctx, asked)
	if err != nil {
		return q, err
	}
	for _, id := range ids {
		q.Users = append(q.Users, users[id].Name)
	}
	if permitted {
		q.PermittedTo = users[c.Worker.User].Name
	}
	for _, uuid := range groups {
		name := v.groups[uuid]
		if name == "" { // root and a worker account need not be members
			if name, err = groupName(ctx, data, uuid); err != nil {
				return q, err
			}
		}
		q.Groups = append(q.Groups, name)
	}
	slices.Sort(q.Users)
	slices.Sort(q.Groups)
	q.Groups = slices.Compact(q.Groups)
	return q, nil
}

// groupName returns a group's name; its uuid if it is gone.
func groupName(ctx context.Context, data *store.Store, uuid string) (string, error) {
	found, err := data.FindGroups(ctx, uuid)
	if err != nil || len(found) == 0 {
		return uuid, err
	}
	return found[0].Name, nil
}
