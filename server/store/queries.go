package store

import (
	"context"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// BundlesByPrefix returns up to two uuids of the owner's bundles that begin with prefix; of
// all bundles if owner is empty.
func (s *Store) BundlesByPrefix(ctx context.Context, prefix, owner string) ([]string, error) {
	var uuids []string
	err := s.db.SelectContext(ctx, &uuids, s.db.Rebind(`
		SELECT uuid FROM bundles WHERE uuid >= ? AND uuid < ? AND (? = '' OR owner_id = ?) ORDER BY uuid LIMIT 2`),
		prefix, prefix+"g", owner, owner) // g follows the hexadecimal digits
	return uuids, rowError(err, "find bundle "+prefix)
}

// BundlesOnWorksheet returns up to limit uuids of a worksheet's bundles, newest first. If name
// is not empty, only bundles with this name count; "%" in it stands for any text.
func (s *Store) BundlesOnWorksheet(ctx context.Context, worksheetUUID, name string, limit int) ([]string, error) {
	match, arg := "? = ''", ""
	switch {
	case strings.Contains(name, "%"):
		match, arg = `b.name LIKE ? ESCAPE '\'`, strings.NewReplacer(`\`, `\\`, "_", `\_`).Replace(name)
	case name != "":
		match, arg = "b.name = ?", name
	}
	var uuids []string
	err := s.db.SelectContext(ctx, &uuids, s.db.Rebind(`
		SELECT b.uuid FROM worksheet_items i JOIN bundles b ON b.uuid = i.bundle_uuid
		WHERE i.worksheet_uuid = ? AND `+match+`
		GROUP BY b.uuid ORDER BY max(i.id) DESC LIMIT ?`), worksheetUUID, arg, limit)
	return uuids, rowError(err, "find bundle "+name)
}

// Children returns the uuids of the bundles that depend on a bundle.
func (s *Store) Children(ctx context.Context, uuid string) ([]string, error) {
	var uuids []string
	err := s.db.SelectContext(ctx, &uuids, s.db.Rebind(`
		SELECT DISTINCT child_uuid FROM dependencies WHERE parent_uuid = ?`), uuid)
	return uuids, rowError(err, "list children of bundle "+uuid)
}

// Unfinished returns the uuids of all bundles that are not in a final state, oldest first.
func (s *Store) Unfinished(ctx context.Context) ([]string, error) {
	var uuids []string
	err := s.db.SelectContext(ctx, &uuids, `
		SELECT uuid FROM bundles WHERE state NOT IN ('ready', 'failed', 'killed') ORDER BY created`)
	return uuids, rowError(err, "list unfinished bundles")
}

// Parent is what the staging of a child needs to know of a parent.
type Parent struct {
	UUID    string        `db:"uuid"`
	OwnerID string        `db:"owner_id"`
	State   codalab.State `db:"state"`
}

// Parents returns the parents of a bundle that exist.
func (s *Store) Parents(ctx context.Context, uuid string) ([]Parent, error) {
	var parents []Parent
	err := s.db.SelectContext(ctx, &parents, s.db.Rebind(`
		SELECT uuid, owner_id, state FROM bundles
		WHERE uuid IN (SELECT parent_uuid FROM dependencies WHERE child_uuid = ?)`), uuid)
	return parents, rowError(err, "list parents of bundle "+uuid)
}
