package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// Worksheet is a named list of bundles and texts.
type Worksheet struct {
	UUID        string  `db:"uuid"`
	Name        string  `db:"name"`
	OwnerID     string  `db:"owner_id"`
	Title       *string `db:"title"`
	Frozen      *string `db:"frozen"`
	IsAnonymous bool    `db:"is_anonymous"`
	// Public is everybody's permission: 0 none, 1 read.
	Public   int    `db:"public"`
	TagsJSON string `db:"tags"`
	Created  Time   `db:"created"`
	Modified Time   `db:"modified"` // also the last change of an item
}

// Tags returns the worksheet's tags.
func (w Worksheet) Tags() []string {
	tags := []string{}
	if json.Unmarshal([]byte(w.TagsJSON), &tags) != nil {
		return []string{}
	}
	return tags
}

// Item is one line of a worksheet.
type Item struct {
	ID            int64   `db:"id"`
	WorksheetUUID string  `db:"worksheet_uuid"`
	Type          string  `db:"type"` // bundle, worksheet, markup or directive
	BundleUUID    *string `db:"bundle_uuid"`
	Subworksheet  *string `db:"subworksheet_uuid"`
	Value         string  `db:"value"`
	SortKey       *int64  `db:"sort_key"`
}

// AddWorksheet adds a worksheet; ErrExists if its name is taken.
func (s *Store) AddWorksheet(ctx context.Context, w Worksheet) error {
	if w.TagsJSON == "" {
		w.TagsJSON = "[]"
	}
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.NamedExecContext(ctx, `
			INSERT INTO worksheets (uuid, name, owner_id, title, public, tags, created, modified)
			VALUES (:uuid, :name, :owner_id, :title, :public, :tags, :created, :modified)`, w)
		if sqldb.IsUnique(err) {
			return fmt.Errorf("add worksheet %s: %w", w.Name, ErrExists)
		}
		return rowError(err, "add worksheet "+w.Name)
	})
}

// Worksheet returns the worksheet with this uuid.
func (s *Store) Worksheet(ctx context.Context, uuid string) (Worksheet, error) {
	var w Worksheet
	err := s.db.GetContext(ctx, &w, s.db.Rebind(`SELECT * FROM worksheets WHERE uuid = ?`), uuid)
	return w, rowError(err, "get worksheet "+uuid)
}

// WorksheetNamed returns the worksheet with this name.
func (s *Store) WorksheetNamed(ctx context.Context, name string) (Worksheet, error) {
	var w Worksheet
	err := s.db.GetContext(ctx, &w, s.db.Rebind(`SELECT * FROM worksheets WHERE name = ?`), name)
	return w, rowError(err, "get worksheet "+name)
}

// WorksheetsByPrefix returns up to two worksheets with uuids that begin with prefix.
func (s *Store) WorksheetsByPrefix(ctx context.Context, prefix string) ([]Worksheet, error) {
	var list []Worksheet
	err := s.db.SelectContext(ctx, &list, s.db.Rebind(`SELECT * FROM worksheets WHERE uuid >= ? AND uuid < ? ORDER BY uuid LIMIT 2`), prefix, prefix+"g")
	return list, rowError(err, "find worksheet "+prefix)
}

// Items returns a worksheet's items in their order.
func (s *Store) Items(ctx context.Context, worksheetUUID string) ([]Item, error) {
	var items []Item
	err := s.db.SelectContext(ctx, &items, s.db.Rebind(`
		SELECT * FROM worksheet_items WHERE worksheet_uuid = ? ORDER BY sort_key, id`), worksheetUUID)
	return items, rowError(err, "list items of worksheet "+worksheetUUID)
}

// HostWorksheets returns the worksheets that contain a bundle.
func (s *Store) HostWorksheets(ctx context.Context, bundleUUID string) ([]Worksheet, error) {
	var list []Worksheet
	err := s.db.SelectContext(ctx, &list, s.db.Rebind(`
		SELECT * FROM worksheets WHERE uuid IN (SELECT worksheet_uuid FROM worksheet_items WHERE bundle_uuid = ?)
		ORDER BY created`), bundleUUID)
	return list, rowError(err, "list worksheets of bundle "+bundleUUID)
}

// appendBundle appends a new bundle to a worksheet.
func appendBundle(ctx context.Context, tx *sqlx.Tx, worksheetUUID, bundleUUID string, now Time) error {
	result, err := tx.ExecContext(ctx, tx.Rebind(`UPDATE worksheets SET modified = ? WHERE uuid = ?`), now, worksheetUUID)
	if err != nil {
		return fmt.Errorf("append bundle %s: %w", bundleUUID, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("append bundle %s to worksheet %s: %w", bundleUUID, worksheetUUID, ErrNotFound)
	}
	_, err = tx.ExecContext(ctx, tx.Rebind(`
		INSERT INTO worksheet_items (worksheet_uuid, type, bundle_uuid, sort_key)
		SELECT ?, 'bundle', ?, 1 + coalesce(max(id), 0) FROM worksheet_items`), worksheetUUID, bundleUUID)
	return rowError(err, "append bundle "+bundleUUID)
}
