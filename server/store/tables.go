package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"
)

// tables returns the tables of a backup, each after the tables to which its rows refer. The
// table data_directory is not among them: a restored directory gets an id of its own.
func tables() []string {
	return []string{
		"users", "sessions", "grants", "known_clients", "password_resets", "confirmations", "identities", "program_tokens", "worker_tokens", "secrets", "groups", "group_members", "worker_scopes", "worksheets", "worksheet_permissions", "worksheet_items",
		"bundles", "bundle_permissions", "bundle_history", "bundle_values", "bundle_usage", "dependencies", "deleted_bundles", "imports", "settings", "former_names", "seen_queues", "notices", "notice_bundles",
	}
}

// copyTables replaces all rows of one database by those of another, which has the same form. One
// may be SQLite and the other PostgreSQL.
func copyTables(ctx context.Context, from *sqlx.Conn, to *sqlx.Tx) error {
	for _, table := range slices.Backward(tables()) {
		if _, err := to.ExecContext(ctx, `DELETE FROM `+table); err != nil {
			return fmt.Errorf("empty table %s: %w", table, err)
		}
	}
	for _, table := range tables() {
		if err := copyTable(ctx, table, from, to); err != nil {
			return fmt.Errorf("copy table %s: %w", table, err)
		}
	}
	return nil
}

func copyTable(ctx context.Context, table string, from *sqlx.Conn, to *sqlx.Tx) error {
	rows, err := from.QueryxContext(ctx, `SELECT * FROM `+table)
	if err != nil {
		return err //nolint:wrapcheck // copyTables names the table
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	in := inserter{tx: to, into: `INSERT INTO ` + table + ` (` + strings.Join(columns, ", ") + `) VALUES `, columns: len(columns)}
	for rows.Next() {
		values, err := rows.SliceScan()
		if err != nil {
			return err //nolint:wrapcheck // as above
		}
		if err := in.add(ctx, values); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err //nolint:wrapcheck // as above
	}
	return in.flush(ctx)
}

// inserter inserts rows, many with each statement.
type inserter struct {
	tx      *sqlx.Tx
	into    string
	columns int
	values  []any // of the rows that are not inserted yet
}

// insertedAtOnce is the number of values that one statement inserts; SQLite allows 32766.
const insertedAtOnce = 2000

func (in *inserter) add(ctx context.Context, row []any) error {
	for _, value := range row {
		if text, ok := value.([]byte); ok { // all columns are integers and texts
			value = string(text)
		}
		in.values = append(in.values, value)
	}
	if len(in.values) < insertedAtOnce {
		return nil
	}
	return in.flush(ctx)
}

func (in *inserter) flush(ctx context.Context) error {
	if len(in.values) == 0 {
		return nil
	}
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", in.columns), ", ") + "), "
	query := in.into + strings.TrimSuffix(strings.Repeat(row, len(in.values)/in.columns), ", ")
	_, err := in.tx.ExecContext(ctx, in.tx.Rebind(query), in.values...)
	in.values = in.values[:0]
	return err //nolint:wrapcheck // copyTables names the table
}
