package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// TakenError is the ErrExists of a new bundle whose uuid belongs to another bundle or to a deleted one.
type TakenError struct{ UUID string }

func (e *TakenError) Error() string { return "create bundle " + e.UUID + ": " + ErrExists.Error() }

// Unwrap returns ErrExists.
func (e *TakenError) Unwrap() error { return ErrExists }

// CreateBundle is CreateBundles for one bundle at the end of a worksheet, or for one that is on none if
// worksheetUUID is empty.
func (s *Store) CreateBundle(ctx context.Context, b Bundle, worksheetUUID string) error {
	_, err := s.CreateBundles(ctx, []Bundle{b}, Place{Worksheet: worksheetUUID})
	return err
}

// createdAtOnce is the number of bundles that one transaction makes. A few statements make all of them, so other writers
// wait for about a tenth of a second. A sweep of so many, which is one request of cl, is made whole or not at all.
const createdAtOnce = 1000

// CreateBundles adds bundles and their dependencies, createdAtOnce of them in each transaction. If the place is on a
// worksheet, it gives groups the permissions that they have on the worksheet. It fails with a TakenError for the first
// bundle whose uuid is taken, and with ErrNotFound if there is no such worksheet. It returns the created bundles, also
// after an error.
func (s *Store) CreateBundles(ctx context.Context, bundles []Bundle, at Place) (created []Bundle, err error) {
	for part := range slices.Chunk(bundles, createdAtOnce) {
		var events []Event
		err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
			events, err = s.createBundles(ctx, tx, part, at)
			return err
		})
		if err != nil {
			return created, err
		}
		note(ctx, events...)
		s.changed(part...)
		created = append(created, part...)
	}
	return created, nil
}

// createBundles creates bundles in a transaction, and returns the events of their creation.
func (s *Store) createBundles(ctx context.Context, tx *sqlx.Tx, bundles []Bundle, at Place) ([]Event, error) {
	from, err := readInherited(ctx, tx, at.Worksheet)
	if err != nil {
		return nil, err
	}
	if err := checkUnused(ctx, tx, bundles); err != nil {
		return nil, err
	}
	if err := insertBundles(ctx, tx, bundles, from); err != nil {
		return nil, err
	}
	if err := insertDependencies(ctx, tx, bundles); err != nil {
		return nil, err
	}
	used := charges{}
	for _, b := range bundles {
		used.add(b.OwnerID, b.Charge())
	}
	if err := used.write(ctx, tx); err != nil {
		return nil, err
	}
	if at.Worksheet != "" {
		if err := s.addToWorksheet(ctx, tx, bundles, at); err != nil {
			return nil, err
		}
	}
	events := make([]Event, 0, len(bundles))
	for _, b := range bundles {
		events = append(events, b.event(codalab.ActionCreated, from.details()))
	}
	return events, writeHistories(ctx, tx, events)
}

// checkUnused fails with a TakenError for the first new bundle whose uuid is that of another one, also of a deleted one or
// of a new one before it.
func checkUnused(ctx context.Context, tx *sqlx.Tx, bundles []Bundle) error {
	uuids := make([]string, 0, len(bundles))
	for _, b := range bundles {
		uuids = append(uuids, b.UUID)
	}
	taken := map[string]bool{}
	for _, query := range []string{`SELECT uuid FROM bundles WHERE uuid IN (?)`, `SELECT uuid FROM deleted_bundles WHERE uuid IN (?)`} {
		found, err := selectIn[string](ctx, tx, uuids, query)
		if err != nil {
			return fmt.Errorf("create bundles: %w", err)
		}
		for _, uuid := range found {
			taken[uuid] = true
		}
	}
	for _, uuid := range uuids {
		if taken[uuid] {
			return &TakenError{uuid}
		}
		taken[uuid] = true
	}
	return nil
}

