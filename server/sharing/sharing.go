package sharing

import (
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Set sets permissions of groups on objects of a kind for a user, after check has accepted all of the objects.
func Set(w http.ResponseWriter, r *http.Request, a access.Access, u store.User, kind store.Shared, check func(uuids []string) error) error {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	wanted, uuids := make([]store.Permission, len(objects)), make([]string, len(objects))
	for i, o := range objects { // check all before setting any
		if wanted[i], err = requestedPermission(o, kind); err != nil {
			return err
		}
		uuids[i] = wanted[i].Object
	}
	if err := check(uuids); err != nil {
		return err
	}
	groups := map[string]store.Group{} // by their specs
	for i, p := range wanted {
		group, known := groups[p.GroupUUID]
		if !known {
			if group, err = a.Group(r.Context(), u, p.GroupUUID); err != nil {
				return err
			}
			groups[p.GroupUUID] = group
		}
		wanted[i].GroupUUID, wanted[i].GroupName = group.UUID, group.Name
	}
	if err := a.Store.SetPermissions(r.Context(), kind, wanted...); err != nil {
		return err
	}
	answer := []codalab.Object{}
	for _, p := range wanted {
		answer = append(answer, present.PermissionObject(kind, p))
	}
	return rest.WriteDocument(w, answer, nil)
}

// requestedPermission reads a request for a permission on an object of a kind.
func requestedPermission(o codalab.Object, kind store.Shared) (store.Permission, error) {
	var in codalab.PermissionEdit
	if o.Decode(&in) != nil {
		return store.Permission{}, rest.Refuse(http.StatusBadRequest, "permission must be 0, 1 or 2")
	}
	if in.Permission == nil {
		n, ok := codalab.ParsePermission(in.Spec)
		if !ok {
			return store.Permission{}, rest.Refuse(http.StatusBadRequest, "One of either permission or permission_spec must be provided.")
		}
		in.Permission = &n
	}
	if *in.Permission < store.PermissionNone || *in.Permission > store.PermissionAll {
		return store.Permission{}, rest.Refuse(http.StatusBadRequest, "permission must be 0, 1 or 2, not %d", *in.Permission)
	}
	object, objectErr := access.LinkedID(o, string(kind))
	group, groupErr := access.LinkedID(o, "group")
	return store.Permission{Object: object, GroupUUID: group, Permission: *in.Permission}, errors.Join(objectErr, groupErr)
}
