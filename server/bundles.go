package server

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// bundle returns one bundle (codalab/rest/bundles.py: _fetch_bundle).
func (s *Server) bundle(w http.ResponseWriter, r *http.Request, u store.User) error {
	uuid := r.PathValue("uuid")
	b, err := s.readable(r.Context(), u, uuid)
	if hasStatus(err, http.StatusNotFound) {
		return refuse(http.StatusNotFound, "Bundle %s not found", uuid)
	}
	if err != nil {
		return err
	}
	objects, included, err := s.bundleObjects(r, u, []store.Bundle{b})
	if err != nil {
		return err
	}
	return writeDocument(w, objects[0], included)
}

// findBundles returns the bundles that the query's specs name, in their order
// (codalab/rest/bundles.py: _fetch_bundles).
func (s *Server) findBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	q := r.URL.Query()
	if len(q["specs"]) == 0 {
		return refuse(http.StatusBadRequest, "Searching bundles is not supported by this server yet; name them by specs=")
	}
	if q.Get("depth") != "" {
		return refuse(http.StatusBadRequest, "Descendants of bundles are not supported by this server yet")
	}
	var bundles []store.Bundle
	for _, spec := range q["specs"] {
		uuid, err := s.resolveBundle(r.Context(), u, q.Get("worksheet"), spec)
		if err != nil {
			return err
		}
		b, err := s.readable(r.Context(), u, uuid)
		if err != nil {
			return err
		}
		bundles = append(bundles, b)
	}
	return s.writeBundles(w, r, u, bundles)
}

// writeBundles answers with bundles, and the related objects that the query includes.
func (s *Server) writeBundles(w http.ResponseWriter, r *http.Request, u store.User, bundles []store.Bundle) error {
	objects, included, err := s.bundleObjects(r, u, bundles)
	if err != nil {
		return err
	}
	return writeDocument(w, objects, included)
}

// bundleObjects returns bundles, and the related objects that the query includes.
func (s *Server) bundleObjects(r *http.Request, u store.User, bundles []store.Bundle) (objects, included []codalab.Object, err error) {
	ctx := r.Context()
	include, err := includes(r.URL.Query(), "owner", "children", "group_permissions", "host_worksheets")
	if err != nil {
		return nil, nil, err
	}
	objects = []codalab.Object{}
	var owners []string
	for _, b := range bundles {
		o := bundleObject(u, b)
		if include["group_permissions"] {
			o.Relationships["group_permissions"] = codalab.ToMany("bundle-permissions", nil)
		}
		for _, rel := range []struct {
			name, kind string
			objects    func(context.Context, store.User, string) ([]codalab.Object, error)
		}{
			{"children", "bundles", s.childObjects}, {"host_worksheets", "worksheets", s.hostObjects},
		} {
			if !include[rel.name] {
				continue
			}
			list, err := rel.objects(ctx, u, b.UUID)
			if err != nil {
				return nil, nil, err
			}
			var ids []string
			for _, l := range list {
				ids = append(ids, l.ID)
			}
			o.Relationships[rel.name] = codalab.ToMany(rel.kind, ids)
			included = append(included, list...)
		}
		owners = append(owners, b.OwnerID)
		objects = append(objects, o)
	}
	if include["owner"] {
		users, err := s.userObjects(ctx, owners)
		if err != nil {
			return nil, nil, err
		}
		included = append(included, users...)
	}
	return objects, included, nil
}

// childObjects returns the names of a bundle's children that the user may read.
func (s *Server) childObjects(ctx context.Context, u store.User, uuid string) ([]codalab.Object, error) {
	uuids, err := s.Store.Children(ctx, uuid)
	if err != nil {
		return nil, err
	}
	children, err := s.Store.Bundles(ctx, uuids)
	if err != nil {
		return nil, err
	}
	var objects []codalab.Object
	for _, id := range uuids {
		b, ok := children[id]
		if !ok || bundlePermission(u, b.OwnerID) < permissionRead {
			continue
		}
		objects = append(objects, codalab.NewObject("bundles", id, map[string]any{
			"uuid": id, "metadata": map[string]string{"name": b.Metadata.String("name")},
		}))
	}
	return objects, nil
}

// hostObjects returns the names of the worksheets that show a bundle and that the user may
// read.
func (s *Server) hostObjects(ctx context.Context, u store.User, uuid string) ([]codalab.Object, error) {
	sheets, err := s.Store.HostWorksheets(ctx, uuid)
	if err != nil {
		return nil, err
	}
	var objects []codalab.Object
	for _, sheet := range sheets {
		if worksheetPermission(u, sheet) >= permissionRead {
			objects = append(objects, codalab.NewObject("worksheets", sheet.UUID, map[string]string{"uuid": sheet.UUID, "name": sheet.Name}))
		}
	}
	return objects, nil
}

// locations answers that contents are available only from this server
// (codalab/rest/bundles.py: _fetch_locations).
func (s *Server) locations(w http.ResponseWriter, r *http.Request, u store.User) error {
	if _, err := s.readable(r.Context(), u, r.PathValue("uuid")); err != nil {
		return err
	}
	return writeDocument(w, []string{}, nil)
}

// addLocation answers a client that asks whether it may upload to another store: it may not
// (codalab/rest/bundles.py: _add_bundle_location).
func (s *Server) addLocation(w http.ResponseWriter, r *http.Request, u store.User) error {
	uuid := r.PathValue("uuid")
	if _, err := s.writable(r.Context(), u, uuid); err != nil {
		return err
	}
	bypass, err := boolParam(r.URL.Query(), "need_bypass", false)
	if err != nil {
		return err
	}
	if !bypass {
		return refuse(http.StatusBadRequest, "Bundle stores are not supported by this server")
	}
	object := map[string]any{"type": "bundle_locations", "attributes": map[string]any{
		"bundle_uuid": uuid, "bundle_conn_str": nil, "index_conn_str": nil, "bundle_url": nil,
	}}
	return writeDocument(w, []any{object}, nil)
}
