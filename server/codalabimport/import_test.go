package codalabimport_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/codalabimport"
	"github.com/cl-slurm/cl-slurm/server/codalabimport/importtest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

var must = testenv.Must

// newImport is an import of a lab into a new data directory.
func newImport(t *testing.T, lab importtest.Lab, database string) *codalabimport.Import {
	t.Helper()
	source, err := codalabimport.Open(t.Context(), lab.URL, "")
	must(t, err)
	t.Cleanup(func() { must(t, source.Close()) })
	return &codalabimport.Import{
		Source: source, Stores: []string{lab.Home}, Dir: filepath.Join(t.TempDir(), "data"), Database: database,
		CheckHash: server.CheckPasswordHash, Progress: func(codalabimport.Step, int64, int64) {}, Now: now,
	}
}

// TestImport starts one MariaDB for all tests that need one.
func TestImport(t *testing.T) {
	t.Parallel()
	m := testenv.StartMariaDB(t)
	for kind, database := range map[string]func(testing.TB) string{
		"SQLite": func(testing.TB) string { return "" }, "PostgreSQL": testenv.Postgres,
	} {
		for name, test := range map[string]func(t *testing.T, lab importtest.Lab, database string){
			"KeepsTheLab": keepsTheLab, "GoesOnAfterAnyInterruption": goesOn, "RefusesWhatIsTaken": refusesTaken,
			"AcceptsMissingContentsOnlyWhenTold": acceptsMissing, "CopiesContentsFirst": copiesContentsFirst,
		} {
			t.Run(kind+name, func(t *testing.T) {
				t.Parallel()
				test(t, importtest.New(t, m, strings.ToLower(kind+name)), database(t))
			})
		}
	}
	for name, test := range map[string]func(t *testing.T, lab importtest.Lab){
		"FinishesWhatWasCommitted": finishes, "StopsBeforeASmallDiskIsFull": stopsBeforeFull, "LinksFiles": linksFiles,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, importtest.New(t, m, strings.ToLower(name)))
		})
	}
	t.Run("RefusesOtherDatabases", func(t *testing.T) {
		t.Parallel()
		refusesOthers(t, m)
	})
}

func keepsTheLab(t *testing.T, lab importtest.Lab, database string) {
	im := newImport(t, lab, database)
	dry, err := im.Survey(t.Context())
	must(t, err)
	if _, err := os.Stat(im.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dry run has made the data directory: %v", err)
	}
	report, err := im.Run(t.Context())
	must(t, err)
	if dry.Imported = true; !cmp.Equal(dry, report) {
		t.Errorf("dry run and import differ: %s", cmp.Diff(dry, report))
	}
	var problems []string
	for _, p := range report.Problems {
		problems = append(problems, fmt.Sprintf("%s %s: %s", p.Kind, strings.ReplaceAll(p.Object, "0x00000000000000000000000000", "~"), p.Problem))
	}
	golden(t, "problems", problems)
	report.Problems = nil
	want := codalabimport.Report{
		Source: report.Source, Users: 4, Groups: 2, Members: 2, Worksheets: 3, Items: 6, Permissions: 4, Bundles: 12, Links: 1, Imported: true,
		States:   map[string]int{"ready": 8, "failed": 3, "staged": 1},
		Contents: codalabimport.ReportedContents{Bundles: 4, Files: 7, Bytes: 3*4096 + 6 + 10 + 1 + 8 + 6 + 4096 + 4096 + 5000},
	}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
	golden(t, "lab", view(t, im))
}

// golden compares lines with a file of testdata.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	path, got := filepath.Join("testdata", name+".txt"), strings.Join(lines, "\n")+"\n"
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: %s", path, diff)
	}
}

