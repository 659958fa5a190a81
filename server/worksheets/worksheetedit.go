package worksheets

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/sharing"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// maxItems bounds the items of a worksheet that one request adds: each is a row, which the one writer of
// the database inserts while others wait.
const maxItems = 20_000

func checkItems(n int) error {
	if n > maxItems {
		return rest.Refuse(http.StatusRequestEntityTooLarge, "A request may add %d items to a worksheet, not %d", maxItems, n)
	}
	return nil
}

// worksheetEdit is a client's change of a worksheet.
type worksheetEdit struct {
	codalab.WorksheetEdit
	giving access.Giving

	// The other fields are those of the checked edit.
	checked bool
	gift    plan.Gift // what becomes of giving
	more    bool      // the offer is a new one
}

func (e *worksheetEdit) namesOwnerOnly() bool {
	return e.giving.To != "" && e.Name == nil && e.Title == nil && e.Tags == nil && len(e.Frozen) == 0 && e.IsAnonymous == nil
}

// patchWorksheets changes worksheets (codalab/rest/worksheets.py: update_worksheets,
// update_worksheet_metadata). A new owner has to accept a worksheet first, unless root gives it.
func (s *Worksheets) patchWorksheets(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	edits := make([]worksheetEdit, len(objects))
	for i, o := range objects { // check all before changing any
		if err := s.readEdit(ctx, u, o, &edits[i]); err != nil {
			return err
		}
	}
	if err := s.checkOffers(ctx, edits); err != nil {
		return err
	}
	var changed []store.Worksheet
	for i, o := range objects {
		change := s.config.Store.ChangeWorksheet
		if edits[i].gift == plan.GiftGiven && !u.Root() {
			change = s.config.Store.AcceptWorksheet
		}
		sheet, err := change(ctx, o.ID, edits[i].apply)
		if errors.Is(err, store.ErrExists) {
			err = rest.Refuse(http.StatusBadRequest, "Worksheet with name %s already exists", rest.Deref(edits[i].Name))
		}
		if errors.Is(err, store.ErrTooMany) {
			err = tooMany()
		}
		if err != nil {
			return err
		}
		changed = append(changed, sheet)
	}
	return s.writeWorksheets(w, r, u, changed)
}

// readEdit reads an edit, and refuses one that the user may not make.
func (s *Worksheets) readEdit(ctx context.Context, u store.User, o codalab.Object, e *worksheetEdit) error {
	if o.Decode(e) != nil {
		return rest.Refuse(http.StatusBadRequest, "A worksheet's attributes have the wrong types")
	}
	e.giving = access.Giving{Kind: store.SharedWorksheet, By: u, Now: s.config.Now()}
	var err error
	if e.giving.To, err = s.config.Access.NewOwner(ctx, o); err != nil {
		return err
	}
	sheet, err := s.editable(ctx, u, o.ID, e)
	if err != nil {
		return err
	}
	before := sheet.Offer
	if err := e.apply(&sheet); err != nil {
		return err
	}
	e.checked, e.more = true, e.gift == plan.GiftOffered && before.To != sheet.Offer.To
	return nil
}

// editable returns a worksheet that the user may change, or to an offer of which the edit is an answer.
func (s *Worksheets) editable(ctx context.Context, u store.User, uuid string, e *worksheetEdit) (store.Worksheet, error) {
	if e.namesOwnerOnly() {
		sheet, err := s.config.Store.Worksheet(ctx, uuid)
		if err == nil && e.giving.Answers(sheet.OwnerID, sheet.Offer) {
			return sheet, nil
		}
	}
	sheet, _, err := s.config.Access.OpenWorksheet(ctx, u, uuid, store.PermissionAll)
	return sheet, err
}

// checkOffers refuses edits that make too many offers.
func (s *Worksheets) checkOffers(ctx context.Context, edits []worksheetEdit) error {
	var offers []access.Giving
	for _, e := range edits {
		if e.more {
			offers = append(offers, e.giving)
		}
	}
	return s.config.Access.CheckOffers(ctx, offers)
}

