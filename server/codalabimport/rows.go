package codalabimport

import (
	"context"
	"database/sql"
)

// The rows of CodaLab's database, as far as the import reads them.

type userRow struct {
	ID               string         `db:"user_id"`
	Name             string         `db:"user_name"`
	Email            string         `db:"email"`
	Notifications    int            `db:"notifications"`
	LastLogin        sql.NullTime   `db:"last_login"`
	IsActive         bool           `db:"is_active"`
	IsVerified       bool           `db:"is_verified"`
	FirstName        sql.NullString `db:"first_name"`
	LastName         sql.NullString `db:"last_name"`
	Joined           sql.NullTime   `db:"date_joined"`
	Password         string         `db:"password"`
	Affiliation      sql.NullString `db:"affiliation"`
	URL              sql.NullString `db:"url"`
	AvatarID         sql.NullString `db:"avatar_id"`
	TimeQuota        float64        `db:"time_quota"`
	ParallelRunQuota int64          `db:"parallel_run_quota"`
	TimeUsed         float64        `db:"time_used"`
	DiskQuota        float64        `db:"disk_quota"`
}

// users are all users. The addition of 0e0 makes a double of a float, which MySQL would otherwise send with
// six digits.
func (s snapshot) users(ctx context.Context) ([]userRow, error) {
	return list[userRow](ctx, s, "SELECT user_id, user_name, email, notifications, last_login, is_active, is_verified,"+
		" first_name, last_name, date_joined, password, affiliation, url, avatar_id, time_quota + 0e0 AS time_quota, parallel_run_quota,"+
		" time_used + 0e0 AS time_used, disk_quota + 0e0 AS disk_quota FROM `user` ORDER BY id")
}

type groupRow struct {
	UUID        string         `db:"uuid"`
	Name        string         `db:"name"`
	UserDefined sql.NullBool   `db:"user_defined"`
	OwnerID     sql.NullString `db:"owner_id"`
}

func (s snapshot) groups(ctx context.Context) ([]groupRow, error) {
	return list[groupRow](ctx, s, "SELECT uuid, name, user_defined, owner_id FROM `group` ORDER BY id")
}

type memberRow struct {
	Group   string       `db:"group_uuid"`
	UserID  string       `db:"user_id"`
	IsAdmin sql.NullBool `db:"is_admin"`
}

func (s snapshot) members(ctx context.Context) ([]memberRow, error) {
	return list[memberRow](ctx, s, "SELECT group_uuid, user_id, is_admin FROM user_group ORDER BY id")
}

// permissionRow is a group's permission on a bundle or a worksheet.
type permissionRow struct {
	Group      string `db:"group_uuid"`
	Object     string `db:"object_uuid"`
	Permission int    `db:"permission"`
}

type worksheetRow struct {
	ID          int64          `db:"id"`
	UUID        string         `db:"uuid"`
	Name        string         `db:"name"`
	OwnerID     sql.NullString `db:"owner_id"`
	Title       sql.NullString `db:"title"`
	Frozen      sql.NullTime   `db:"frozen"`
	IsAnonymous bool           `db:"is_anonymous"`
	Created     sql.NullTime   `db:"date_created"`
	Modified    sql.NullTime   `db:"date_last_modified"`

	Tags    []string        `db:"-"`
	Items   []itemRow       `db:"-"`
	Granted []permissionRow `db:"-"`
}

type itemRow struct {
	Worksheet    string         `db:"worksheet_uuid"`
	Bundle       sql.NullString `db:"bundle_uuid"`
	Subworksheet sql.NullString `db:"subworksheet_uuid"`
	Value        string         `db:"value"`
	Type         string         `db:"type"`
	SortKey      int64          `db:"sort_key"`
}

// atOnce is the number of bundles or worksheets that are read at once.
const atOnce = 500

// worksheets calls use with all worksheets, some at a time. An item without a sort key is sorted by its
// id (codalab/objects/worksheet.py: item_sort_key).
func (s snapshot) worksheets(ctx context.Context, use func([]worksheetRow) error) error {
	last := int64(-1)
	for {
		rows, err := list[worksheetRow](ctx, s, `
			SELECT id, uuid, name, owner_id, title, frozen, is_anonymous, date_created, date_last_modified
			FROM worksheet WHERE id > ? ORDER BY id LIMIT ?`, last, atOnce)
		if err != nil || len(rows) == 0 {
			return err
		}
		last = rows[len(rows)-1].ID
		uuids, byUUID := make([]string, len(rows)), map[string]*worksheetRow{}
		for i := range rows {
			uuids[i], byUUID[rows[i].UUID] = rows[i].UUID, &rows[i]
		}
		tags, err := listOf[struct {
			Worksheet string `db:"worksheet_uuid"`
			Tag       string `db:"tag"`
		}](ctx, s, `SELECT worksheet_uuid, tag FROM worksheet_tag WHERE worksheet_uuid IN (?) ORDER BY id`, uuids)
		if err != nil {
			return err
		}
		items, err := listOf[itemRow](ctx, s, `
			SELECT worksheet_uuid, bundle_uuid, subworksheet_uuid, value, type, coalesce(sort_key, id) AS sort_key
			FROM worksheet_item WHERE worksheet_uuid IN (?) ORDER BY id`, uuids)
		if err != nil {
			return err
		}
		granted, err := listOf[permissionRow](ctx, s, `
			SELECT group_uuid, object_uuid, permission FROM group_object_permission WHERE object_uuid IN (?) ORDER BY id`, uuids)
		if err != nil {
			return err
		}
		for _, t := range tags {
			add(byUUID, t.Worksheet, func(w *worksheetRow) { w.Tags = append(w.Tags, t.Tag) })
		}
		for _, item := range items {
			add(byUUID, item.Worksheet, func(w *worksheetRow) { w.Items = append(w.Items, item) })
		}
		for _, p := range granted {
			add(byUUID, p.Object, func(w *worksheetRow) { w.Granted = append(w.Granted, p) })
		}
		if err := use(rows); err != nil {
			return err
		}
	}
}