// view shows all that an import writes into a data directory, which has to be sound. It names the columns of a user, so that
// one that no import writes is not in the golden file.
func view(t *testing.T, im *codalabimport.Import) (lines []string) {
	t.Helper()
	s, err := store.OpenDatabase(t.Context(), im.Dir, im.Database)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	_, err = s.Check(t.Context(), false, func(f store.Finding) { t.Errorf("check: %+v", f) })
	must(t, err)
	line := func(format string, args ...any) {
		text := strings.ReplaceAll(fmt.Sprintf(format, args...), "0x00000000000000000000000000", "~")
		lines = append(lines, text)
	}
	taken, err := s.Taken(t.Context())
	must(t, err)
	users, err := s.Users(t.Context())
	must(t, err)
	for _, u := range users {
		line("user id=%s name=%s password=%s joined=%v", u.ID, u.Name, u.Password[:min(len(u.Password), 13)], u.Joined)
		line("  quotas time=%d disk=%d entries=%d parallel=%d used time=%d disk=%d entries=%d",
			u.TimeQuota, u.DiskQuota, u.EntriesQuota, u.ParallelRunQuota, u.TimeUsed, u.DiskUsed, u.EntriesUsed)
		line("  email=%q first=%q last=%q affiliation=%q url=%q avatar=%q notifications=%d last_login=%v worker=%v",
			u.Email, u.FirstName, u.LastName, u.Affiliation, u.URL, u.Avatar, u.Notifications, u.LastLogin, u.IsWorker)
	}
	groups, err := s.Groups(t.Context(), "")
	must(t, err)
	for _, g := range groups {
		members, err := s.Members(t.Context(), []string{g.UUID})
		must(t, err)
		line("group %s %s %s %v: %v", g.UUID, g.Name, deref(g.OwnerID), g.UserDefined, members)
	}
	for _, uuid := range sortedUUIDs(maps.Values(taken.Worksheets)) {
		w, err := s.Worksheet(t.Context(), uuid)
		must(t, err)
		granted, err := s.Permissions(t.Context(), store.SharedWorksheet, []string{uuid})
		must(t, err)
		line("worksheet %s %s %s %q frozen=%s %v %s %s %s %v", w.UUID, w.Name, w.OwnerID, deref(w.Title), deref(w.Frozen), w.IsAnonymous, w.TagsJSON, w.Created, w.Modified, granted[uuid])
		items, err := s.Items(t.Context(), uuid)
		must(t, err)
		for _, i := range items {
			line("  %s %s%s%q %d", i.Type, deref(i.BundleUUID), deref(i.Subworksheet), i.Value, i.SortKey)
		}
	}
	for _, uuid := range sortedUUIDs(maps.Keys(taken.Bundles)) {
		b, err := s.Bundle(t.Context(), uuid)
		must(t, err)
		granted, err := s.Permissions(t.Context(), store.SharedBundle, []string{uuid})
		must(t, err)
		line("bundle %s %s %s %s %q frozen=%s %v created=%s contents=%s size=%d %v", uuid, b.Type, b.OwnerID, b.State, deref(b.Command), deref(b.Frozen), b.IsAnonymous, b.Created, b.Contents, b.DataSize, granted[uuid])
		for _, key := range slices.Sorted(maps.Keys(b.Metadata)) {
			if v := fmt.Sprint(b.Metadata[key]); v != "" && v != "[]" {
				line("  %s = %s", key, v)
			}
		}
		for _, d := range b.Dependencies {
			line("  %s:%s/%s (%s)", d.ChildPath, d.ParentUUID, d.ParentPath, d.ParentState)
		}
		lines = append(lines, files(t, s, b)...)
	}
	return lines
}

func deref(text *string) string {
	if text == nil {
		return "-"
	}
	return *text
}

// sortedUUIDs returns each uuid once.
func sortedUUIDs(uuids func(func(string) bool)) []string { return slices.Compact(slices.Sorted(uuids)) }

// files shows a bundle's contents.
func files(t *testing.T, s *store.Store, b store.Bundle) (lines []string) {
	t.Helper()
	root := s.ContentsFile(b)
	if root == "" {
		return nil
	}
	must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		below, _ := filepath.Rel(root, path)
		target, _ := os.Readlink(path)
		size := ""
		if info.Mode().IsRegular() {
			size = fmt.Sprint(info.Size())
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("  %s %s %s%s", info.Mode(), below, size, target)))
		return nil
	}))
	return lines
}

