package codalabimport

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// Source is the database of CodaLab's own server. It is only read.
type Source struct {
	// Name is the database's URL without the password.
	Name string
	db   *sqlx.DB
}

// errURL gives no details, which could be part of the password.
var errURL = errors.New("want mysql://USER@HOST:PORT/DATABASE, or mysql://USER@/DATABASE?unix_socket=PATH")

// CheckURL refuses a URL that Open cannot read.
func CheckURL(where string) error {
	_, _, err := parseURL(where)
	return err
}

// parseURL reads a URL, and returns its form without the password, too.
func parseURL(where string) (cfg *mysql.Config, name string, err error) {
	u, err := url.Parse(where)
	if err != nil || u.Scheme != "mysql" || u.Opaque != "" || u.Fragment != "" || strings.Trim(u.Path, "/") == "" {
		return nil, "", errURL
	}
	cfg = mysql.NewConfig()
	cfg.User, cfg.DBName, cfg.ParseTime, cfg.Loc, cfg.InterpolateParams = u.User.Username(), strings.Trim(u.Path, "/"), true, time.UTC, true
	cfg.Passwd, _ = u.User.Password()
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = 10*time.Second, 10*time.Minute, time.Minute
	cfg.Logger = &mysql.NopLogger{}
	cfg.Net, cfg.Addr = "tcp", u.Host
	if u.Port() == "" {
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	for key, values := range u.Query() {
		value := values[len(values)-1]
		switch key {
		case "unix_socket":
			cfg.Net, cfg.Addr = "unix", value
		case "tls":
			if !slices.Contains([]string{"true", "false", "skip-verify", "preferred"}, value) {
				return nil, "", errors.New("tls: want true, false, skip-verify or preferred")
			}
			cfg.TLSConfig = value
			if value == "true" {
				cfg.TLS = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
			}
		case "charset": // CodaLab's own URLs have it; it says nothing here
		default:
			return nil, "", fmt.Errorf("unknown parameter %s: there are unix_socket and tls", key)
		}
	}
	if cfg.Net == "tcp" && u.Hostname() == "" {
		return nil, "", errURL
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	return cfg, u.String(), nil
}

// Open connects to the database that a URL names. A password in the URL wins over the other one. Open
// fails with sqldb.ErrUnavailable if the database does not answer. If the database is not CodaLab's, or
// has an unknown version, the error names the missing tables or columns. The caller closes the Source.
func Open(ctx context.Context, where, password string) (*Source, error) {
	cfg, name, err := parseURL(where)
	if err != nil {
		return nil, err
	}
	if cfg.Passwd == "" {
		cfg.Passwd = password
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", name, err)
	}
	s := &Source{Name: name, db: sqlx.NewDb(sql.OpenDB(connector), "mysql")}
	err = s.db.PingContext(ctx)
	if err == nil {
		err = s.checkForm(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", name, available(ctx, err)), s.Close())
	}
	return s, nil
}

// available adds sqldb.ErrUnavailable to errors of the connection.
func available(ctx context.Context, err error) error {
	var refused *mysql.MySQLError
	var network net.Error
	if ctx.Err() != nil || errors.As(err, &refused) {
		return err
	}
	if errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) {
		return fmt.Errorf("%w (%w)", sqldb.ErrUnavailable, err)
	}
	return err
}

// Close closes the database.
func (s *Source) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}

// needed are the columns that the import reads (codalab/model/tables.py).
func needed() map[string][]string {
	return map[string][]string{
		"user": {
			"id", "user_id", "user_name", "email", "notifications", "last_login", "is_active", "first_name", "last_name", "date_joined",
			"is_verified", "password", "affiliation", "url", "avatar_id", "time_quota", "parallel_run_quota", "time_used", "disk_quota",
		},
		"group":                   {"id", "uuid", "name", "user_defined", "owner_id"},
		"user_group":              {"id", "group_uuid", "user_id", "is_admin"},
		"worksheet":               {"id", "uuid", "name", "owner_id", "title", "frozen", "is_anonymous", "date_created", "date_last_modified"},
		"worksheet_item":          {"id", "worksheet_uuid", "bundle_uuid", "subworksheet_uuid", "value", "type", "sort_key"},
		"worksheet_tag":           {"id", "worksheet_uuid", "tag"},
		"group_object_permission": {"id", "group_uuid", "object_uuid", "permission"},
		"bundle":                  {"id", "uuid", "bundle_type", "command", "state", "owner_id", "frozen", "is_anonymous", "storage_type"},
		"bundle_metadata":         {"id", "bundle_uuid", "metadata_key", "metadata_value"},
		"bundle_dependency":       {"id", "child_uuid", "child_path", "parent_uuid", "parent_path"},
		"group_bundle_permission": {"id", "group_uuid", "object_uuid", "permission"},
		"bundle_store":            {"uuid", "name", "storage_type"},
		"bundle_location":         {"id", "bundle_uuid", "bundle_store_uuid"},
	}
}

// checkForm fails if the database lacks tables or columns that the import reads.
func (s *Source) checkForm(ctx context.Context) error {
	var found []struct {
		Table  string `db:"t"`
		Column string `db:"c"`
	}
	err := s.db.SelectContext(ctx, &found, `
		SELECT table_name AS t, column_name AS c FROM information_schema.columns WHERE table_schema = DATABASE()`)
	if err != nil {
		return fmt.Errorf("read its form: %w", err)
	}
	has, tables := map[string]bool{}, map[string]bool{}
	for _, row := range found {
		has[row.Table+"."+row.Column], tables[row.Table] = true, true
	}
	for _, table := range []string{"bundle", "bundle_metadata", "worksheet", "user"} {
		if !tables[table] {
			return fmt.Errorf("this is not the database of a CodaLab server: it has no table %s", table)
		}
	}
	var missing []string
	for table, columns := range needed() {
		for _, column := range columns {
			if !has[table+"."+column] {
				missing = append(missing, table+"."+column)
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("this is the database of another version of CodaLab, without the columns %s; bring the old server to version 1.7.3 first",
			strings.Join(missing, ", "))
	}
	return nil
}

// snapshot is one moment of the database.
type snapshot struct{ conn *sqlx.Conn }

// atOneMoment calls read with the database as it is now.
func (s *Source) atOneMoment(ctx context.Context, read func(snapshot) error) error {
	conn, err := s.db.Connx(ctx)
	if err != nil {
		return fmt.Errorf("read database %s: %w", s.Name, available(ctx, err))
	}
	defer conn.Close()
	for _, statement := range []string{
		`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY`,
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("begin snapshot of database %s: %w", s.Name, available(ctx, err))
		}
	}
	err = read(snapshot{conn})
	_, _ = conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`) // nothing was written
	return err
}

// list reads all rows of a query.
func list[T any](ctx context.Context, s snapshot, query string, args ...any) ([]T, error) {
	var rows []T
	if err := s.conn.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, fmt.Errorf("read CodaLab's database: %w", available(ctx, err))
	}
	return rows, nil
}

// listOf reads the rows of a query with one IN (?).
func listOf[T any](ctx context.Context, s snapshot, query string, keys []string) ([]T, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	text, args, err := sqlx.In(query, keys)
	if err != nil {
		return nil, fmt.Errorf("read CodaLab's database: %w", err)
	}
	return list[T](ctx, s, text, args...)
}
