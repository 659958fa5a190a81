package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// DefaultPermission says who may read a new worksheet besides its owner, and with it the bundles that are made on it.
type DefaultPermission string

// The default permissions.
const (
	// DefaultNone lets nobody read.
	DefaultNone DefaultPermission = "none"
	// DefaultGroup lets the owner's groups read: those that the owner made, and those of root with the owner as a member.
	// Another user's groups do not count, because anybody may put anybody into their own group.
	DefaultGroup DefaultPermission = "group"
	// DefaultPublic lets everybody read, as CodaLab's own server does.
	DefaultPublic DefaultPermission = "public"
)

// ParseDefaultPermission reads a default permission.
func ParseDefaultPermission(text string) (DefaultPermission, error) {
	switch p := DefaultPermission(text); p {
	case DefaultNone, DefaultGroup, DefaultPublic:
		return p, nil
	}
	return "", fmt.Errorf("%q is no default permission: want none, group or public", text)
}

// DefaultPermission returns the default permission of the data directory. If nobody has chosen one, it is DefaultPublic,
// and chosen is false: an older server or an import has made the directory.
func (s *Store) DefaultPermission(ctx context.Context) (p DefaultPermission, chosen bool, err error) {
	err = rowError(s.db.GetContext(ctx, &p, `SELECT value FROM settings WHERE name = 'default_permission'`), "read settings")
	if errors.Is(err, ErrNotFound) {
		return DefaultPublic, false, nil
	}
	return p, err == nil, err
}

// SetDefaultPermission chooses the default permission of the data directory.
func (s *Store) SetDefaultPermission(ctx context.Context, p DefaultPermission) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, tx.Rebind(`
			INSERT INTO settings (name, value) VALUES ('default_permission', ?)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`), p)
		return rowError(err, "write settings")
	})
}

// keepDefault makes an import into a new data directory keep the old server's default. It is called before the import
// adds users.
func keepDefault(ctx context.Context, tx *sqlx.Tx) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM settings WHERE name = 'default_permission' AND NOT EXISTS (SELECT 1 FROM users)`)
	return rowError(err, "write settings")
}

// grantDefault lets those read a new worksheet whom the default permission names.
func grantDefault(ctx context.Context, tx *sqlx.Tx, w Worksheet, readers DefaultPermission) error {
	switch readers {
	case DefaultPublic:
		_, err := setPermission(ctx, tx, SharedWorksheet, Permission{Object: w.UUID, GroupUUID: PublicGroup, Permission: PermissionRead})
		return err
	case DefaultGroup:
		_, err := tx.ExecContext(ctx, tx.Rebind(`
			INSERT INTO worksheet_permissions (worksheet_uuid, group_uuid, permission)
			SELECT ?, uuid, 1 FROM groups WHERE owner_id = ?
				OR owner_id = '`+RootID+`' AND uuid IN (SELECT group_uuid FROM group_members WHERE user_id = ?)`),
			w.UUID, w.OwnerID, w.OwnerID)
		return rowError(err, "share worksheet "+w.UUID)
	case DefaultNone:
	}
	return nil
}