// goesOn interrupts an import at each of its steps, and goes on each time.
func goesOn(t *testing.T, lab importtest.Lab, database string) {
	im := newImport(t, lab, database)
	for n := 1; ; n++ {
		ctx, stop := context.WithCancel(t.Context())
		left := n
		im.Progress = func(codalabimport.Step, int64, int64) {
			if left--; left == 0 {
				stop()
			}
		}
		_, err := im.Run(ctx)
		stop()
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted at its step %d: %v", n, err)
		}
		if !importBegun(im.Dir) {
			continue
		}
		if _, err := store.OpenDatabase(t.Context(), im.Dir, im.Database); err == nil || !strings.Contains(err.Error(), "unfinished; run the same cl-server import again") {
			t.Fatalf("an unfinished import was opened: %v", err)
		}
	}
	golden(t, "lab", view(t, im))
	if entries, err := os.ReadDir(filepath.Join(im.Dir, "bundles")); err != nil || len(entries) != 4 {
		t.Errorf("%d directories of contents, %v", len(entries), err)
	}
	if report, err := im.Run(t.Context()); !errors.Is(err, codalabimport.ErrStopped) || len(report.Stops()) < 10 {
		t.Errorf("a second import: %v, %+v", err, report)
	}
}

func refusesTaken(t *testing.T, lab importtest.Lab, database string) {
	im := newImport(t, lab, database)
	s, err := store.OpenDatabase(t.Context(), im.Dir, im.Database)
	must(t, err)
	must(t, s.AddUser(t.Context(), store.User{ID: "0xlocal", Name: "ann"}))
	must(t, s.AddWorksheets(t.Context(), store.DefaultNone, store.Worksheet{UUID: importtest.UUID("d3"), Name: "own", OwnerID: "0xlocal"}))
	must(t, s.CreateBundle(t.Context(), store.Bundle{UUID: importtest.UUID("e2"), OwnerID: "0xlocal", Metadata: map[string]any{}}, ""))
	report, err := im.Run(t.Context())
	var conflicts []string
	for _, p := range report.Stops() {
		conflicts = append(conflicts, p.Kind+" "+p.Object)
	}
	want := []string{"conflict ann", "conflict " + importtest.UUID("d3"), "conflict " + importtest.UUID("e2")}
	if !errors.Is(err, codalabimport.ErrStopped) || !cmp.Equal(conflicts, want) {
		t.Errorf("%v, %v", err, conflicts)
	}
	must(t, s.DeleteWorksheet(t.Context(), importtest.UUID("d3")))
	must(t, s.DeleteBundles(t.Context(), []string{importtest.UUID("e2")}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
	if report, err := im.Run(t.Context()); !errors.Is(err, codalabimport.ErrStopped) || len(report.Stops()) != 2 { // also a deleted one
		t.Errorf("%v, %+v", err, report)
	}
	must(t, s.Close())
}

func acceptsMissing(t *testing.T, lab importtest.Lab, database string) {
	im := newImport(t, lab, database)
	must(t, os.Remove(filepath.Join(lab.Home, "partitions/two/bundles", importtest.UUID("e2"))))
	report, err := im.Run(t.Context())
	if stops := report.Stops(); !errors.Is(err, codalabimport.ErrStopped) || len(stops) != 1 || stops[0].Kind != codalabimport.ProblemMissing {
		t.Errorf("%v, %+v", err, stops)
	}
	im.AcceptMissing = true
	report, err = im.Run(t.Context())
	if err != nil || len(report.Stops()) > 0 || report.Contents.Bundles != 3 {
		t.Errorf("%v, %+v", err, report)
	}
	if lab := strings.Join(view(t, im), "\n"); !strings.Contains(lab, "bundle ~0000e2 dataset ~0000a1 ready \"-\" frozen=- false created=0001-01-01 00:00:00 +0000 UTC contents= size=0") {
		t.Error(lab)
	}
}

// importBegun reports whether a data directory has an import that is not done.
func importBegun(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "importing"))
	return err == nil
}

