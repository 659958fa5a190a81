package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// permissionObject is what a group may do with an object, as clients see it (codalab/rest/schemas.py:
// BundlePermissionSchema).
func permissionObject(kind string, p store.Permission) codalab.Object {
	o := codalab.NewObject(kind, p.Object+"/"+p.GroupUUID, map[string]any{
		"group_name": p.GroupName, "permission": p.Permission, "permission_spec": access.PermissionSpec(p.Permission),
	})
	o.Relationships = map[string]codalab.Relationship{"group": codalab.ToOne("groups", p.GroupUUID)}
	return o
}

// shownPermissions returns the permissions of groups that a user may see. One who has not signed in
// sees those of the group "public" (codalab/model/bundle_model.py: batch_get_group_permissions).
func shownPermissions(u store.User, kind string, list []store.Permission) []codalab.Object {
	objects := []codalab.Object{}
	for _, p := range list {
		if u.ID != "" || p.GroupUUID == store.PublicGroup {
			objects = append(objects, permissionObject(kind, p))
		}
	}
	return objects
}

// addGroupPermissions adds what groups may do with each bundle.
func (s *Server) addGroupPermissions(ctx context.Context, u store.User, uuids []string, to *relations) error {
	found, err := s.Store.BundlePermissions(ctx, uuids)
	to.addPermissions(u, "bundle-permissions", uuids, found)
	return err
}

// addWorksheetPermissions adds what groups may do with each worksheet.
func (s *Server) addWorksheetPermissions(ctx context.Context, u store.User, uuids []string, to *relations) error {
	found, err := s.Store.WorksheetPermissions(ctx, uuids)
	to.addPermissions(u, "worksheet-permissions", uuids, found)
	return err
}

// addPermissions adds the permissions of groups to objects, except those that hide their owner: a group
// may tell who that is.
func (r *relations) addPermissions(u store.User, kind string, uuids []string, found map[string][]store.Permission) {
	for _, uuid := range uuids {
		list := found[uuid]
		if string(r.objects[uuid].Relationships["owner"].Data) == "null" {
			list = nil
		}
		r.add(uuid, "group_permissions", kind, shownPermissions(u, kind, list))
	}
}

// setBundlePermissions sets what groups may do with bundles (codalab/rest/bundles.py:
// set_bundle_permissions).
func (s *Server) setBundlePermissions(w http.ResponseWriter, r *http.Request, u store.User) error {
	return s.setPermissions(w, r, "bundle", func(ctx context.Context, uuid string) error {
		b, err := s.access.Writable(ctx, u, uuid)
		if err != nil {
			return err
		}
		return access.BundleNotFrozen(b)
	}, s.Store.SetBundlePermission)
}

// setWorksheetPermissions sets what groups may do with worksheets (codalab/rest/worksheets.py:
// set_worksheet_permissions).
func (s *Server) setWorksheetPermissions(w http.ResponseWriter, r *http.Request, u store.User) error {
	return s.setPermissions(w, r, "worksheet", func(ctx context.Context, uuid string) error {
		_, err := s.access.Changeable(ctx, u, uuid)
		return err
	}, s.Store.SetWorksheetPermission)
}

// setPermissions sets permissions of groups on objects of a kind, after check has accepted each
// object.
func (s *Server) setPermissions(w http.ResponseWriter, r *http.Request, kind string,
	check func(context.Context, string) error, set func(context.Context, store.Permission) error,
) error {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	var wanted []store.Permission
	for _, o := range objects { // check all before setting any
		p, err := requestedPermission(o, kind)
		if err == nil {
			err = check(r.Context(), p.Object)
		}
		if err != nil {
			return err
		}
		group, err := s.access.Group(r.Context(), p.GroupUUID)
		if err != nil {
			return err
		}
		p.GroupUUID, p.GroupName = group.UUID, group.Name
		wanted = append(wanted, p)
	}
	answer := []codalab.Object{}
	for _, p := range wanted {
		if err := set(r.Context(), p); err != nil {
			return err
		}
		answer = append(answer, permissionObject(kind+"-permissions", p))
	}
	return rest.WriteDocument(w, answer, nil)
}

// requestedPermission reads a request for a permission on an object of a kind.
func requestedPermission(o codalab.Object, kind string) (store.Permission, error) {
	var in struct {
		Permission *int   `json:"permission"`
		Spec       string `json:"permission_spec"`
	}
	if o.Decode(&in) != nil {
		return store.Permission{}, rest.Refuse(http.StatusBadRequest, "permission must be 0, 1 or 2")
	}
	if in.Permission == nil {
		n, ok := map[string]int{
			"n": store.PermissionNone, "none": store.PermissionNone, "r": store.PermissionRead, "read": store.PermissionRead,
			"a": store.PermissionAll, "all": store.PermissionAll,
		}[in.Spec]
		if !ok {
			return store.Permission{}, rest.Refuse(http.StatusBadRequest, "One of either permission or permission_spec must be provided.")
		}
		in.Permission = &n
	}
	if *in.Permission < store.PermissionNone || *in.Permission > store.PermissionAll {
		return store.Permission{}, rest.Refuse(http.StatusBadRequest, "permission must be 0, 1 or 2, not %d", *in.Permission)
	}
	object, objectErr := access.LinkedID(o, kind)
	group, groupErr := access.LinkedID(o, "group")
	return store.Permission{Object: object, GroupUUID: group, Permission: *in.Permission}, errors.Join(objectErr, groupErr)
}
