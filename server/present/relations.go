package present

import (
	"context"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Relations are the objects of an answer, by id, to which relationships are added, and the related
// objects.
type Relations struct {
	Objects  map[string]codalab.Object
	Included []codalab.Object
}

// Add gives an object a relationship to others of one kind, and includes them.
func (r *Relations) Add(id, name, kind string, related []codalab.Object) {
	ids := make([]string, 0, len(related))
	for _, o := range related {
		ids = append(ids, o.ID)
	}
	r.Objects[id].Relationships[name] = codalab.ToMany(kind, ids)
	r.Included = append(r.Included, related...)
}

// AddPermissions adds the permissions of groups to objects, except those that hide their owner: a group
// may give the owner away.
func (r *Relations) AddPermissions(ctx context.Context, data *store.Store, kind store.Shared, u store.User, uuids []string) error {
	found, err := data.Permissions(ctx, kind, uuids)
	for _, uuid := range uuids {
		list := found[uuid]
		if string(r.Objects[uuid].Relationships["owner"].Data) == "null" {
			list = nil
		}
		r.Add(uuid, "group_permissions", string(kind)+"-permissions", shownPermissions(u, kind, list))
	}
	return err
}