func copiesContentsFirst(t *testing.T, lab importtest.Lab, database string) {
	im := newImport(t, lab, database)
	im.ContentsOnly = true
	report, err := im.Run(t.Context())
	if err != nil || report.Imported || !importBegun(im.Dir) {
		t.Fatalf("%v, %+v", err, report)
	}
	lab.Write(t, "two", "e2", "another") // cl-server allows that, and the size and the time tell it
	copied := filepath.Join(im.Dir, "bundles", store.ImportedContents(importtest.UUID("ec")))
	before, err := os.Stat(copied)
	must(t, err)
	im.ContentsOnly = false
	_, err = im.Run(t.Context())
	must(t, err)
	if after, err := os.Stat(copied); err != nil || !os.SameFile(before, after) {
		t.Errorf("contents were copied twice: %v", err)
	}
	got, err := os.ReadFile(filepath.Join(im.Dir, "bundles", store.ImportedContents(importtest.UUID("e2")), store.ContentsPath))
	if string(got) != "another" {
		t.Errorf("%q, %v", got, err)
	}
	view(t, im)
}

func finishes(t *testing.T, lab importtest.Lab) {
	im := newImport(t, lab, "")
	_, err := im.Run(t.Context())
	must(t, err)
	db, err := sql.Open("sqlite", filepath.Join(im.Dir, "codalab.db"))
	must(t, err)
	var id string
	must(t, db.QueryRowContext(t.Context(), `SELECT id FROM imports`).Scan(&id))
	must(t, db.Close())
	must(t, os.WriteFile(filepath.Join(im.Dir, "importing"), []byte(id), 0o600)) // as a crash after the commit leaves it
	report, err := im.Run(t.Context())
	if err != nil || !report.Imported || importBegun(im.Dir) {
		t.Errorf("%v, %+v", err, report)
	}
	golden(t, "lab", view(t, im))
}

func stopsBeforeFull(t *testing.T, lab importtest.Lab) {
	im := newImport(t, lab, "")
	im.Dir = t.TempDir()
	testenv.SmallDisk(t, im.Dir, "size=16k")
	report, err := im.Run(t.Context())
	if stops := report.Stops(); !errors.Is(err, codalabimport.ErrStopped) || len(stops) != 1 || stops[0].Kind != codalabimport.ProblemRoom {
		t.Errorf("%v, %+v", err, stops)
	}
}

func linksFiles(t *testing.T, lab importtest.Lab) {
	im := newImport(t, lab, "")
	im.Link, im.Stores = true, []string{filepath.Join(lab.Home, "partitions/one"), filepath.Join(lab.Home, "partitions/two/bundles")}
	_, err := im.Run(t.Context())
	must(t, err)
	golden(t, "lab", view(t, im))
	from, err := os.Stat(filepath.Join(lab.Home, "partitions/two/bundles", importtest.UUID("ec"), "w"))
	must(t, err)
	to, err := os.Stat(filepath.Join(im.Dir, "bundles", store.ImportedContents(importtest.UUID("ec")), store.ContentsPath, "w"))
	if err != nil || !os.SameFile(from, to) {
		t.Errorf("no hard link: %v", err)
	}
}

func refusesOthers(t *testing.T, m *testenv.MariaDB) {
	m.Exec(t, "CREATE USER reader@localhost IDENTIFIED BY 'right'; GRANT SELECT ON other.* TO reader@localhost")
	other := m.Database(t, "other", "CREATE TABLE x (y INT)")
	old := m.Database(t, "old", "CREATE TABLE bundle (uuid TEXT); CREATE TABLE bundle_metadata (id INT); CREATE TABLE worksheet (id INT); CREATE TABLE `user` (id INT)")
	for _, test := range []struct{ url, password, says string }{
		{other, "", "this is not the database of a CodaLab server: it has no table bundle"},
		{old, "", "of another version of CodaLab, without the columns bundle.bundle_type, bundle.command"},
		{m.URL("root", "nowhere"), "", "Unknown database 'nowhere'"},
		{m.URL("reader", "other"), "wrong", "Access denied for user 'reader'"},
		{m.URL("reader", "other"), "right", "it has no table bundle"},
		{"mysql://reader@/other?unix_socket=/nowhere", "", "the database does not answer"},
		{"mysql://reader:hidden@127.0.0.1:1/other", "", "open database mysql://reader@127.0.0.1:1/other: the database does not answer"},
	} {
		_, err := codalabimport.Open(t.Context(), test.url, test.password)
		if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", test.url, err)
		}
	}
}
