package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/lib/pq" // the driver "postgres"
)

// Postgres returns the URL of an empty schema on the server of scripts/postgres.
// Programs of any user may open it. The schema is dropped when the test ends.
func Postgres(tb testing.TB) string {
	tb.Helper()
	need(tb, postgres, nil)
	name := "test_" + strings.ToLower(rand.Text())
	db := openServer(tb)
	_, err := db.ExecContext(tb.Context(), "CREATE SCHEMA "+name)
	if err != nil {
		err = fmt.Errorf("scripts/postgres up makes a server: %w", err)
	}
	need(tb, postgres, err)
	tb.Cleanup(func() {
		// The test's own context has ended when cleanups run.
		_, err := db.ExecContext(context.Background(), "DROP SCHEMA "+name+" CASCADE")
		if err := errors.Join(err, db.Close()); err != nil {
			tb.Errorf("remove schema: %v", err)
		}
	})
	return server(url.Values{"search_path": {name}, "application_name": {name}})
}

// Disconnect breaks all connections to a URL of Postgres.
func Disconnect(tb testing.TB, where string) {
	tb.Helper()
	u, err := url.Parse(where)
	Must(tb, err)
	db := openServer(tb)
	_, err = db.ExecContext(tb.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
		u.Query().Get("application_name"))
	Must(tb, errors.Join(err, db.Close()))
}

func openServer(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open("postgres", server(nil))
	Must(tb, err)
	return db
}

// server returns the URL of the tests' database.
func server(more url.Values) string {
	q := url.Values{"host": {filepath.Join(shared, "postgres/run")}, "port": {"16820"}, "user": {"cltest"}}
	for key, values := range more {
		q[key] = values
	}
	return "postgres:///cltest?" + q.Encode()
}

// ServerDatabase is the database of cl-server that tests of its HTTP interface use: empty for SQLite, or
// the URL of a schema of Postgres if CLTEST_SERVER_DATABASE is postgres.
func ServerDatabase(tb testing.TB) string {
	tb.Helper()
	if os.Getenv("CLTEST_SERVER_DATABASE") != postgres {
		return ""
	}
	return Postgres(tb)
}
