package worksheets

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/contents"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/search"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Config has what Worksheets needs. All fields are required.
type Config struct {
	Log    *slog.Logger
	Now    func() time.Time
	Store  *store.Store
	Access access.Access
	Files  *contents.Files
}

// Worksheets serves worksheets, and shows them as lines and blocks.
type Worksheets struct{ config Config }

// New returns Worksheets.
func New(c Config) *Worksheets { return &Worksheets{c} }

// Routes returns the routes for worksheets.
func (s *Worksheets) Routes() []rest.Route {
	return append(s.worksheetRoutes(), s.interpretRoutes()...)
}

func (s *Worksheets) worksheetRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /worksheets", Serve: s.findWorksheets, Public: true, Differs: "searches do not tell the owner of an anonymous worksheet; .count and .sum are refused, since cl cannot show them; so are more than 2,000 specs that are not whole uuids"},
		{Pattern: "POST /worksheets", Serve: s.createWorksheets, Differs: "cl-server run --default-permission says who may read a new worksheet: nobody but its owner, the owner's groups, or everybody as with CodaLab; a name that differs from another one by case alone is refused, and names such as admin"},
		{Pattern: "PATCH /worksheets", Serve: s.patchWorksheets, Differs: "an owner who names another one offers the worksheet, as by PATCH /bundles; home worksheets cannot be given away; names as for new worksheets"},
		{Pattern: "DELETE /worksheets", Serve: s.deleteWorksheets, Differs: "a uuid without a worksheet is refused like one of a worksheet that the user may not read"},
		{Pattern: "GET /worksheets/sample/{$}", Serve: search.Bounded(s.sampleWorksheets), Public: true, Differs: "the tagged worksheets are the last changed ones, not any"},
		{Pattern: "GET /worksheets/{uuid}", Serve: s.worksheet, Public: true, Differs: "items always have a sort_key, so that a reader never changes a worksheet; items.subworksheet is included; with metadata=KEY,… the bundles have only these keys of their metadata, and neither args nor state_details, and an item names only its bundle, or else its worksheet; with items=bundles there are no items, and bundles are a relationship of the worksheet"},
		{Pattern: "POST /worksheets/{uuid}/add-items", Serve: s.insertItems},
		{Pattern: "POST /worksheet-items", Serve: s.addItems},
		{Pattern: "POST /worksheet-permissions", Serve: s.setPermissions},
	}
}

// isoTime is a time as Python's isoformat writes it.
func isoTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05+00:00") }

// worksheetObject is a worksheet as a user with the permission have sees it.
func worksheetObject(w store.Worksheet, have int) codalab.Object {
	return newWorksheetObject(worksheetData(w), w, have)
}

func worksheetData(w store.Worksheet) codalab.Worksheet {
	return codalab.Worksheet{
		WorksheetName: codalab.WorksheetName{UUID: w.UUID, Name: w.Name}, Title: w.Title, Frozen: w.Frozen, IsAnonymous: w.IsAnonymous,
		DateCreated: isoTime(w.Created.Time), DateLastModified: isoTime(w.Modified.Time), Tags: w.Tags(),
	}
}

func newWorksheetObject(attributes codalab.Worksheet, w store.Worksheet, have int) codalab.Object {
	o := codalab.NewObject("worksheets", w.UUID, attributes)
	o.Relationships = map[string]codalab.Relationship{
		"owner": codalab.ToOne("users", worksheetOwner(w, have)), "items": codalab.ToMany("worksheet-items", nil),
	}
	return o
}

// worksheetOwner is the owner of a worksheet for a user with the permission have on it; empty if the
// worksheet hides it (codalab/rest/worksheets.py: get_worksheet_info).
func worksheetOwner(w store.Worksheet, have int) string {
	if w.IsAnonymous && have < store.PermissionAll {
		return ""
	}
	return w.OwnerID
}

// findWorksheets returns the worksheets that the query's specs name, or else those that it searches
// for by keywords (codalab/rest/worksheets.py: fetch_worksheets).
func (s *Worksheets) findWorksheets(w http.ResponseWriter, r *http.Request, u store.User) error {
	q := r.URL.Query()
	if len(q["specs"]) == 0 {
		return search.Bounded(s.searchWorksheets)(w, r, u)
	}
	if err := access.CheckSpecs(q["specs"]); err != nil {
		return err
	}
	var found []store.Worksheet
	for _, spec := range q["specs"] {
		sheet, err := s.config.Access.ResolveWorksheet(r.Context(), u, spec)
		if err != nil {
			return err
		}
		found = append(found, sheet)
	}
	return s.writeWorksheets(w, r, u, found)
}

// searchWorksheets answers with the worksheets that match keywords.
func (s *Worksheets) searchWorksheets(w http.ResponseWriter, r *http.Request, u store.User) error {
	found, err := search.Worksheets(r.Context(), s.config.Access, u, r.URL.Query()["keywords"])
	if err != nil {
		return err
	}
	return s.writeWorksheets(w, r, u, found)
}

