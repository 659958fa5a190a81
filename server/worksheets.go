package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// worksheetAttributes is a worksheet as clients see it (codalab/rest/schemas.py:
// WorksheetSchema).
type worksheetAttributes struct {
	UUID             string   `json:"uuid"`
	Name             string   `json:"name"`
	Title            *string  `json:"title"`
	Frozen           *string  `json:"frozen"`
	IsAnonymous      bool     `json:"is_anonymous"`
	DateCreated      string   `json:"date_created"`
	DateLastModified string   `json:"date_last_modified"`
	Tags             []string `json:"tags"`
	LastItemID       *int64   `json:"last_item_id"`
	Permission       *int     `json:"permission,omitempty"`
	PermissionSpec   string   `json:"permission_spec,omitempty"`
}

// isoTime is a time as Python's isoformat writes it.
func isoTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05+00:00") }

func worksheetObject(w store.Worksheet, permission *int, items []store.Item) codalab.Object {
	a := worksheetAttributes{
		UUID: w.UUID, Name: w.Name, Title: w.Title, Frozen: w.Frozen, IsAnonymous: w.IsAnonymous,
		DateCreated: isoTime(w.Created.Time), DateLastModified: isoTime(w.Modified.Time), Tags: w.Tags(),
		Permission: permission,
	}
	if permission != nil {
		a.PermissionSpec = permissionSpec(*permission)
	}
	var ids []string
	for _, item := range items {
		ids = append(ids, strconv.FormatInt(item.ID, 10))
		a.LastItemID = &item.ID
	}
	o := codalab.NewObject("worksheets", w.UUID, a)
	o.Relationships = map[string]codalab.Relationship{
		"owner": codalab.ToOne("users", w.OwnerID), "items": codalab.ToMany("worksheet-items", ids),
	}
	return o
}

// findWorksheets returns the worksheets that the query's specs name
// (codalab/rest/worksheets.py: fetch_worksheets).
func (s *Server) findWorksheets(w http.ResponseWriter, r *http.Request, u store.User) error {
	q := r.URL.Query()
	if len(q["specs"]) == 0 {
		return refuse(http.StatusBadRequest, "Searching worksheets is not supported by this server yet; name them by specs=")
	}
	objects := []codalab.Object{}
	for _, spec := range q["specs"] {
		found, err := s.resolveWorksheet(r.Context(), u, spec)
		if err != nil {
			return err
		}
		objects = append(objects, worksheetObject(found, nil, nil))
	}
	return writeDocument(w, objects, nil)
}

// createWorksheets creates worksheets that everybody may read (codalab/rest/worksheets.py:
// create_worksheets).
func (s *Server) createWorksheets(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := readObjects(w, r)
	if err != nil {
		return err
	}
	created := []codalab.Object{}
	for _, o := range objects {
		var in struct {
			Name string `json:"name"`
		}
		if o.Decode(&in) != nil {
			return refuse(http.StatusBadRequest, "A worksheet's name must be a text")
		}
		if err := checkName(in.Name); err != nil {
			return err
		}
		if owner, ok := strings.CutPrefix(in.Name, homePrefix); ok && owner != "" && owner != u.Name {
			return refuse(http.StatusBadRequest, "Cannot create worksheet with name %s; only its user can", in.Name)
		}
		now := store.Time{Time: s.Now()}
		sheet := store.Worksheet{UUID: codalab.NewUUID(), Name: in.Name, OwnerID: u.ID, Public: permissionRead, TagsJSON: "[]", Created: now, Modified: now}
		err := s.Store.AddWorksheet(r.Context(), sheet)
		if errors.Is(err, store.ErrExists) {
			return refuse(http.StatusBadRequest, "Worksheet with name %s already exists", in.Name)
		}
		if err != nil {
			return err
		}
		created = append(created, worksheetObject(sheet, nil, nil))
	}
	return writeDocument(w, created, nil)
}

// worksheet returns one worksheet, and the related objects that the query includes
// (codalab/rest/worksheets.py: fetch_worksheet).
func (s *Server) worksheet(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	include, err := includes(r.URL.Query(), "owner", "group_permissions", "items", "items.bundle", "items.bundle.owner", "items.subworksheet")
	if err != nil {
		return err
	}
	sheet, err := s.openWorksheet(ctx, u, r.PathValue("uuid"), permissionRead)
	if err != nil {
		return err
	}
	var items []store.Item
	if include["items"] {
		if items, err = s.Store.Items(ctx, sheet.UUID); err != nil {
			return err
		}
	}
	permission := worksheetPermission(u, sheet)
	object := worksheetObject(sheet, &permission, items)
	if include["group_permissions"] {
		object.Relationships["group_permissions"] = codalab.ToMany("worksheet-permissions", nil)
	}
	included := itemObjects(items)
	owners := []string{}
	if include["owner"] {
		owners = append(owners, sheet.OwnerID)
	}
	if include["items.bundle"] {
		bundles, bundleOwners, err := s.itemBundles(ctx, u, items)
		if err != nil {
			return err
		}
		included = append(included, bundles...)
		if include["items.bundle.owner"] {
			owners = append(owners, bundleOwners...)
		}
	}
	users, err := s.userObjects(ctx, owners)
	if err != nil {
		return err
	}
	return writeDocument(w, object, append(included, users...))
}

func itemObjects(items []store.Item) []codalab.Object {
	var objects []codalab.Object
	for _, item := range items {
		o := codalab.NewObject("worksheet-items", strconv.FormatInt(item.ID, 10), map[string]any{
			"value": item.Value, "type": item.Type, "sort_key": item.SortKey,
		})
		o.Relationships = map[string]codalab.Relationship{
			"worksheet":    codalab.ToOne("worksheets", item.WorksheetUUID),
			"bundle":       codalab.ToOne("bundles", deref(item.BundleUUID)),
			"subworksheet": codalab.ToOne("worksheets", deref(item.Subworksheet)),
		}
		objects = append(objects, o)
	}
	return objects
}

// itemBundles returns the bundles of a worksheet's items, and their owners. A bundle that the
// user may not read appears as a private one.
func (s *Server) itemBundles(ctx context.Context, u store.User, items []store.Item) (objects []codalab.Object, owners []string, err error) {
	var uuids []string
	for _, item := range items {
		if id := deref(item.BundleUUID); id != "" && !slices.Contains(uuids, id) {
			uuids = append(uuids, id)
		}
	}
	found, err := s.Store.Bundles(ctx, uuids)
	if err != nil {
		return nil, nil, err
	}
	for _, uuid := range uuids {
		b, ok := found[uuid]
		if ok && bundlePermission(u, b.OwnerID) >= permissionRead {
			owners = append(owners, b.OwnerID)
			objects = append(objects, bundleObject(u, b))
		} else {
			objects = append(objects, privateObject(uuid))
		}
	}
	return objects, owners, nil
}

// userObjects returns the public attributes of users, without duplicates.
func (s *Server) userObjects(ctx context.Context, ids []string) ([]codalab.Object, error) {
	slices.Sort(ids)
	var objects []codalab.Object
	for _, id := range slices.Compact(ids) {
		u, err := s.Store.User(ctx, id)
		if err != nil {
			return nil, err
		}
		objects = append(objects, codalab.NewObject("users", u.ID, publicAttributes(u)))
	}
	return objects, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
