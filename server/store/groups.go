package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// PublicGroup is the uuid of the group "public". All users are members of it, also those who have not
// signed in.
const PublicGroup = "0x00000000000000000000000000000000"

// Group is a set of users that bundles and worksheets can be shared with.
type Group struct {
	UUID string `db:"uuid"`
	Name string `db:"name"`
	// OwnerID is nil for the group "public".
	OwnerID     *string `db:"owner_id"`
	UserDefined bool    `db:"user_defined"`
}

// Member is a user's membership in a group.
type Member struct {
	UserID    string `db:"user_id"`
	GroupUUID string `db:"group_uuid"`
	Admin     bool   `db:"is_admin"`
}

// AddGroups adds groups, all or none, with their owners as admins. It fails with ErrExists if a name is
// taken, or differs from another one by case alone, and with ErrTooMany if an owner would have more than MostGroups.
func (s *Store) AddGroups(ctx context.Context, list ...Group) error {
	var events []Event
	for _, g := range list {
		events = append(events, Event{Action: codalab.ActionCreated, Kind: "group", UUID: g.UUID, Name: g.Name})
	}
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		for _, g := range list {
			if err := checkFolded(ctx, tx, "groups", "uuid", g.Name, g.UUID); err != nil {
				return fmt.Errorf("add group %s: %w", g.Name, err)
			}
			_, err := tx.NamedExecContext(ctx, `
				INSERT INTO groups (uuid, name, owner_id, user_defined) VALUES (:uuid, :name, :owner_id, 1)`, g)
			if sqldb.IsUnique(err) {
				return fmt.Errorf("add group %s: %w", g.Name, ErrExists)
			}
			if err == nil {
				_, err = tx.NamedExecContext(ctx, `
					INSERT INTO group_members (user_id, group_uuid, is_admin) VALUES (:owner_id, :uuid, 1)`, g)
			}
			if err != nil {
				return rowError(err, "add group "+g.Name)
			}
			if g.OwnerID != nil {
				err = checkOwned(ctx, tx, "groups", *g.OwnerID, MostGroups)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return noteUnless(ctx, err, events...)
}

// DeleteGroup deletes a group, its memberships and its permissions.
func (s *Store) DeleteGroup(ctx context.Context, uuid string) error {
	var gone Event
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		if gone, err = groupEvent(ctx, tx, codalab.ActionDeleted, uuid, codalab.EventDetails{}); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, tx.Rebind(`DELETE FROM groups WHERE uuid = ?`), uuid)
		return rowError(err, "delete group "+uuid)
	})
	return noteUnless(ctx, err, gone)
}

func groupEvent(ctx context.Context, q queryer, action codalab.Action, uuid string, d codalab.EventDetails) (Event, error) {
	g, err := describeGroup(ctx, q, uuid)
	return Event{Action: action, Kind: "group", UUID: uuid, Name: g.Name, EventDetails: d}, err
}

// memberEvent is the event of a change of a group's member.
func memberEvent(ctx context.Context, q queryer, action codalab.Action, userID, group, role string) (Event, error) {
	u, err := describeUser(ctx, q, userID)
	if err != nil {
		return Event{}, err
	}
	return groupEvent(ctx, q, action, group, codalab.EventDetails{User: u, Role: role})
}

// Groups returns the groups that a user owns or is a member of, and "public", by name; all groups
// if userID is empty.
func (s *Store) Groups(ctx context.Context, userID string) ([]Group, error) {
	var groups []Group
	err := s.db.SelectContext(ctx, &groups, s.db.Rebind(`
		SELECT * FROM groups WHERE ? = '' OR uuid = ? OR owner_id = ?
			OR uuid IN (SELECT group_uuid FROM group_members WHERE user_id = ?) ORDER BY name`),
		userID, PublicGroup, userID, userID)
	return groups, rowError(err, "list groups")
}

// FindGroups returns up to two groups with this uuid, beginning of a uuid, or name.
func (s *Store) FindGroups(ctx context.Context, spec string) ([]Group, error) {
	var groups []Group
	query, args := `SELECT * FROM groups WHERE name = ?`, []any{spec}
	if len(spec) > 2 && spec[:2] == "0x" {
		query, args = `SELECT * FROM groups WHERE uuid >= ? AND uuid < ? ORDER BY uuid LIMIT 2`, []any{spec, spec + "g"}
	}
	err := s.db.SelectContext(ctx, &groups, s.db.Rebind(query), args...)
	return groups, rowError(err, "find group "+spec)
}

// Members returns the members of these groups, those of each by user id.
func (s *Store) Members(ctx context.Context, groups []string) ([]Member, error) {
	members, err := selectIn[Member](ctx, s.db, groups, `SELECT * FROM group_members WHERE group_uuid IN (?) ORDER BY user_id`)
	return members, rowError(err, "list members")
}

// SetMember adds a member to a group, or changes whether the member is an admin.
func (s *Store) SetMember(ctx context.Context, m Member) error {
	var added Event
	role := "member"
	if m.Admin {
		role = "admin"
	}
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		if added, err = memberEvent(ctx, tx, codalab.ActionAdded, m.UserID, m.GroupUUID, role); err != nil {
			return err
		}
		_, err = tx.NamedExecContext(ctx, `
			INSERT INTO group_members (user_id, group_uuid, is_admin) VALUES (:user_id, :group_uuid, CASE WHEN :is_admin THEN 1 ELSE 0 END)
			ON CONFLICT (user_id, group_uuid) DO UPDATE SET is_admin = excluded.is_admin`, m)
		return rowError(err, "add member to group "+m.GroupUUID)
	})
	return noteUnless(ctx, err, added)
}

// RemoveMember removes a member from a group.
func (s *Store) RemoveMember(ctx context.Context, userID, group string) error {
	var removed Event
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		if removed, err = memberEvent(ctx, tx, codalab.ActionRemoved, userID, group, ""); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, tx.Rebind(`DELETE FROM group_members WHERE user_id = ? AND group_uuid = ?`), userID, group)
		return rowError(err, "remove member from group "+group)
	})
	return noteUnless(ctx, err, removed)
}
