package store_test

import (
	"archive/tar"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// openRaw opens the database as another program does, without foreign keys in SQLite.
func openRaw(t *testing.T, at place) *sql.DB {
	t.Helper()
	driver, where := "sqlite", filepath.Join(at.dir, "codalab.db")
	if at.url != "" {
		driver, where = "postgres", at.url
	}
	db, err := sql.Open(driver, where)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// dump returns all rows of all tables, except those that a backup does not have.
func dump(t *testing.T, at place) map[string][]string {
	t.Helper()
	db := openRaw(t, at)
	query := `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`
	if at.url != "" {
		query = `SELECT tablename FROM pg_tables WHERE schemaname = current_schema()`
	}
	rows := map[string][]string{}
	for _, table := range texts(t, db, query) {
		if table != "goose_db_version" && table != "data_directory" {
			rows[table] = texts(t, db, `SELECT * FROM `+table)
			slices.Sort(rows[table])
		}
	}
	return rows
}

// texts returns the rows of a query as texts.
func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(t, err)
	values, to := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		to[i] = &values[i]
	}
	for rows.Next() {
		must(t, rows.Scan(to...))
		var line []string
		for _, v := range values {
			line = append(line, v.String)
		}
		all = append(all, strings.Join(line, "|"))
	}
	must(t, rows.Err())
	return all
}

// populate fills every table, and returns a bundle with a tree.
func populate(t *testing.T, s *store.Store) store.Bundle {
	t.Helper()
	ctx, title, me := t.Context(), "a 'title'\n", "0xme"
	must(t, s.AddWorksheets(ctx, store.DefaultPublic, store.Worksheet{UUID: "0xw", Name: "w", OwnerID: me, Title: &title, Created: store.Time{Time: now}}))
	must(t, s.AddGroups(ctx, store.Group{UUID: "0xg", Name: "g", OwnerID: &me}))
	must(t, s.SetScopes(ctx, me, []store.Scope{{OwnerID: me}}))
	must(t, s.SetPermissions(ctx, store.SharedWorksheet, store.Permission{Object: "0xw", GroupUUID: "0xg", Permission: 2}))
	_, err := s.BeginSession(ctx, store.SignIn{
		Session: store.Session{ID: "s", UserID: me}, Grant: store.Grant{Access: "a", Refresh: "r", AccessExpires: store.Time{Time: now}}, Marks: []string{"m"},
	}, now)
	must(t, err)
	must(t, s.AddReset(ctx, me, "code", now))
	must(t, s.AddConfirmation(ctx, store.Confirmation{Code: "change", UserID: me, Email: "me@lab.example", Expires: store.Time{Time: now.Add(hour)}}, now))
	must(t, s.AddConfirmation(ctx, store.Confirmation{Code: "sign-up", Name: "new", Email: "new@lab.example", Expires: store.Time{Time: now.Add(hour)}}, now))
	must(t, s.AddProgramToken(ctx, store.ProgramToken{ID: "p", Token: "u", UserID: me, Workers: "w"}, 1))
	must(t, s.Link(ctx, store.Identity{Issuer: "https://login.example", Subject: "1", UserID: me, Linked: store.Time{Time: now}}))
	program := "p"
	must(t, s.AddWorkerToken(ctx, store.WorkerToken{Token: "t", UserID: me, WorkerID: "w", Expires: store.Time{Time: now}, MadeBy: &program}, now, 1))
	must(t, s.SetSecret(ctx, store.Secret{UserID: me, Name: "A", Sealed: "x", KeyID: "k", Set: store.Time{Time: now}}, 9))
	parent, child, gone := stored(t, s, "text"), bundle("child"), stored(t, s, "gone")
	child.Dependencies = []codalab.Dependency{{ChildUUID: child.UUID, ChildPath: "in", ParentUUID: parent.UUID}}
	by := store.WithRecord(ctx, &store.Record{UserID: me, UserName: "me", At: now})
	must(t, s.CreateBundle(by, child, "0xw"))
	_, err = s.AddNotice(ctx, store.Notice{ID: "n", UserID: me, Made: store.Time{Time: now}}, []string{child.UUID}, store.NoticeBounds{Waiting: 1, InTime: 1})
	must(t, err)
	must(t, s.DeleteBundles(ctx, []string{gone.UUID}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
	tree, err := s.NewUpload(child.UUID)
	must(t, err)
	var archive strings.Builder
	out := tar.NewWriter(&archive)
	must(t, out.WriteHeader(&tar.Header{Name: "sub", Typeflag: tar.TypeDir, Mode: 0o755}))
	must(t, out.WriteHeader(&tar.Header{Name: "sub/run.sh", Mode: 0o755}))
	must(t, out.WriteHeader(&tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}))
	must(t, out.Close())
	must(t, tree.Archive(ctx, strings.NewReader(archive.String()), tarstream.Limits{Bytes: 1000, Entries: 10}))
	extent, err := s.CompleteUpload(ctx, tree, child)
	must(t, errors.Join(err, tree.Close()))
	child, err = s.Change(ctx, child.UUID, func(b *store.Bundle) error {
		b.State, b.Contents, b.IsAnonymous = codalab.StateReady, tree.Name, true
		b.Entries, b.DataSize, b.Metadata["data_size"] = extent.Entries, extent.Bytes, extent.Bytes
		return nil
	})
	must(t, err)
	return child
}

// An absolute path may have 4,095 bytes, and the path of a file in a bundle nearly as many. One such file kept the
// whole server from being backed up.
func TestLongestPathIsStoredBackedUpAndRestored(t *testing.T) {
	t.Parallel()
	s := open(t, place{dir: t.TempDir()})
	b := stored(t, s, "text")
	up, err := s.NewUpload(b.UUID)
	must(t, err)
	var archive strings.Builder
	out := tar.NewWriter(&archive)
	const levels = 16
	must(t, out.WriteHeader(&tar.Header{Name: strings.Repeat(strings.Repeat("n", 250)+"/", levels) + "file", Mode: 0o644}))
	for i := range 70 { // many, which are not flushed one by one
		must(t, out.WriteHeader(&tar.Header{Name: strconv.Itoa(i), Mode: 0o644}))
	}
	must(t, out.Close())
	must(t, up.Archive(t.Context(), strings.NewReader(archive.String()), tarstream.Limits{}))
	extent, err := s.CompleteUpload(t.Context(), up, b)
	must(t, errors.Join(err, up.Close()))
	_, err = s.Change(t.Context(), b.UUID, func(b *store.Bundle) error {
		b.Contents, b.Entries, b.DataSize, b.Metadata["data_size"] = up.Name, extent.Entries, extent.Bytes, extent.Bytes
		return nil
	})
	must(t, err)
	dest, again := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "again")
	if made, err := s.Backup(t.Context(), dest, now); err != nil || made.Contents != 1 || len(made.Missing) > 0 {
		t.Fatalf("%+v, %.300v", made, err)
	}
	must(t, store.Restore(t.Context(), dest, again, ""))
	restored, err := store.Open(t.Context(), again)
	must(t, err)
	defer restored.Close()
	b, err = restored.Bundle(t.Context(), b.UUID)
	must(t, err)
	root, err := restored.OpenContents(b)
	must(t, err)
	defer root.Close()
	if got, err := contents.Measure(root, store.ContentsPath); err != nil || got != extent || got.Bytes != (levels+1)*contents.DirectorySize {
		t.Errorf("%+v, want %+v, %v", got, extent, err)
	}
}

