package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// reference is a column whose values are keys of another table.
type reference struct {
	table, column string
	to, key       string
	// drop means that a row without the other one is useless, and Check may delete it.
	drop bool
}

// references returns the references that must lead to a row. Two other references may lead
// nowhere: a dependency's parent may be deleted, and a worksheet may show deleted bundles and
// worksheets.
func references() []reference {
	return []reference{
		{"bundles", "owner_id", "users", "id", false},
		{"worksheets", "owner_id", "users", "id", false},
		{"groups", "owner_id", "users", "id", false},
		{"sessions", "user_id", "users", "id", true},
		{"grants", "session_id", "sessions", "id", true},
		{"known_clients", "user_id", "users", "id", true},
		{"password_resets", "user_id", "users", "id", true},
		{"confirmations", "user_id", "users", "id", true},
		{"identities", "user_id", "users", "id", true},
		{"program_tokens", "user_id", "users", "id", true},
		{"worker_tokens", "user_id", "users", "id", true},
		{"worker_tokens", "made_by", "program_tokens", "id", true},
		{"worker_scopes", "user_id", "users", "id", true},
		{"secrets", "user_id", "users", "id", true},
		{"dependencies", "child_uuid", "bundles", "uuid", true},
		{"worksheet_items", "worksheet_uuid", "worksheets", "uuid", true},
		{"group_members", "user_id", "users", "id", true},
		{"group_members", "group_uuid", "groups", "uuid", true},
		{"bundle_permissions", "bundle_uuid", "bundles", "uuid", true},
		{"bundle_permissions", "group_uuid", "groups", "uuid", true},
		{"bundle_history", "bundle_uuid", "bundles", "uuid", true},
		{"bundle_usage", "bundle_uuid", "bundles", "uuid", true},
		{"worksheet_permissions", "worksheet_uuid", "worksheets", "uuid", true},
		{"worksheet_permissions", "group_uuid", "groups", "uuid", true},
	}
}

// checkRows finds rows that contradict other rows, and permissions that mean nothing.
func (c *checker) checkRows(ctx context.Context) error {
	for _, r := range references() {
		if err := c.checkReference(ctx, r); err != nil {
			return err
		}
	}
	for _, kind := range []Shared{SharedBundle, SharedWorksheet} {
		var wrong []string
		err := c.db.SelectContext(ctx, &wrong, `SELECT DISTINCT `+kind.column()+` FROM `+kind.table()+` WHERE permission NOT IN (1, 2)`)
		if err != nil {
			return fmt.Errorf("check table %s: %w", kind.table(), err)
		}
		for _, uuid := range wrong {
			c.report(Finding{Kind: FindingRow, Object: kind.table(), Problem: "a permission on " + uuid + " is neither 1 (read) nor 2 (all)"})
		}
	}
	return c.checkPublic(ctx)
}

// checkPublic compares the column public of bundles with the permissions of the group "public".
func (c *checker) checkPublic(ctx context.Context) error {
	const granted = `COALESCE((SELECT permission FROM bundle_permissions p WHERE p.bundle_uuid = bundles.uuid AND p.group_uuid = ?), 0)`
	var wrong []string
	err := c.db.SelectContext(ctx, &wrong, c.db.Rebind(`SELECT uuid FROM bundles WHERE public <> `+granted+` ORDER BY uuid`), PublicGroup)
	if err != nil {
		return fmt.Errorf("check table bundles: %w", err)
	}
	for _, uuid := range wrong {
		f := Finding{Kind: FindingRow, Object: "bundles", Problem: "searches have another permission of the group public on " + uuid + " than its row of bundle_permissions"}
		err := c.found(f, func() error {
			return c.db.InTx(ctx, func(tx *sqlx.Tx) error {
				_, err := tx.ExecContext(ctx, tx.Rebind(`UPDATE bundles SET public = `+granted+` WHERE uuid = ?`), PublicGroup, uuid)
				return rowError(err, "set public")
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) checkReference(ctx context.Context, r reference) error {
	lost := ` FROM ` + r.table + ` WHERE ` + r.column + ` IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM ` + r.to + ` other WHERE other.` + r.key + ` = ` + r.table + `.` + r.column + `)`
	var gone []struct {
		ID   string `db:"gone"`
		Rows int    `db:"n"`
	}
	err := c.db.SelectContext(ctx, &gone, `SELECT `+r.column+` AS gone, count(*) AS n`+lost+` GROUP BY `+r.column)
	if err != nil {
		return fmt.Errorf("check table %s: %w", r.table, err)
	}
	for _, g := range gone {
		var mend func() error
		if r.drop {
			mend = func() error {
				return c.db.InTx(ctx, func(tx *sqlx.Tx) error {
					_, err := tx.ExecContext(ctx, tx.Rebind(`DELETE`+lost+` AND `+r.column+` = ?`), g.ID)
					return rowError(err, "delete rows")
				})
			}
		}
		f := Finding{Kind: FindingRow, Object: r.table, Problem: fmt.Sprintf("%s %s, which %d rows name, is not in table %s", r.column, g.ID, g.Rows, r.to)}
		if err := c.found(f, mend); err != nil {
			return err
		}
	}
	return nil
}
