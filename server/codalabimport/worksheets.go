package codalabimport

import (
	"database/sql"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// worksheet converts a worksheet with its items and permissions.
func (c *converter) worksheet(row worksheetRow) (store.Worksheet, []store.Item, []store.Permission, error) {
	w := store.Worksheet{
		UUID: row.UUID, Name: c.unique(c.worksheets, "worksheet", clean(row.Name), row.UUID), OwnerID: c.owner(row.OwnerID.String, "worksheet "+row.UUID),
		Frozen: frozen(row.Frozen), IsAnonymous: row.IsAnonymous, Created: moment(row.Created), Modified: moment(row.Modified),
	}
	if id, ok := c.taken.Worksheets[w.UUID]; ok {
		c.notes.stop(ProblemConflict, w.UUID, "the data directory has a worksheet with the uuid %s", id)
	} else if id, ok := c.taken.Worksheets[w.Name]; ok {
		c.notes.stop(ProblemConflict, w.UUID, "the data directory has a worksheet %s with another uuid, %s", w.Name, id)
	}
	if row.Title.Valid {
		title := decodeText(row.Title.String)
		w.Title = &title
	}
	tags := make([]string, len(row.Tags))
	for i, tag := range row.Tags {
		tags[i] = clean(tag)
	}
	if err := w.SetTags(tags); err != nil {
		return w, nil, nil, err
	}
	var items []store.Item
	for _, i := range row.Items {
		if item, ok := c.item(i); ok {
			items = append(items, item)
		}
	}
	return w, items, c.granted(row.Granted), nil
}

// item converts an item. The object that it shows may not exist any more.
func (c *converter) item(row itemRow) (store.Item, bool) {
	item := store.Item{WorksheetUUID: row.Worksheet, Type: row.Type, SortKey: row.SortKey}
	shows := func(uuid sql.NullString) bool { return uuid.Valid && uuid.String != "" }
	switch {
	case row.Type == codalab.ItemBundle && shows(row.Bundle):
		item.BundleUUID = &row.Bundle.String
	case row.Type == codalab.ItemWorksheet && shows(row.Subworksheet):
		item.Subworksheet = &row.Subworksheet.String
	case row.Type == codalab.ItemMarkup || row.Type == codalab.ItemDirective:
		item.Value = decodeText(row.Value)
	default:
		c.notes.note(ProblemRow, row.Worksheet, "an item of the type %q that shows nothing is left out", row.Type)
		return item, false
	}
	return item, true
}
