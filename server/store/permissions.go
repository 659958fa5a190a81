package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The permissions of CodaLab (codalab/model/tables.py: GROUP_OBJECT_PERMISSION_*).
const (
	PermissionNone = codalab.PermissionNone
	PermissionRead = codalab.PermissionRead
	PermissionAll  = codalab.PermissionAll
)

// Shared is a kind of objects that can be shared with groups.
type Shared string

// The kinds of shared objects.
const (
	SharedBundle    Shared = "bundle"
	SharedWorksheet Shared = "worksheet"
)

func (k Shared) table() string  { return string(k) + "_permissions" }
func (k Shared) column() string { return string(k) + "_uuid" }

// Permission is a group's permission on an object.
type Permission struct {
	Object    string `db:"object"`
	GroupUUID string `db:"group_uuid"`
	GroupName string `db:"group_name"`
	// Permission is PermissionNone, PermissionRead or PermissionAll.
	Permission int `db:"permission"`
}

// memberOf is the condition that a user, whose id is its one argument, is a member of a group.
const memberOf = `(group_uuid = '` + PublicGroup + `' OR group_uuid IN (SELECT group_uuid FROM group_members WHERE user_id = ?))`

// readable is the condition that a user may read an object of the kind, and its arguments.
func (k Shared) readable(u User) (condition string, args []any) {
	if u.Root() {
		return "1 = 1", nil
	}
	return `(owner_id = ? OR uuid IN (SELECT ` + k.column() + ` FROM ` + k.table() + ` WHERE permission > 0 AND ` + memberOf + `))`, []any{u.ID, u.ID}
}

// Granted returns the permissions that a user's groups have on objects; objects without any are left out. An
// empty user id is that of a user who has not signed in.
func (s *Store) Granted(ctx context.Context, kind Shared, userID string, uuids []string) (map[string]int, error) {
	found, err := selectIn[Permission](ctx, s.db, uuids, `
		SELECT `+kind.column()+` AS object, max(permission) AS permission FROM `+kind.table()+`
		WHERE `+kind.column()+` IN (?) AND `+memberOf+` GROUP BY `+kind.column(), userID)
	granted := make(map[string]int, len(found))
	for _, p := range found {
		granted[p.Object] = p.Permission
	}
	return granted, rowError(err, "get permissions")
}

// Permissions returns the permissions of groups on objects, by object, in the order of the groups' names.
func (s *Store) Permissions(ctx context.Context, kind Shared, uuids []string) (map[string][]Permission, error) {
	found, err := selectIn[Permission](ctx, s.db, uuids, `
		SELECT p.`+kind.column()+` AS object, p.group_uuid, g.name AS group_name, p.permission
		FROM `+kind.table()+` p JOIN groups g ON g.uuid = p.group_uuid
		WHERE p.`+kind.column()+` IN (?) ORDER BY g.name`)
	byObject := map[string][]Permission{}
	for _, p := range found {
		byObject[p.Object] = append(byObject[p.Object], p)
	}
	return byObject, rowError(err, "list permissions")
}

// SetPermissions sets permissions of groups on objects of a kind, changedAtOnce of them in each transaction. It notes nothing
// of those that groups have already.
func (s *Store) SetPermissions(ctx context.Context, kind Shared, list ...Permission) error {
	for part := range slices.Chunk(list, changedAtOnce) {
		var shared []Event
		err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
			shared = nil
			for _, p := range part {
				changed, err := setPermission(ctx, tx, kind, p)
				if err != nil {
					return err
				}
				if changed {
					shared = append(shared, sharedEvent(kind, p))
				}
			}
			if err := nameShared(ctx, tx, kind, shared); err != nil || kind != SharedBundle {
				return err
			}
			return writeHistories(ctx, tx, shared)
		})
		if err := noteUnless(ctx, err, shared...); err != nil {
			return err
		}
	}
	return nil
}

// sharedEvent is the event of a changed permission, without names.
func sharedEvent(kind Shared, p Permission) Event {
	return Event{Action: codalab.ActionShared, Kind: string(kind), UUID: p.Object, EventDetails: codalab.EventDetails{
		Groups: []codalab.Granted{{Group: codalab.Named{ID: p.GroupUUID}, Permission: codalab.PermissionSpec(p.Permission)}},
	}}
}

