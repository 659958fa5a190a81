package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// ImportedRows writes the rows of an import. Add a row after the rows to which it refers.
type ImportedRows struct {
	store *Store
	tx    *sqlx.Tx
	now   Time
}

// rows inserts rows into a table, many with each statement. It fails with ErrExists if one has a key that
// is taken.
func (r ImportedRows) rows(ctx context.Context, table string, columns []string, rows [][]any) error {
	in := inserter{
		tx: r.tx, columns: len(columns),
		into: `INSERT INTO ` + table + ` (` + strings.Join(columns, ", ") + `) VALUES `,
	}
	var err error
	for _, row := range rows {
		if err == nil {
			err = in.add(ctx, row)
		}
	}
	if err == nil {
		err = in.flush(ctx)
	}
	if sqldb.IsUnique(err) {
		return fmt.Errorf("import %s: %w: %w", table, ErrExists, err)
	}
	return rowError(err, "import "+table)
}

// Users writes users. Their disk use is counted later.
func (r ImportedRows) Users(ctx context.Context, users []User) error {
	var rows [][]any
	for _, u := range users {
		rows = append(rows, []any{
			u.ID, u.Name, u.Password, u.Joined.micros(), u.TimeQuota, u.DiskQuota, u.ParallelRunQuota, u.TimeUsed,
			u.Email, u.FirstName, u.LastName, u.Affiliation, u.URL, u.Avatar, u.Notifications, u.LastLogin.micros(),
		})
	}
	return r.rows(ctx, "users", []string{
		"id", "name", "password", "joined", "time_quota", "disk_quota", "parallel_run_quota", "time_used",
		"email", "first_name", "last_name", "affiliation", "url", "avatar", "notifications", "last_login",
	}, rows)
}

// Groups writes groups and their members.
func (r ImportedRows) Groups(ctx context.Context, groups []Group, members []Member) error {
	var rows [][]any
	for _, g := range groups {
		rows = append(rows, []any{g.UUID, g.Name, g.OwnerID, truth(g.UserDefined)})
	}
	if err := r.rows(ctx, "groups", []string{"uuid", "name", "owner_id", "user_defined"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, m := range members {
		rows = append(rows, []any{m.UserID, m.GroupUUID, truth(m.Admin)})
	}
	return r.rows(ctx, "group_members", []string{"user_id", "group_uuid", "is_admin"}, rows)
}

// Worksheets writes worksheets, their items and their permissions. The items get ids of their own, in
// their order.
func (r ImportedRows) Worksheets(ctx context.Context, worksheets []Worksheet, items []Item, granted []Permission) error {
	var rows [][]any
	for _, w := range worksheets {
		rows = append(rows, []any{
			w.UUID, w.Name, w.OwnerID, w.Title, w.Frozen, truth(w.IsAnonymous), w.TagsJSON, w.Created.micros(), w.Modified.micros(),
		})
	}
	err := r.rows(ctx, "worksheets", []string{
		"uuid", "name", "owner_id", "title", "frozen", "is_anonymous", "tags", "created", "modified",
	}, rows)
	if err != nil {
		return err
	}
	rows = nil
	for _, item := range items {
		rows = append(rows, []any{
			r.store.items.next(r.now), item.WorksheetUUID, item.Type, item.BundleUUID, item.Subworksheet, item.Value, item.SortKey,
		})
	}
	err = r.rows(ctx, "worksheet_items", []string{
		"id", "worksheet_uuid", "type", "bundle_uuid", "subworksheet_uuid", "value", "sort_key",
	}, rows)
	if err != nil {
		return err
	}
	return r.permissions(ctx, SharedWorksheet, granted)
}

// Bundles writes bundles, their dependencies and their permissions.
func (r ImportedRows) Bundles(ctx context.Context, bundles []Bundle, granted []Permission) error {
	public := map[string]int{}
	for _, p := range granted {
		if p.GroupUUID == PublicGroup {
			public[p.Object] = p.Permission
		}
	}
	var rows, dependencies [][]any
	for _, b := range bundles {
		row, err := b.row()
		if err != nil {
			return err
		}
		rows = append(rows, []any{
			b.UUID, b.Type, b.OwnerID, b.Command, string(b.State), b.Frozen, truth(b.IsAnonymous), row.Name, b.DataSize, b.Entries,
			row.MetadataJSON, b.Created.micros(), b.Contents, row.Tags, row.RunTime, public[b.UUID],
		})
		for i, d := range b.Dependencies {
			dependencies = append(dependencies, []any{b.UUID, d.ChildPath, d.ParentUUID, d.ParentPath, i})
		}
	}
	err := r.rows(ctx, "bundles", []string{
		"uuid", "bundle_type", "owner_id", "command", "state", "frozen", "is_anonymous", "name", "data_size", "entries",
		"metadata", "created", "contents", "tags", "run_time", "public",
	}, rows)
	if err == nil {
		err = r.rows(ctx, "dependencies", []string{"child_uuid", "child_path", "parent_uuid", "parent_path", "position"}, dependencies)
	}
	if err != nil {
		return err
	}
	return r.permissions(ctx, SharedBundle, granted)
}

func (r ImportedRows) permissions(ctx context.Context, kind Shared, granted []Permission) error {
	var rows [][]any
	for _, p := range granted {
		rows = append(rows, []any{p.Object, p.GroupUUID, p.Permission})
	}
	return r.rows(ctx, kind.table(), []string{kind.column(), "group_uuid", "permission"}, rows)
}

// truth is a truth value as the database has it.
func truth(is bool) int {
	if is {
		return 1
	}
	return 0
}
