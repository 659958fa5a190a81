package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// BundlesByPrefix returns up to two uuids of bundles that a user may read and that begin with
// prefix.
func (s *Store) BundlesByPrefix(ctx context.Context, prefix string, u User) ([]string, error) {
	readable, args := SharedBundle.readable(u)
	var uuids []string
	err := s.db.SelectContext(ctx, &uuids, s.db.Rebind(`
		SELECT uuid FROM bundles WHERE uuid >= ? AND uuid < ? AND `+readable+` ORDER BY uuid LIMIT 2`),
		append([]any{prefix, prefix + "g"}, args...)...) // g follows the hexadecimal digits
	return uuids, rowError(err, "find bundle "+prefix)
}

// BundlesOnWorksheet returns up to limit uuids of a worksheet's bundles, newest first; those that do not exist count, too,
// so that nobody finds out by a place on a worksheet whether a bundle exists. If name is not empty, only bundles with this
// name that the user may read count; "%" in it stands for any text.
func (s *Store) BundlesOnWorksheet(ctx context.Context, u User, worksheetUUID, name string, limit int) ([]string, error) {
	var uuids []string
	if name == "" {
		err := s.db.SelectContext(ctx, &uuids, s.db.Rebind(`
			SELECT bundle_uuid FROM worksheet_items WHERE worksheet_uuid = ? AND bundle_uuid IS NOT NULL
			GROUP BY bundle_uuid ORDER BY max(id) DESC LIMIT ?`), worksheetUUID, limit)
		return uuids, rowError(err, "list bundles of worksheet "+worksheetUUID)
	}
	readable, args := SharedBundle.readable(u)
	match, arg := "b.name = ?", name
	if strings.Contains(name, "%") {
		match, arg = `lower(b.name) LIKE lower(?) ESCAPE '\'`, strings.NewReplacer(`\`, `\\`, "_", `\_`).Replace(name)
	}
	err := s.db.SelectContext(ctx, &uuids, s.db.Rebind(`
		SELECT b.uuid FROM worksheet_items i JOIN bundles b ON b.uuid = i.bundle_uuid
		WHERE i.worksheet_uuid = ? AND `+match+` AND `+readable+`
		GROUP BY b.uuid ORDER BY max(i.id) DESC LIMIT ?`), append(append([]any{worksheetUUID, arg}, args...), limit)...)
	return uuids, rowError(err, "find bundle "+name)
}

// distinct returns the different ids of a list in order, without the empty one, which names nothing.
func distinct(ids []string) []string {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) > 0 && ids[0] == "" {
		return ids[1:]
	}
	return ids
}

// selectIn returns the rows of a query with one IN (?) for all of these uuids, which may be repeated or empty.
// It asks for some of them at a time, without an order between the parts. args are the arguments behind the
// uuids.
func selectIn[T any](ctx context.Context, q queryer, uuids []string, query string, args ...any) ([]T, error) {
	var all []T
	for part := range slices.Chunk(distinct(uuids), inOneStatement) {
		for len(part)&(len(part)-1) != 0 { // lists of few lengths make few statements, which the database need not compile again
			part = append(part, part[0])
		}
		text, values, err := sqlx.In(query, append([]any{part}, args...)...)
		if err != nil {
			return nil, fmt.Errorf("expand a list: %w", err)
		}
		var some []T
		if err := q.SelectContext(ctx, &some, q.Rebind(text), values...); err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// WaitingChildren returns the uuids of the bundles that depend on any of these bundles and are not
// staged yet.
func (s *Store) WaitingChildren(ctx context.Context, uuids []string) ([]string, error) {
	children, err := selectIn[string](ctx, s.db, uuids, `
		SELECT DISTINCT d.child_uuid FROM dependencies d JOIN bundles b ON b.uuid = d.child_uuid
		WHERE d.parent_uuid IN (?) AND b.state = 'created'`)
	return children, rowError(err, "list waiting children")
}

// ChildrenOf returns the uuids of the bundles that depend on any of these bundles.
func (s *Store) ChildrenOf(ctx context.Context, uuids []string) ([]string, error) {
	children, err := selectIn[string](ctx, s.db, uuids, `
		SELECT DISTINCT child_uuid FROM dependencies WHERE parent_uuid IN (?) ORDER BY child_uuid`)
	return children, rowError(err, "list children")
}

// HostsOf returns the worksheets that contain one of these bundles, by bundle.
func (s *Store) HostsOf(ctx context.Context, uuids []string) (map[string][]Worksheet, error) {
	type row struct {
		BundleUUID string `db:"bundle_uuid"`
		Worksheet
	}
	rows, err := selectIn[row](ctx, s.db, uuids, `
		SELECT DISTINCT i.bundle_uuid, w.* FROM worksheet_items i JOIN worksheets w ON w.uuid = i.worksheet_uuid
		WHERE i.bundle_uuid IN (?) ORDER BY w.created`)
	hosts := map[string][]Worksheet{}
	for _, row := range rows {
		hosts[row.BundleUUID] = append(hosts[row.BundleUUID], row.Worksheet)
	}
	return hosts, rowError(err, "list worksheets")
}

// RunsOf returns the uuids of an owner's bundles that have this command, oldest first.
func (s *Store) RunsOf(ctx context.Context, owner, command string) ([]string, error) {
	var uuids []string
	err := s.db.SelectContext(ctx, &uuids, s.db.Rebind(`
		SELECT uuid FROM bundles WHERE owner_id = ? AND command = ? ORDER BY created, uuid`), owner, command)
	return uuids, rowError(err, "find runs of a command")
}

// Unfinished returns the uuids of all bundles that are not in a final state, oldest first.
func (s *Store) Unfinished(ctx context.Context) ([]string, error) {
	var uuids []string
	err := s.db.SelectContext(ctx, &uuids, `
		SELECT uuid FROM bundles WHERE state NOT IN ('ready', 'failed', 'killed') ORDER BY created`)
	return uuids, rowError(err, "list unfinished bundles")
}

// CreatedBefore returns some of the oldest bundles in these states that were created before a time.
func (s *Store) CreatedBefore(ctx context.Context, before time.Time, states ...codalab.State) ([]string, error) {
	query, args, err := sqlx.In(`SELECT uuid FROM bundles WHERE state IN (?) AND created < ? ORDER BY created LIMIT ?`,
		states, Time{before}, inOneStatement)
	if err != nil {
		return nil, fmt.Errorf("list old bundles: %w", err)
	}
	var uuids []string
	err = s.db.SelectContext(ctx, &uuids, s.db.Rebind(query), args...)
	return uuids, rowError(err, "list old bundles")
}

// Parent has the fields of a parent that decide whether a child can be staged.
type Parent struct {
	UUID    string        `db:"uuid"`
	OwnerID string        `db:"owner_id"`
	State   codalab.State `db:"state"`
	// Granted is the permission that the child's owner has by way of groups.
	Granted int `db:"granted"`
}

// Parents returns the parents of bundles that exist, by child.
func (s *Store) Parents(ctx context.Context, uuids []string) (map[string][]Parent, error) {
	type row struct {
		Child string `db:"child"`
		Parent
	}
	rows, err := selectIn[row](ctx, s.db, uuids, `
		SELECT d.child_uuid AS child, p.uuid, p.owner_id, p.state, coalesce((
			SELECT max(permission) FROM bundle_permissions WHERE bundle_uuid = p.uuid AND (group_uuid = '`+PublicGroup+`'
				OR group_uuid IN (SELECT group_uuid FROM group_members WHERE user_id = c.owner_id))
		), 0) AS granted
		FROM dependencies d JOIN bundles c ON c.uuid = d.child_uuid JOIN bundles p ON p.uuid = d.parent_uuid
		WHERE d.child_uuid IN (?)`)
	parents := map[string][]Parent{}
	for _, row := range rows {
		parents[row.Child] = append(parents[row.Child], row.Parent)
	}
	return parents, rowError(err, "list parents")
}