// setPermissions sets the permissions of groups on worksheets (codalab/rest/worksheets.py:
// set_worksheet_permissions).
func (s *Worksheets) setPermissions(w http.ResponseWriter, r *http.Request, u store.User) error {
	return sharing.Set(w, r, s.config.Access, u, store.SharedWorksheet, func(uuids []string) error {
		for _, uuid := range uuids {
			if _, err := s.config.Access.Changeable(r.Context(), u, uuid); err != nil {
				return err
			}
		}
		return nil
	})
}

// apply makes the change or refuses it.
func (e *worksheetEdit) apply(w *store.Worksheet) error {
	thaw := string(e.Frozen) == "null"
	ends := e.namesOwnerOnly() && e.giving.Ends(w.OwnerID, w.Offer)
	if err := access.WorksheetNotFrozen(*w); err != nil && !thaw && !ends {
		return err
	}
	if err := e.give(w); err != nil {
		return err
	}
	if e.Name != nil && *e.Name != w.Name {
		if err := checkWorksheetName(e.giving.By, *e.Name); err != nil {
			return err
		}
		w.Name = *e.Name
	}
	if err := e.describe(w); err != nil {
		return err
	}
	if e.IsAnonymous != nil {
		w.IsAnonymous = *e.IsAnonymous
	}
	switch {
	case thaw:
		w.Frozen = nil
	case len(e.Frozen) > 0: // whatever time the client names
		at := isoTime(e.giving.Now)
		w.Frozen = &at
	}
	if !e.namesOwnerOnly() || e.gift == plan.GiftGiven {
		w.Modified = store.Time{Time: e.giving.Now}
	}
	return nil
}

// describe changes the worksheet's tags and title.
func (e *worksheetEdit) describe(w *store.Worksheet) error {
	if e.Tags != nil {
		if err := access.CheckTextSize("The tags of a worksheet", strings.Join(*e.Tags, " "), access.MaxLine); err != nil {
			return err
		}
		if err := w.SetTags(*e.Tags); err != nil {
			return err
		}
	}
	if e.Title != nil {
		w.Title = e.Title
		return access.CheckTextSize("The title of a worksheet", *e.Title, access.MaxLine)
	}
	return nil
}

// give changes the worksheet's owner or offer, or refuses the request. Nobody but root gives a home worksheet away: its
// former owner could not have another one.
func (e *worksheetEdit) give(w *store.Worksheet) error {
	gift, err := e.giving.Apply(w.UUID, &w.OwnerID, &w.Offer)
	switch {
	case err != nil:
		return err
	case e.checked && gift != e.gift:
		return rest.Refuse(http.StatusConflict, "Worksheet %s has changed meanwhile: try again.", w.UUID)
	case (gift == plan.GiftOffered || gift == plan.GiftGiven) && !e.giving.By.Root() && access.IsHome(w.Name):
		return rest.Refuse(http.StatusBadRequest, "A home worksheet cannot be given away: cl wadd copies its items to another worksheet.")
	}
	e.gift = gift
	return nil
}