// insertBundles inserts bundles with the permissions that they inherit.
func insertBundles(ctx context.Context, tx *sqlx.Tx, bundles []Bundle, from inherited) error {
	rows := make([]bundleRow, 0, len(bundles))
	var shared []newPermission
	for _, b := range bundles {
		row, err := b.row()
		if err != nil {
			return err
		}
		row.Public = from.public
		rows = append(rows, row)
		for _, g := range from.permissions {
			shared = append(shared, newPermission{BundleUUID: b.UUID, GroupUUID: g.GroupUUID, Permission: g.Permission})
		}
	}
	err := insertRows(ctx, tx, `
		INSERT INTO bundles (uuid, bundle_type, owner_id, command, state, frozen, is_anonymous, name, data_size, entries, metadata, created, tags, run_time, platform, public)
		VALUES (:uuid, :bundle_type, :owner_id, :command, :state, :frozen, CASE WHEN :is_anonymous THEN 1 ELSE 0 END, :name, :data_size, :entries, :metadata, :created, :tags, :run_time, :platform, :public)`, rows)
	if err != nil {
		return fmt.Errorf("create bundles: %w", err)
	}
	err = insertRows(ctx, tx, `INSERT INTO bundle_permissions (bundle_uuid, group_uuid, permission) VALUES (:bundle_uuid, :group_uuid, :permission)`, shared)
	return rowError(err, "share new bundles")
}

// newPermission is a permission on a new bundle (codalab/rest/bundles.py: _create_bundles).
type newPermission struct {
	BundleUUID string `db:"bundle_uuid"`
	GroupUUID  string `db:"group_uuid"`
	Permission int    `db:"permission"`
}

// insertDependencies inserts the dependencies of new bundles.
func insertDependencies(ctx context.Context, tx *sqlx.Tx, bundles []Bundle) error {
	type placed struct {
		dependencyRow
		Position int `db:"position"`
	}
	var rows []placed
	for _, b := range bundles {
		for i, d := range b.Dependencies {
			d.ChildUUID = b.UUID
			rows = append(rows, placed{dependencyRow(d), i})
		}
	}
	err := insertRows(ctx, tx, `
		INSERT INTO dependencies (child_uuid, child_path, parent_uuid, parent_path, position)
		VALUES (:child_uuid, :child_path, :parent_uuid, :parent_path, :position)`, rows)
	return rowError(err, "create dependencies")
}

// addToWorksheet shows new bundles on a worksheet (codalab/model/bundle_model.py:
// add_shadow_worksheet_items, which adds them to other worksheets too). Each comes directly behind its place, so that the
// last one is the first there. All of them move the items behind a place once.
func (s *Store) addToWorksheet(ctx context.Context, tx *sqlx.Tx, bundles []Bundle, at Place) error {
	places := []*int64{at.After}
	if at.Behind != "" {
		var keys []*int64 // the last one first, since adding items moves those behind them
		err := tx.SelectContext(ctx, &keys, tx.Rebind(`
			SELECT DISTINCT sort_key FROM worksheet_items WHERE worksheet_uuid = ? AND bundle_uuid = ? ORDER BY sort_key DESC`),
			at.Worksheet, at.Behind)
		if err != nil {
			return fmt.Errorf("show new bundles: %w", err)
		}
		if len(keys) > 0 {
			places = keys
		}
	}
	bundles = slices.Clone(bundles)
	if places[0] != nil {
		slices.Reverse(bundles)
	}
	var items []Item
	for _, b := range bundles {
		if at.Behind == "" && at.BlankBefore {
			items = append(items, Item{Type: codalab.ItemMarkup})
		}
		items = append(items, Item{Type: codalab.ItemBundle, BundleUUID: &b.UUID})
	}
	for _, after := range places {
		if err := s.addItems(ctx, tx, at.Worksheet, items, after, 0, bundles[0].Created); err != nil {
			return err
		}
	}
	return nil
}

// insertRows inserts rows by a named statement for one row, many with each statement.
func insertRows[T any](ctx context.Context, tx *sqlx.Tx, statement string, rows []T) error {
	for part := range slices.Chunk(rows, inOneStatement) {
		if _, err := tx.NamedExecContext(ctx, statement, part); err != nil {
			return err //nolint:wrapcheck // the callers name what they insert
		}
	}
	return nil
}
