package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/codalabimport"
	"github.com/cl-slurm/cl-slurm/server/codalabimport/importtest"
)

// A lab that is moved from CodaLab's own server is served, and its users sign in with their old passwords.
func TestMovedLabIsServed(t *testing.T) {
	t.Parallel()
	m := testenv.StartMariaDB(t)
	m.Exec(t, "CREATE USER reader@localhost IDENTIFIED BY 'pass'; GRANT SELECT ON *.* TO reader@localhost")
	for kind, database := range map[string]func(testing.TB) []string{
		"sqlite":   func(testing.TB) []string { return nil },
		"postgres": func(tb testing.TB) []string { tb.Helper(); return []string{"--database", testenv.Postgres(tb)} },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			lab, dir := importtest.New(t, m, kind), filepath.Join(t.TempDir(), "data")
			password := filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(password, []byte("pass\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			flags := append([]string{"--data", dir}, database(t)...)
			with := func(args ...string) []string { return append(args, flags...) }
			args := with("import", "--mysql", m.URL("reader", kind), "--mysql-password-file", password, "--store", lab.Home)
			refuses(t, "Access denied", with("import", "--mysql", m.URL("reader", kind), "--store", lab.Home)...)
			if said := does(t, "", append(args, "--dry-run")...); !strings.HasSuffix(said, "permissions 4\nAn import would copy this to "+dir+".\n") ||
				!strings.Contains(said, "\nbundles     12: 3 failed, 8 ready, 1 staged\n") || !strings.Contains(said, "owner: worksheet ") {
				t.Error(said)
			}
			if said := does(t, "", append(args, "--contents-only")...); !strings.HasSuffix(said, "has the contents. Run the import again, without --contents-only.\n") {
				t.Error(said)
			}
			refuses(t, "an import into it is unfinished", with("run")...)
			refuses(t, "an import into it is unfinished", with("fsck")...)
			var report codalabimport.Report
			if said := does(t, "", append(args, "--json")...); json.Unmarshal([]byte(said), &report) != nil || !report.Imported || report.Bundles != 12 {
				t.Error(said)
			}
			if said := does(t, "", with("fsck")...); said != "" {
				t.Error(said)
			}
			refuses(t, "an import would stop: see the problems", append(args, "--dry-run")...)
			refuses(t, "nothing was imported: see the problems", args...)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			address, _, ended := serveAt(ctx, flags)
			refuses(t, "another cl-server is using it", args...)
			for range 2 { // the second time with the hash that replaced CodaLab's
				login(t, address, "ann", importtest.Password)
			}
			if status := try(t, address, "ben", importtest.Password); status != 401 { // had not confirmed the e-mail address
				t.Errorf("status %d", status)
			}
			stop()
			ended()
		})
	}
}

func TestBadImports(t *testing.T) {
	t.Parallel()
	data, store := filepath.Join(t.TempDir(), "data"), t.TempDir()
	const url = "mysql://u:hidden@127.0.0.1:1/x"
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"", program.ExitUsage, "--data is needed"},
		{"--data " + data, program.ExitUsage, "--mysql is needed: the URL of the old server's database"},
		{"--data " + data + " --mysql x", program.ExitUsage, "--mysql: want mysql://USER@HOST:PORT/DATABASE"},
		{"--data " + data + " --mysql " + url, program.ExitUsage, "--store is needed"},
		{"--data " + data + " --mysql " + url + " --store " + store + " x", program.ExitUsage, "unknown command"},
		{"--data " + data + " --mysql " + url + " --store " + store + " --dry-run --contents-only", program.ExitUsage, "--dry-run copies nothing"},
		{"--data " + data + " --mysql " + url + " --store " + store + " --mysql-password-file " + data, program.ExitFailure, "read password file: open "},
		{"--data " + data + " --mysql " + url + " --store " + store, program.ExitTransient, "open database mysql://u@127.0.0.1:1/x: the database does not answer"},
	} {
		_, stderr, code := start(t.Context(), "", append([]string{"import"}, strings.Fields(test.args)...)...)
		if got := code(); got != test.code || !strings.Contains(stderr.String(), test.says) || strings.Contains(stderr.String(), "hidden") {
			t.Errorf("%s: exit %d, %s", test.args, got, stderr)
		}
	}
	if _, err := os.Stat(data); err == nil {
		t.Error("a refused import has made the data directory")
	}
}
