package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"github.com/pressly/goose/v3"
)

// postgres is PostgreSQL's dialect. Its transactions are serializable; the
// server ends one of those that get in one another's way, and that one is run
// again.
func postgres() dialect {
	return dialect{
		goose:   goose.DialectPostgres,
		options: &sql.TxOptions{Isolation: sql.LevelSerializable},
		number:  `SELECT txid_current()`,
		fate:    `SELECT coalesce(txid_status(?), '')`,
	}
}

func connectPostgres(ctx context.Context, where string, readOnly bool) (*DB, error) {
	name := Name(where)
	connector, err := connector(where, readOnly)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", name, err)
	}
	db := sqlx.NewDb(sql.OpenDB(connector), "postgres")
	limit(db)
	var schema *string
	err = db.GetContext(ctx, &schema, `SELECT current_schema()`)
	switch {
	case err == nil && schema == nil:
		err = errors.New("the schema of its search_path is not there: make it, with CREATE SCHEMA")
	case err != nil && ctx.Err() == nil && isGone(err):
		err = fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", name, err), db.Close())
	}
	return &DB{DB: db, dialect: postgres(), name: name}, nil
}

// Check says whether where is written as Open wants it. What is wrong with a
// URL is not said in detail: that might be a piece of the password.
func Check(where string) error {
	if !IsURL(where) {
		return nil
	}
	if _, ok := parse(where); !ok {
		return errors.New("the URL is not written as postgres://USER@HOST:PORT/DATABASE; in a password, @ is %40, / is %2F, % is %25")
	}
	return nil
}

func connector(where string, readOnly bool) (*pq.Connector, error) {
	if err := Check(where); err != nil {
		return nil, err
	}
	cfg, err := pq.NewConfig(where)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says which database
	}
	if cfg.Runtime == nil {
		cfg.Runtime = map[string]string{}
	}
	cfg.Runtime["synchronous_commit"] = "on"
	if readOnly {
		cfg.Runtime["default_transaction_read_only"] = "on"
	}
	cfg.BinaryParameters = true // one round trip for a statement, not two
	cfg.ApplicationName = cmp.Or(cfg.ApplicationName, "cl-slurm")
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, 10*time.Second)
	c, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says which database
	}
	c.Dialer(&dialer{within: time.Minute})
	return c, nil
}

// Name is where as it may be shown to people: a path as it is, of a URL the
// parts that say which database it is, and no password.
func Name(where string) string {
	if !IsURL(where) {
		return where
	}
	u, ok := parse(where)
	if !ok {
		return "postgres://…"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if user := u.User.Username(); user != "" {
		shown.User = url.User(user)
	}
	q := url.Values{}
	for _, key := range []string{"host", "port", "dbname", "user", "search_path"} {
		if value := u.Query().Get(key); value != "" {
			q.Set(key, value)
		}
	}
	shown.RawQuery = q.Encode()
	return shown.String()
}

// parse reads a URL. It is strict about the path, because what follows an
// unescaped / in a password would be taken for one.
func parse(where string) (*url.URL, bool) {
	u, err := url.Parse(where)
	if err != nil || !strings.HasPrefix(where, u.Scheme+"://") || strings.ContainsAny(strings.TrimPrefix(u.Path, "/"), "/@") {
		return nil, false
	}
	return u, true
}

// HasPassword says whether a URL contains a password, so that whoever can read
// the URL can use it.
func HasPassword(where string) bool {
	if !IsURL(where) {
		return false
	}
	u, ok := parse(where)
	if !ok {
		return true
	}
	_, set := u.User.Password()
	return set || u.Query().Has("password") || u.Query().Has("sslpassword")
}

// postgresBusy: the server ended the transaction for another's sake.
func postgresBusy(err error) bool {
	return pq.As(err, pqerror.TRSerializationFailure, pqerror.TRDeadlockDetected, pqerror.LockNotAvailable) != nil
}

// postgresFuture: the server has not given a transaction's number out yet, so
// that what it had of that was lost in a crash, before its log reached the disk
// (PostgreSQL's xid8funcs.c: TransactionIdInRecentPast).
func postgresFuture(err error) bool { return pq.As(err, pqerror.InvalidParameterValue) != nil }

func postgresUnique(err error) bool { return pq.As(err, pqerror.UniqueViolation) != nil }

func postgresNoTable(err error) bool { return pq.As(err, pqerror.UndefinedTable) != nil }

// isGone says whether err means that there is no connection to the server (any
// more), or that the server takes none now.
func isGone(err error) bool {
	if e := pq.As(err); e != nil {
		code := string(e.Code)
		return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") || strings.HasPrefix(code, "53")
	}
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &network)
}
