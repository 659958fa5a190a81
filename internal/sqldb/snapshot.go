package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// Snapshot runs fn on a connection that sees the database as of fn's first query; later commits
// stay invisible. fn must only read. Snapshot does not block writers; the log of an SQLite file
// grows until fn returns. Unlike InTx, Snapshot does not run fn again when the connection
// breaks.
func (db *DB) Snapshot(ctx context.Context, fn func(conn *sqlx.Conn) error) error {
	conn, err := db.Connx(ctx)
	if err == nil {
		if _, err = conn.ExecContext(ctx, db.dialect.snapshot); err != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	if err != nil {
		if db.isBroken(err) {
			err = fmt.Errorf("%w (%w)", ErrUnavailable, err)
		}
		return fmt.Errorf("begin snapshot of database %s: %w", db.name, err)
	}
	defer func() {
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // nobody may get it in this state
		}
		_ = conn.Close() // it was only read
	}()
	return fn(conn)
}
