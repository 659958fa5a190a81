package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Item is one line of a worksheet.
type Item struct {
	ID            int64   `db:"id"`
	WorksheetUUID string  `db:"worksheet_uuid"`
	Type          string  `db:"type"`
	BundleUUID    *string `db:"bundle_uuid"`
	Subworksheet  *string `db:"subworksheet_uuid"`
	Value         string  `db:"value"`
	// SortKey orders the items of a worksheet; items with the same key are in the order of their
	// ids.
	SortKey int64 `db:"sort_key"`
}

// itemIDs generates the ids of items. They increase, also after restarts, because they begin with
// the time in microseconds.
type itemIDs struct{ last atomic.Int64 }

func (n *itemIDs) next(now Time) int64 {
	for {
		last := n.last.Load()
		id := max(last+1, now.micros())
		if n.last.CompareAndSwap(last, id) {
			return id
		}
	}
}

// Items returns a worksheet's items in their order.
func (s *Store) Items(ctx context.Context, worksheetUUID string) ([]Item, error) {
	return getItems(ctx, s.db, worksheetUUID)
}

func getItems(ctx context.Context, q queryer, worksheetUUID string) ([]Item, error) {
	var items []Item
	err := q.SelectContext(ctx, &items, q.Rebind(`
		SELECT * FROM worksheet_items WHERE worksheet_uuid = ? ORDER BY sort_key, id`), worksheetUUID)
	return items, rowError(err, "list items of worksheet "+worksheetUUID)
}

// FirstItems returns the first items of a worksheet, at most so many.
func (s *Store) FirstItems(ctx context.Context, worksheetUUID string, most int) ([]Item, error) {
	var items []Item
	err := s.db.SelectContext(ctx, &items, s.db.Rebind(`
		SELECT * FROM worksheet_items WHERE worksheet_uuid = ? ORDER BY sort_key, id LIMIT ?`), worksheetUUID, most)
	return items, rowError(err, "list items of worksheet "+worksheetUUID)
}

// AddItems removes the items of a worksheet whose ids are in replaced, and adds items: behind the
// items with a sort key of at most *after, or at the end if after is nil. It fails with ErrNotFound
// if there is no such worksheet, and with ErrFullWorksheet if that would have more than MostItems, and more than before.
func (s *Store) AddItems(ctx context.Context, worksheetUUID string, items []Item, after *int64, replaced []int64, now Time) error {
	var added Event
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		if added, err = itemsEvent(ctx, tx, codalab.ActionAdded, worksheetUUID, items); err != nil {
			return err
		}
		var removed int64
		if len(replaced) > 0 {
			query, args, err := sqlx.In(`DELETE FROM worksheet_items WHERE worksheet_uuid = ? AND id IN (?)`, worksheetUUID, replaced)
			if err == nil {
				removed, err = removeItems(ctx, tx, query, args...)
			}
			if err != nil {
				return fmt.Errorf("remove items of worksheet %s: %w", worksheetUUID, err)
			}
		}
		return s.addItems(ctx, tx, worksheetUUID, items, after, removed, now)
	})
	return noteUnless(ctx, err, added)
}

// itemsEvent is the event of new items of a worksheet.
func itemsEvent(ctx context.Context, q queryer, action codalab.Action, worksheetUUID string, items []Item) (Event, error) {
	name, err := SharedWorksheet.nameOf(ctx, q, worksheetUUID)
	e := Event{Action: action, Kind: "worksheet", UUID: worksheetUUID, Name: name}
	for _, item := range items {
		switch {
		case item.BundleUUID != nil && len(e.Items) < maxEvents:
			e.Items = append(e.Items, *item.BundleUUID)
		case item.Subworksheet != nil && len(e.Items) < maxEvents:
			e.Items = append(e.Items, *item.Subworksheet)
		default:
			e.Others++
		}
	}
	return e, err
}

// removeItems runs a statement that deletes items, and returns their number.
func removeItems(ctx context.Context, tx *sqlx.Tx, query string, args ...any) (int64, error) {
	result, err := tx.ExecContext(ctx, tx.Rebind(query), args...)
	if err != nil {
		return 0, err //nolint:wrapcheck // the callers name the worksheet
	}
	return result.RowsAffected() //nolint:wrapcheck // the same
}

// ReplaceItems replaces all items of a worksheet. Its errors are those of AddItems.
func (s *Store) ReplaceItems(ctx context.Context, worksheetUUID string, items []Item, now Time) error {
	return s.EditItems(ctx, worksheetUUID, "", items, now)
}