// nameShared names the objects and the groups of events of one kind. An object or a group that is gone has no name.
func nameShared(ctx context.Context, tx *sqlx.Tx, kind Shared, events []Event) error {
	var objects, groups []string
	for _, e := range events {
		objects, groups = append(objects, e.UUID), append(groups, e.Groups[0].Group.ID)
	}
	nameOf := map[string]string{}
	for _, of := range []struct {
		table string
		uuids []string
	}{{string(kind) + "s", objects}, {"groups", groups}} {
		found, err := selectIn[struct{ UUID, Name string }](ctx, tx, of.uuids, `SELECT uuid, name FROM `+of.table+` WHERE uuid IN (?)`)
		if err != nil {
			return fmt.Errorf("get names of shared objects: %w", err)
		}
		for _, row := range found {
			nameOf[row.UUID] = row.Name
		}
	}
	for i := range events {
		events[i].Name = nameOf[events[i].UUID]
		events[i].Groups[0].Group.Name = nameOf[events[i].Groups[0].Group.ID]
	}
	return nil
}

// setPermission sets a permission, and returns whether the group had another one.
func setPermission(ctx context.Context, tx *sqlx.Tx, kind Shared, p Permission) (changed bool, err error) {
	var result sql.Result
	if p.Permission == PermissionNone {
		result, err = tx.NamedExecContext(ctx, `DELETE FROM `+kind.table()+` WHERE `+kind.column()+` = :object AND group_uuid = :group_uuid`, p)
	} else {
		result, err = tx.NamedExecContext(ctx, `
			INSERT INTO `+kind.table()+` (`+kind.column()+`, group_uuid, permission) VALUES (:object, :group_uuid, :permission)
			ON CONFLICT (`+kind.column()+`, group_uuid) DO UPDATE SET permission = excluded.permission
			WHERE `+kind.table()+`.permission <> excluded.permission`, p)
	}
	var rows int64
	if err == nil {
		rows, err = result.RowsAffected()
	}
	if err == nil && kind == SharedBundle && p.GroupUUID == PublicGroup {
		_, err = tx.NamedExecContext(ctx, `UPDATE bundles SET public = :permission WHERE uuid = :object`, p)
	}
	return rows > 0, rowError(err, "set permission on "+p.Object)
}

// inherited is the place where bundles are created, and what groups may do there.
type inherited struct {
	worksheet   codalab.Named
	public      int
	permissions []Permission
	granted     []codalab.Granted // the same, for people
}

// details are those of the creation of a bundle.
func (from inherited) details() codalab.EventDetails {
	if from.worksheet.ID == "" {
		return codalab.EventDetails{}
	}
	return codalab.EventDetails{Worksheet: &from.worksheet, Groups: from.granted}
}

// readInherited reads what bundles inherit from their worksheet; nothing if worksheetUUID is empty. It fails with
// ErrNotFound if there is no such worksheet.
func readInherited(ctx context.Context, tx *sqlx.Tx, worksheetUUID string) (inherited, error) {
	from := inherited{worksheet: codalab.Named{ID: worksheetUUID}}
	if worksheetUUID == "" {
		return from, nil
	}
	var rows []struct {
		Name       string  `db:"name"`
		GroupUUID  *string `db:"group_uuid"`
		GroupName  *string `db:"group_name"`
		Permission *int    `db:"permission"`
	}
	err := tx.SelectContext(ctx, &rows, tx.Rebind(`
		SELECT w.name, p.group_uuid, g.name AS group_name, p.permission FROM worksheets w
		LEFT JOIN worksheet_permissions p ON p.worksheet_uuid = w.uuid LEFT JOIN groups g ON g.uuid = p.group_uuid
		WHERE w.uuid = ? ORDER BY g.name`), worksheetUUID)
	if err == nil && len(rows) == 0 {
		err = ErrNotFound
	}
	for _, row := range rows {
		from.worksheet.Name = row.Name
		if row.GroupUUID == nil || row.GroupName == nil || row.Permission == nil {
			continue
		}
		if *row.GroupUUID == PublicGroup {
			from.public = *row.Permission
		}
		from.permissions = append(from.permissions, Permission{GroupUUID: *row.GroupUUID, GroupName: *row.GroupName, Permission: *row.Permission})
		from.granted = append(from.granted, codalab.Granted{
			Group: codalab.Named{ID: *row.GroupUUID, Name: *row.GroupName}, Permission: codalab.PermissionSpec(*row.Permission),
		})
	}
	return from, rowError(err, "read permissions of worksheet "+worksheetUUID)
}
