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
	"github.com/pressly/goose/v3"
)

// postgres is PostgreSQL's dialect. Of two transactions that conflict, the server
// ends one, which then runs again.
func postgres() dialect {
	return dialect{
		goose:    goose.DialectPostgres,
		options:  &sql.TxOptions{Isolation: sql.LevelSerializable},
		id:       `SELECT txid_current()`,
		outcome:  `SELECT coalesce(txid_status(?), '')`,
		abandon:  `SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE backend_xid::text::bigint = ?::bigint & 4294967295`, // it waits for the end
		snapshot: `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`,
	}
}

func connectPostgres(ctx context.Context, where string, readOnly bool) (*DB, error) {
	name := Name(where)
	connector, err := connector(where, readOnly)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", name, err)
	}
	db := sqlx.NewDb(sql.OpenDB(connector), "postgres")
	limitConnections(db)
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

// Check fails for a URL that Open cannot read. The error gives no details, because they
// could be part of the password.
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
		return nil, err //nolint:wrapcheck // the caller's error names the database
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
		return nil, err //nolint:wrapcheck // the caller's error names the database
	}
	c.Dialer(&dialer{within: time.Minute})
	return c, nil
}

// Name returns where in a form for messages: a path unchanged; of a URL only the parts
// that identify the database, without a password.
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

// parse reads a URL. It is strict about the path, because a password with an unescaped /
// would otherwise become a part of the path.
func parse(where string) (*url.URL, bool) {
	u, err := url.Parse(where)
	if err != nil || !strings.HasPrefix(where, u.Scheme+"://") || strings.ContainsAny(strings.TrimPrefix(u.Path, "/"), "/@") {
		return nil, false
	}
	return u, true
}

// HasPassword reports whether a URL contains a password, and must be kept secret.
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

// isGone reports whether err means that there is no connection to the server, or that
// the server accepts none now.
func isGone(err error) bool {
	if e := pq.As(err); e != nil {
		code := string(e.Code)
		return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") || strings.HasPrefix(code, "53")
	}
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &network)
}