// deleteWorksheets deletes worksheets, of which force also deletes those that are frozen or have
// items (codalab/rest/worksheets.py: delete_worksheet).
func (s *Worksheets) deleteWorksheets(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	force, err := rest.BoolParam(r.URL.Query(), "force", false)
	if err != nil {
		return err
	}
	ids, err := rest.ReadIDs(w, r, "worksheets")
	if err != nil {
		return err
	}
	for _, id := range ids { // check all before deleting any
		sheet, _, err := s.config.Access.OpenWorksheet(ctx, u, id, store.PermissionAll)
		if err != nil {
			return err
		}
		items, err := s.config.Store.Items(ctx, id)
		switch {
		case err != nil:
			return err
		case force:
		case sheet.Frozen != nil:
			return rest.Refuse(http.StatusBadRequest, "Can't delete worksheet %s because it is frozen (--force to override).", id)
		case len(items) > 0:
			return rest.Refuse(http.StatusBadRequest, "Can't delete worksheet %s because it is not empty (--force to override).", id)
		}
	}
	for _, id := range ids {
		if err := s.config.Store.DeleteWorksheet(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// addItems appends items to a worksheet, or replaces all of its items (codalab/rest/worksheets.py:
// create_worksheet_items).
func (s *Worksheets) addItems(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx, q := r.Context(), r.URL.Query()
	replace, err := rest.BoolParam(q, "replace", false)
	if err != nil {
		return err
	}
	var doc codalab.Document
	if err := rest.ReadJSON(w, r, &doc); err != nil {
		return err
	}
	objects, err := doc.Objects() // none empties the worksheet
	if err != nil {
		return rest.Refuse(http.StatusBadRequest, "The request's data must be a list of objects")
	}
	if err := checkItems(len(objects)); err != nil {
		return err
	}
	sheet, err := s.config.Access.Changeable(ctx, u, q.Get("uuid"))
	if err != nil {
		return err
	}
	var items []store.Item
	for _, o := range objects {
		item, err := newItem(o)
		if err != nil {
			return err
		}
		item.WorksheetUUID = sheet.UUID
		items = append(items, item)
	}
	now := store.Time{Time: s.config.Now()}
	if replace {
		err = s.config.Store.ReplaceItems(ctx, sheet.UUID, items, now)
	} else {
		err = s.config.Store.AddItems(ctx, sheet.UUID, items, nil, nil, now)
	}
	if err != nil {
		return access.FullWorksheet(err)
	}
	return rest.WriteDocument(w, itemObjects(items, false), nil)
}

// checkItem refuses an item whose text is too long.
func checkItem(text string) error {
	return access.CheckTextSize("The text of an item", text, access.MaxParagraph)
}

// newItem reads an item that a client adds.
func newItem(o codalab.Object) (store.Item, error) {
	var in codalab.WorksheetItem
	if o.Decode(&in) != nil {
		return store.Item{}, rest.Refuse(http.StatusBadRequest, "An item's type and value must be texts")
	}
	item := store.Item{Type: in.Type, Value: in.Value}
	err := checkItem(in.Value)
	if err != nil {
		return item, err
	}
	switch in.Type {
	case codalab.ItemMarkup, codalab.ItemDirective:
	case codalab.ItemBundle:
		item.BundleUUID, err = linkedUUID(o, "bundle")
	case codalab.ItemWorksheet:
		item.Subworksheet, err = linkedUUID(o, "subworksheet")
	default:
		err = rest.Refuse(http.StatusBadRequest, "Unknown type of item '%s'", in.Type)
	}
	return item, err
}

func linkedUUID(o codalab.Object, name string) (*string, error) {
	id, err := access.LinkedID(o, name)
	if err == nil && !codalab.IsUUID(id) {
		err = rest.Refuse(http.StatusBadRequest, "'%s' is not a uuid", id)
	}
	return &id, err
}

// insertItems inserts items of one type behind a sort key, in the place of others
// (codalab/rest/worksheets.py: replace_items).
func (s *Worksheets) insertItems(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in codalab.ItemInsertion
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if err := checkItems(len(in.Items)); err != nil {
		return err
	}
	sheet, err := s.config.Access.Changeable(r.Context(), u, r.PathValue("uuid"))
	if err != nil {
		return err
	}
	var items []store.Item
	for _, text := range in.Items {
		item := store.Item{Type: in.ItemType, Value: text}
		if err := checkItem(text); err != nil {
			return err
		}
		switch in.ItemType {
		case "":
			item.Type = codalab.ItemMarkup
		case codalab.ItemMarkup, codalab.ItemDirective:
		case codalab.ItemBundle:
			if !codalab.IsUUID(text) {
				return rest.Refuse(http.StatusBadRequest, "'%s' is not a uuid", text)
			}
			item.BundleUUID, item.Value = &text, ""
		default:
			return rest.Refuse(http.StatusBadRequest, "Unknown type of item '%s'", in.ItemType)
		}
		items = append(items, item)
	}
	return access.FullWorksheet(s.config.Store.AddItems(r.Context(), sheet.UUID, items, in.After, in.IDs, store.Time{Time: s.config.Now()}))
}
