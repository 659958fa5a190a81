package sqldb

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
)

// keeper makes connections to an SQLite file that keep compiled statements. SQLite compiles a
// statement from its text each time; that takes longer than most of our statements run.
type keeper struct{ driver.Connector }

// sqliteConn is what modernc.org/sqlite's connections are.
type sqliteConn interface { //nolint:interfacebloat // a connection that lacked one would be used in another way
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// Connect makes a connection.
func (k keeper) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := k.Connector.Connect(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // database/sql acts on it
	}
	conn, ok := c.(sqliteConn)
	if !ok {
		return nil, fmt.Errorf("a connection of type %T", c)
	}
	return &keepingConn{sqliteConn: conn}, nil
}

// keepingConn is a connection that keeps statements. database/sql makes one call of a connection,
// its statements and its rows at a time.
type keepingConn struct {
	sqliteConn

	// kept are the statements that are not in use, the last used one at the end.
	kept []statement
}

// mostKept is how many statements a connection keeps, longestKept how long the text of one may be. A
// list of many rows has a text of its own for each number of rows.
const mostKept, longestKept = 32, 2048

// statement is a compiled statement.
type statement struct {
	text string
	stmt
}

type stmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// keeps reports whether a statement of this text is kept. PRAGMA is not: SQLite may act on one
// while it compiles it.
func keeps(text string) bool {
	if len(text) > longestKept {
		return false
	}
	text = strings.TrimLeft(text, " \t\n")
	return slices.ContainsFunc([]string{"SELECT", "INSERT", "UPDATE", "DELETE"}, func(verb string) bool { return strings.HasPrefix(text, verb) })
}

// take returns a statement that no other caller uses.
func (c *keepingConn) take(ctx context.Context, text string) (statement, error) {
	if i := slices.IndexFunc(c.kept, func(s statement) bool { return s.text == text }); i >= 0 {
		s := c.kept[i]
		c.kept = slices.Delete(c.kept, i, i+1)
		return s, nil
	}
	prepared, err := c.PrepareContext(ctx, text)
	if err != nil {
		return statement{}, err //nolint:wrapcheck // database/sql's callers act on it
	}
	s, ok := prepared.(stmt)
	if !ok {
		return statement{}, fmt.Errorf("a statement of type %T", prepared)
	}
	return statement{text, s}, nil
}

// give takes a statement back. One that failed is compiled anew.
func (c *keepingConn) give(s statement, err error) {
	if err != nil {
		_ = s.Close() // repeats the error
		return
	}
	if len(c.kept) == mostKept {
		_ = c.kept[0].Close() // it did not fail
		c.kept = slices.Delete(c.kept, 0, 1)
	}
	c.kept = append(c.kept, s)
}

// ExecContext runs a statement without rows.
func (c *keepingConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if !keeps(text) {
		return c.sqliteConn.ExecContext(ctx, text, args) //nolint:wrapcheck // database/sql's callers act on it
	}
	s, err := c.take(ctx, text)
	if err != nil {
		return nil, err
	}
	result, err := s.ExecContext(ctx, args)
	c.give(s, err)
	return result, err //nolint:wrapcheck // database/sql's callers act on it
}

// QueryContext runs a statement with rows, which use it until they are closed.
func (c *keepingConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	if !keeps(text) {
		return c.sqliteConn.QueryContext(ctx, text, args) //nolint:wrapcheck // database/sql's callers act on it
	}
	s, err := c.take(ctx, text)
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(ctx, args)
	if err != nil {
		c.give(s, err)
		return nil, err //nolint:wrapcheck // database/sql's callers act on it
	}
	return &keptRows{rows, c, s}, nil
}

// Close closes the connection and its statements.
func (c *keepingConn) Close() error {
	for _, s := range c.kept {
		_ = s.Close() // it did not fail
	}
	c.kept = nil
	return c.sqliteConn.Close() //nolint:wrapcheck // database/sql's callers act on it
}

// keptRows are the rows of a statement that is kept.
type keptRows struct {
	driver.Rows

	conn *keepingConn
	of   statement
}

// Close ends the reading of the rows.
func (r *keptRows) Close() error {
	err := r.Rows.Close()
	r.conn.give(r.of, err)
	return err //nolint:wrapcheck // database/sql's callers act on it
}