// EditItems is ReplaceItems for somebody who has read the worksheet: it fails with ErrChanged if the worksheet has other items
// than those of which ItemsTag was tag. The empty tag is that of any items. If the worksheet has the new items already,
// EditItems changes nothing.
func (s *Store) EditItems(ctx context.Context, worksheetUUID, tag string, items []Item, now Time) error {
	var edited []Event
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		edited = nil
		if tag != "" {
			// It locks the row, so that no other transaction changes the items between the check and the end.
			if _, err := tx.ExecContext(ctx, tx.Rebind(`UPDATE worksheets SET modified = modified WHERE uuid = ?`), worksheetUUID); err != nil {
				return fmt.Errorf("lock worksheet %s: %w", worksheetUUID, err)
			}
			present, err := getItems(ctx, tx, worksheetUUID)
			if err != nil {
				return err
			}
			switch ItemsTag(present) {
			case ItemsTag(items):
				return nil
			case tag:
			default:
				return fmt.Errorf("worksheet %s: %w", worksheetUUID, ErrChanged)
			}
		}
		event, err := itemsEvent(ctx, tx, codalab.ActionEdited, worksheetUUID, items)
		if err != nil {
			return err
		}
		edited = []Event{event}
		removed, err := removeItems(ctx, tx, `DELETE FROM worksheet_items WHERE worksheet_uuid = ?`, worksheetUUID)
		if err != nil {
			return fmt.Errorf("replace items of worksheet %s: %w", worksheetUUID, err)
		}
		return s.addItems(ctx, tx, worksheetUUID, items, nil, removed, now)
	})
	return noteUnless(ctx, err, edited...)
}

// ItemsTag is a digest of the contents of items, in their order.
func ItemsTag(items []Item) string {
	sum := sha256.New()
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	for _, item := range items {
		_, _ = fmt.Fprintf(sum, "%q %q %q %q\n", item.Type, text(item.BundleUUID), text(item.Subworksheet), item.Value) // never fails
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Place is the position of a new bundle on a worksheet: the end, unless After or Behind are set.
type Place struct {
	// Worksheet is a worksheet's uuid; empty for none.
	Worksheet string
	// After is a sort key: the bundle comes behind the items with this key.
	After *int64
	// Behind is the uuid of another bundle: the new one comes behind it, wherever the worksheet has
	// it.
	Behind string
	// BlankBefore adds an empty line before the bundle, unless it comes behind another one.
	BlankBefore bool
}

// checkRoom fails with ErrFullWorksheet if a worksheet has no room for more items. All items but some of an import have
// different sort keys, so that their number needs no count while the keys are near each other.
func checkRoom(ctx context.Context, tx *sqlx.Tx, worksheetUUID string, more int64) error {
	var keys struct{ Last, First int64 }
	err := tx.GetContext(ctx, &keys, tx.Rebind(`
		SELECT coalesce((SELECT max(sort_key) FROM worksheet_items WHERE worksheet_uuid = ?), 0) AS last,
			coalesce((SELECT min(sort_key) FROM worksheet_items WHERE worksheet_uuid = ?), 0) AS first`), worksheetUUID, worksheetUUID)
	if between := keys.Last - keys.First; err == nil && (between < 0 || between+more >= MostItems) { // it overflows to less than 0
		var items int64
		err = tx.GetContext(ctx, &items, tx.Rebind(`SELECT count(*) FROM worksheet_items WHERE worksheet_uuid = ?`), worksheetUUID)
		if err == nil && items+more > MostItems {
			err = ErrFullWorksheet
		}
	}
	return rowError(err, "add items to worksheet "+worksheetUUID)
}

// addItems is AddItems in a transaction that has removed some items.
func (s *Store) addItems(ctx context.Context, tx *sqlx.Tx, worksheetUUID string, items []Item, after *int64, removed int64, now Time) error {
	if more := int64(len(items)); more > removed {
		if err := checkRoom(ctx, tx, worksheetUUID, more); err != nil {
			return err
		}
	}
	result, err := tx.ExecContext(ctx, tx.Rebind(`UPDATE worksheets SET modified = ? WHERE uuid = ?`), now, worksheetUUID)
	if err != nil {
		return fmt.Errorf("change worksheet %s: %w", worksheetUUID, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("change worksheet %s: %w", worksheetUUID, ErrNotFound)
	}
	var key int64
	if after == nil {
		err = tx.GetContext(ctx, &key, tx.Rebind(`SELECT coalesce(max(sort_key), 0) FROM worksheet_items WHERE worksheet_uuid = ?`), worksheetUUID)
	} else {
		key = *after
		_, err = tx.ExecContext(ctx, tx.Rebind(`UPDATE worksheet_items SET sort_key = sort_key + ? WHERE worksheet_uuid = ? AND sort_key > ?`),
			len(items), worksheetUUID, key)
	}
	if err != nil {
		return rowError(err, "add items to worksheet "+worksheetUUID)
	}
	rows := slices.Clone(items)
	for i := range rows {
		key++
		rows[i].ID, rows[i].WorksheetUUID, rows[i].SortKey = s.items.next(now), worksheetUUID, key
	}
	err = insertRows(ctx, tx, `
		INSERT INTO worksheet_items (id, worksheet_uuid, type, bundle_uuid, subworksheet_uuid, value, sort_key)
		VALUES (:id, :worksheet_uuid, :type, :bundle_uuid, :subworksheet_uuid, :value, :sort_key)`, rows)
	return rowError(err, "add items to worksheet "+worksheetUUID)
}
