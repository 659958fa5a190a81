package present

import (
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// GroupPermission returns a group's permission on an object as clients see it.
func GroupPermission(p store.Permission) codalab.GroupPermission {
	return codalab.GroupPermission{
		GroupID: p.GroupUUID, GroupName: p.GroupName, Permission: p.Permission, PermissionSpec: codalab.PermissionSpec(p.Permission),
	}
}

// PermissionObject returns a group's permission on an object, as clients see it (codalab/rest/schemas.py:
// BundlePermissionSchema).
func PermissionObject(kind store.Shared, p store.Permission) codalab.Object {
	o := codalab.NewObject(string(kind)+"-permissions", p.Object+"/"+p.GroupUUID, GroupPermission(p))
	o.Relationships = map[string]codalab.Relationship{"group": codalab.ToOne("groups", p.GroupUUID)}
	return o
}

// shownPermissions returns the permissions of groups that a user may see. One who has not signed in
// sees those of the group "public" (codalab/model/bundle_model.py: batch_get_group_permissions).
func shownPermissions(u store.User, kind store.Shared, list []store.Permission) []codalab.Object {
	objects := []codalab.Object{}
	for _, p := range list {
		if u.ID != "" || p.GroupUUID == store.PublicGroup {
			objects = append(objects, PermissionObject(kind, p))
		}
	}
	return objects
}