// A backup of either kind becomes a data directory of either kind.
func TestBackupIsRestoredWhole(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		tree := populate(t, s)
		_, err := openRaw(t, at).ExecContext(t.Context(), `INSERT INTO imports (id, source, ended) VALUES ('i', 'mysql://x', 7)`)
		must(t, err)
		_, err = openRaw(t, at).ExecContext(t.Context(), `INSERT INTO former_names (name, user_id) VALUES ('annie', '0')`)
		must(t, err)
		third := 1.0 / 3
		must(t, s.SetValues(t.Context(), []store.Bundle{tree}, map[string][]store.Value{
			tree.UUID: {{Path: "/s.json:acc", Number: &third, Text: "0.333"}, {Path: "/s.json:opt", Text: "adam"}},
		}))
		_, err = s.Change(t.Context(), tree.UUID, func(b *store.Bundle) error { b.Usage = "{}"; return nil })
		must(t, err)
		must(t, s.SetSeenQueues(t.Context(), []store.SeenQueue{{UserID: "0", WorkerID: "b-gpu", CheckIn: "{}", Seen: store.Time{Time: now}}}))
		lost, err := s.NewUpload(tree.UUID) // an upload under way
		must(t, errors.Join(err, lost.Close()))
		dest := filepath.Join(t.TempDir(), "backup")
		must(t, os.MkdirAll(filepath.Join(dest+".tmp", "bundles", "0x1-2"), 0o700)) // an interrupted one
		if made, err := s.Backup(t.Context(), dest, now); err != nil || made.Bundles != 2 || made.Contents != 2 || len(made.Missing) > 0 {
			t.Fatalf("%+v, %v", made, err)
		}
		if _, err := s.Backup(t.Context(), dest, now); !errors.Is(err, fs.ErrExist) {
			t.Errorf("over an earlier one: %v", err)
		}
		if _, err := store.Open(t.Context(), dest); err == nil || !strings.Contains(err.Error(), "it is a backup") {
			t.Errorf("open a backup: %v", err)
		}
		want := dump(t, at)
		for table, rows := range want {
			if len(rows) == 0 {
				t.Errorf("the test has nothing in table %s", table)
			}
		}
		onEach(t, func(t *testing.T, to place) {
			must(t, store.Restore(t.Context(), dest, to.dir, to.url))
			restored, err := store.OpenDatabase(t.Context(), to.dir, to.url)
			must(t, err)
			if diff := cmp.Diff(want, dump(t, to)); diff != "" {
				t.Error(diff)
			}
			if lines, _ := check(t, restored, false); len(lines) > 0 {
				t.Errorf("%q", lines)
			}
			root, err := restored.OpenContents(tree)
			must(t, err)
			info, err := root.Stat("contents/sub/run.sh")
			must(t, err)
			link, err := root.Readlink("contents/link")
			if must(t, errors.Join(err, root.Close())); info.Mode() != 0o755 || link != "/etc/passwd" {
				t.Errorf("%v, link to %s", info.Mode(), link)
			}
			must(t, restored.Close())
			if err := store.Restore(t.Context(), dest, to.dir, to.url); err == nil || !strings.Contains(err.Error(), "not empty") {
				t.Errorf("over a data directory: %v", err)
			}
			if to.url != "" {
				again := filepath.Join(t.TempDir(), "again")
				if err := store.Restore(t.Context(), dest, again, to.url); err == nil || !strings.Contains(err.Error(), "is not empty") {
					t.Errorf("over a database: %v", err)
				}
				if _, err := store.OpenDatabase(t.Context(), again, to.url); err == nil || !strings.Contains(err.Error(), "unfinished restore") {
					t.Errorf("open an unfinished restore: %v", err)
				}
			}
		})
	})
}