// writeWorksheets answers with worksheets, and the related objects that the query includes.
func (s *Worksheets) writeWorksheets(w http.ResponseWriter, r *http.Request, u store.User, sheets []store.Worksheet) error {
	ctx := r.Context()
	include, err := rest.Includes(r.URL.Query(), "owner", "group_permissions")
	if err != nil {
		return err
	}
	have, err := s.config.Access.WorksheetPermissions(ctx, u, sheets...)
	if err != nil {
		return err
	}
	objects, uuids, owners := []codalab.Object{}, []string{}, []string{}
	related := present.Relations{Objects: map[string]codalab.Object{}}
	for _, sheet := range sheets {
		o := worksheetObject(sheet, have[sheet.UUID])
		objects, uuids, owners = append(objects, o), append(uuids, sheet.UUID), append(owners, worksheetOwner(sheet, have[sheet.UUID]))
		related.Objects[sheet.UUID] = o
	}
	if include["group_permissions"] {
		if err := related.AddPermissions(ctx, s.config.Store, store.SharedWorksheet, u, uuids); err != nil {
			return err
		}
	}
	if include["owner"] {
		users, err := present.UserObjects(ctx, s.config.Store, owners)
		if err != nil {
			return err
		}
		related.Included = append(related.Included, users...)
	}
	return rest.WriteDocument(w, objects, related.Included)
}

// createWorksheets creates worksheets (codalab/rest/worksheets.py: create_worksheets).
func (s *Worksheets) createWorksheets(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	var sheets []store.Worksheet
	var names []string
	for _, o := range objects {
		var in codalab.WorksheetName
		if o.Decode(&in) != nil {
			return rest.Refuse(http.StatusBadRequest, "A worksheet's name must be a text")
		}
		if err := checkWorksheetName(u, in.Name); err != nil {
			return err
		}
		now := store.Time{Time: s.config.Now()}
		sheets = append(sheets, store.Worksheet{UUID: codalab.NewUUID(), Name: in.Name, OwnerID: u.ID, Created: now, Modified: now})
		names = append(names, in.Name)
	}
	err = s.config.Access.AddWorksheets(r.Context(), sheets...)
	if errors.Is(err, store.ErrExists) {
		return rest.Refuse(http.StatusBadRequest, "Worksheet with name %s already exists", strings.Join(names, " or "))
	}
	if errors.Is(err, store.ErrTooMany) {
		return tooMany()
	}
	if err != nil {
		return err
	}
	created := []codalab.Object{}
	for _, sheet := range sheets {
		created = append(created, worksheetObject(sheet, store.PermissionAll))
	}
	return rest.WriteDocument(w, created, nil)
}

// tooMany refuses another worksheet to a user who has the most of them.
func tooMany() error {
	return rest.Refuse(http.StatusForbidden, "A user may have %d worksheets: remove some before you make or accept others.", store.MostWorksheets)
}

// checkWorksheetName refuses names that a user cannot give to a worksheet
// (codalab/rest/worksheets.py: ensure_unused_worksheet_name).
func checkWorksheetName(u store.User, name string) error {
	if err := access.CheckGroupName(name); err != nil {
		return err
	}
	if access.IsHome(name) && name != access.HomePrefix+u.Name {
		return rest.Refuse(http.StatusBadRequest, "Cannot create %s because this is potentially the home worksheet of another user", name)
	}
	return access.CheckSystemName(u, name)
}

// worksheet returns one worksheet, and the related objects that the query includes
// (codalab/rest/worksheets.py: fetch_worksheet).
func (s *Worksheets) worksheet(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	include, err := rest.Includes(r.URL.Query(), "owner", "group_permissions", "items", "items.bundle", "items.bundle.owner", "items.subworksheet")
	if err != nil {
		return err
	}
	keys, err := rest.MetadataKeys(r.URL.Query())
	if err != nil {
		return err
	}
	sheet, have, err := s.config.Access.OpenWorksheet(ctx, u, r.PathValue("uuid"), store.PermissionRead)
	if err != nil {
		return err
	}
	attributes := worksheetData(sheet)
	attributes.Permission, attributes.PermissionSpec = &have, codalab.PermissionSpec(have)
	var items []store.Item
	if include["items"] {
		if items, err = s.config.Store.Items(ctx, sheet.UUID); err != nil {
			return err
		}
	}
	for _, item := range items {
		attributes.LastItemID = &item.ID
	}
	object := newWorksheetObject(attributes, sheet, have)
	related := present.Relations{Objects: map[string]codalab.Object{sheet.UUID: object}}
	owners := []string{}
	if include["owner"] {
		owners = append(owners, worksheetOwner(sheet, have))
	}
	if include["group_permissions"] {
		if err := related.AddPermissions(ctx, s.config.Store, store.SharedWorksheet, u, []string{sheet.UUID}); err != nil {
			return err
		}
	}
	if r.URL.Query().Get("items") == "bundles" {
		object.Relationships["bundles"] = codalab.ToMany("bundles", bundleIDs(items))
	} else {
		related.Add(sheet.UUID, "items", "worksheet-items", itemObjects(items, len(keys) > 0))
	}
	itemOwners, err := s.addItemRelations(ctx, u, items, include, keys, &related)
	if err != nil {
		return err
	}
	owners = append(owners, itemOwners...)
	users, err := present.UserObjects(ctx, s.config.Store, owners)
	if err != nil {
		return err
	}
	return rest.WriteDocument(w, object, append(related.Included, users...))
}
