package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"modernc.org/sqlite"
)

// A connection keeps at most this many statements, and no longer ones: users' searches make long
// statements that are never repeated, and a compiled statement takes much more memory than its text.
const (
	maxStatements = 200
	maxStatement  = 4096 // bytes
)

// keeping makes connections to an SQLite file that keep their compiled statements: compiling a small
// statement takes longer than running it.
type keeping struct{ driver.Connector }

func newConnector(dsn string) (driver.Connector, error) {
	plain, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the name of the database: %w", err)
	}
	return keeping{plain}, nil
}

// Connect opens a connection.
func (k keeping) Connect(ctx context.Context) (driver.Conn, error) {
	plain, err := k.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c, ok := plain.(sqliteConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver's connection is a %T", plain), plain.Close())
	}
	return &keepingConn{sqliteConn: c, kept: map[string]*statement{}}, nil
}

// sqliteConn has the methods of an SQLite connection that database/sql calls.
type sqliteConn interface { //nolint:interfacebloat // database/sql asks for all of these
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// keepingConn is a connection. database/sql does not use one in two goroutines at once.
type keepingConn struct {
	sqliteConn

	kept map[string]*statement // by text
}

// statement is a compiled statement.
type statement struct {
	sqliteStmt

	busy bool // its rows are being read
}

// sqliteStmt has the methods of the driver's statements.
type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// statement returns a statement, and marks it as busy. It returns nil if the statement is too long to
// keep or busy.
func (c *keepingConn) statement(ctx context.Context, text string) (*statement, error) {
	if len(text) > maxStatement {
		return nil, nil
	}
	if s, ok := c.kept[text]; ok {
		if s.busy {
			return nil, nil
		}
		s.busy = true
		return s, nil
	}
	if err := c.makeRoom(); err != nil {
		return nil, err
	}
	plain, err := c.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	stmt, ok := plain.(sqliteStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver's statement is a %T", plain), plain.Close())
	}
	s := &statement{sqliteStmt: stmt, busy: true}
	c.kept[text] = s
	return s, nil
}

// makeRoom drops some statement, if there are too many.
func (c *keepingConn) makeRoom() error {
	for text, s := range c.kept {
		if len(c.kept) < maxStatements {
			return nil
		}
		if !s.busy {
			delete(c.kept, text)
			if err := s.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// ExecContext runs a statement.
func (c *keepingConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.statement(ctx, text)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return c.sqliteConn.ExecContext(ctx, text, args)
	}
	defer func() { s.busy = false }()
	return s.ExecContext(ctx, args)
}

// QueryContext runs a statement that returns rows.
func (c *keepingConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.statement(ctx, text)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return c.sqliteConn.QueryContext(ctx, text, args)
	}
	rows, err := s.QueryContext(ctx, args)
	if err != nil {
		s.busy = false
		return nil, err
	}
	return &keptRows{rows, s}, nil
}

// keptRows are the rows of a kept statement.
type keptRows struct {
	driver.Rows

	of *statement
}

// Close ends the reading.
func (r *keptRows) Close() error {
	defer func() { r.of.busy = false }()
	return r.Rows.Close()
}

// Close closes the connection and its statements: SQLite keeps a connection open while it has
// statements.
func (c *keepingConn) Close() error {
	var errs []error
	for _, s := range c.kept {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.sqliteConn.Close())...)
}