func TestInterruptedBackupIsNoBackup(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		stored(t, s, "x")
		dest := filepath.Join(t.TempDir(), "backup")
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if _, err := s.Backup(ctx, dest, now); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if err := store.Restore(t.Context(), dest+".tmp", filepath.Join(t.TempDir(), "data"), ""); err == nil || !strings.Contains(err.Error(), "is no complete backup") {
			t.Errorf("restored: %v", err)
		}
		if _, err := s.Backup(t.Context(), filepath.Join(at.dir, "bundles", "b"), now); err == nil {
			t.Error("a backup in the data directory")
		}
	})
}

func TestBackupSaysWhichContentsAreLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		stored(t, s, "kept")
		lost := stored(t, s, "lost")
		must(t, os.RemoveAll(at.contents(lost)))
		made, err := s.Backup(t.Context(), filepath.Join(t.TempDir(), "backup"), now)
		if err != nil || !cmp.Equal(made.Missing, []string{lost.Contents}) {
			t.Errorf("%+v, %v", made, err)
		}
	})
}

// Bundles come and go while backups are written; each backup is sound.
func TestBackupBesideAServerIsConsistent(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		var over atomic.Bool
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for !over.Load() {
					b := stored(t, s, "text")
					stored(t, s, "stays")
					must(t, s.DeleteBundles(t.Context(), []string{b.UUID}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
				}
			})
		}
		dir := t.TempDir()
		for i := range 5 {
			dest := filepath.Join(dir, "backup"+string(rune('0'+i)))
			if made, err := s.Backup(t.Context(), dest, now); err != nil || len(made.Missing) > 0 {
				t.Fatalf("%+v, %v", made, err)
			}
			to := filepath.Join(dir, "data"+string(rune('0'+i)))
			must(t, store.Restore(t.Context(), dest, to, ""))
			restored, err := store.Open(t.Context(), to)
			must(t, err)
			if lines, _ := check(t, restored, false); len(lines) > 0 {
				t.Errorf("%q", lines)
			}
			must(t, restored.Close())
		}
		over.Store(true)
		wg.Wait()
	})
}

// A backup on another file system has copies.
func TestBackupOnAnotherDiskHasCopies(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	testenv.SmallDisk(t, disk, "size=8m")
	s := open(t, place{dir: filepath.Join(t.TempDir(), "data")})
	tree := populate(t, s)
	dest, to := filepath.Join(disk, "backup"), filepath.Join(t.TempDir(), "data")
	_, err := s.Backup(t.Context(), dest, now)
	must(t, errors.Join(err, store.Restore(t.Context(), dest, to, "")))
	info, err := os.Stat(filepath.Join(to, "bundles", tree.Contents, "contents", "sub", "run.sh"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
}