// add calls do with the row of a uuid, if there is one.
func add[T any](rows map[string]*T, uuid string, do func(*T)) {
	if row := rows[uuid]; row != nil {
		do(row)
	}
}

type bundleRow struct {
	ID          int64          `db:"id"`
	UUID        string         `db:"uuid"`
	Type        string         `db:"bundle_type"`
	Command     sql.NullString `db:"command"`
	State       string         `db:"state"`
	OwnerID     sql.NullString `db:"owner_id"`
	Frozen      sql.NullTime   `db:"frozen"`
	IsAnonymous bool           `db:"is_anonymous"`
	// StorageType is empty, "disk" or "azure_blob", for bundles without a row in Locations.
	StorageType sql.NullString `db:"storage_type"`

	Metadata     []metadataRow   `db:"-"`
	Dependencies []dependencyRow `db:"-"`
	Granted      []permissionRow `db:"-"`
	Locations    []locationRow   `db:"-"`
}

type metadataRow struct {
	Bundle string `db:"bundle_uuid"`
	Key    string `db:"metadata_key"`
	Value  string `db:"metadata_value"`
}

type dependencyRow struct {
	Child      string `db:"child_uuid"`
	ChildPath  string `db:"child_path"`
	Parent     string `db:"parent_uuid"`
	ParentPath string `db:"parent_path"`
}

// locationRow is a bundle store that has a bundle's contents.
type locationRow struct {
	Bundle      string         `db:"bundle_uuid"`
	Store       string         `db:"name"`
	StorageType sql.NullString `db:"storage_type"`
}

// countBundles returns the number of bundles.
func (s snapshot) countBundles(ctx context.Context) (int64, error) {
	n, err := list[int64](ctx, s, `SELECT count(*) FROM bundle`)
	if err != nil {
		return 0, err
	}
	return n[0], nil
}

// bundles calls use with all bundles, some at a time.
func (s snapshot) bundles(ctx context.Context, use func([]bundleRow) error) error {
	last := int64(-1)
	for {
		rows, err := list[bundleRow](ctx, s, `
			SELECT id, uuid, bundle_type, command, state, owner_id, frozen, is_anonymous, storage_type
			FROM bundle WHERE id > ? ORDER BY id LIMIT ?`, last, atOnce)
		if err != nil || len(rows) == 0 {
			return err
		}
		last = rows[len(rows)-1].ID
		if err := s.complete(ctx, rows); err != nil {
			return err
		}
		if err := use(rows); err != nil {
			return err
		}
	}
}

// complete adds the columns of other tables to some bundles.
func (s snapshot) complete(ctx context.Context, rows []bundleRow) error {
	uuids, byUUID := make([]string, len(rows)), map[string]*bundleRow{}
	for i := range rows {
		uuids[i], byUUID[rows[i].UUID] = rows[i].UUID, &rows[i]
	}
	metadata, err := listOf[metadataRow](ctx, s, `
		SELECT bundle_uuid, metadata_key, metadata_value FROM bundle_metadata WHERE bundle_uuid IN (?) ORDER BY id`, uuids)
	if err != nil {
		return err
	}
	dependencies, err := listOf[dependencyRow](ctx, s, `
		SELECT child_uuid, child_path, parent_uuid, parent_path FROM bundle_dependency WHERE child_uuid IN (?) ORDER BY id`, uuids)
	if err != nil {
		return err
	}
	granted, err := listOf[permissionRow](ctx, s, `
		SELECT group_uuid, object_uuid, permission FROM group_bundle_permission WHERE object_uuid IN (?) ORDER BY id`, uuids)
	if err != nil {
		return err
	}
	locations, err := listOf[locationRow](ctx, s, `
		SELECT l.bundle_uuid, s.name, s.storage_type FROM bundle_location l JOIN bundle_store s ON s.uuid = l.bundle_store_uuid
		WHERE l.bundle_uuid IN (?) ORDER BY l.id`, uuids)
	if err != nil {
		return err
	}
	for _, m := range metadata {
		add(byUUID, m.Bundle, func(b *bundleRow) { b.Metadata = append(b.Metadata, m) })
	}
	for _, d := range dependencies {
		add(byUUID, d.Child, func(b *bundleRow) { b.Dependencies = append(b.Dependencies, d) })
	}
	for _, p := range granted {
		add(byUUID, p.Object, func(b *bundleRow) { b.Granted = append(b.Granted, p) })
	}
	for _, l := range locations {
		add(byUUID, l.Bundle, func(b *bundleRow) { b.Locations = append(b.Locations, l) })
	}
	return nil
}
