package present

import (
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// PermissionObject returns a group's permission on an object, as clients see it (codalab/rest/schemas.py:
// BundlePermissionSchema).
func PermissionObject(kind string, p store.Permission) codalab.Object {
	o := codalab.NewObject(kind, p.Object+"/"+p.GroupUUID, map[string]any{
		"group_name": p.GroupName, "permission": p.Permission, "permission_spec": access.PermissionSpec(p.Permission),
	})
	o.Relationships = map[string]codalab.Relationship{"group": codalab.ToOne("groups", p.GroupUUID)}
	return o
}

// ShownPermissions returns the permissions of groups that a user may see. One who has not signed in
// sees those of the group "public" (codalab/model/bundle_model.py: batch_get_group_permissions).
func ShownPermissions(u store.User, kind string, list []store.Permission) []codalab.Object {
	objects := []codalab.Object{}
	for _, p := range list {
		if u.ID != "" || p.GroupUUID == store.PublicGroup {
			objects = append(objects, PermissionObject(kind, p))
		}
	}
	return objects
}
