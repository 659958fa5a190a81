package inputs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

var must = testenv.Must

// linkSite is a real server with the users ann and bob, a disk with data, and ann's bridge with the
// root <dir>/data.
type linkSite struct {
	*testing.T
	*Links
	dir   string
	api   map[string]*client.Client
	clock atomic.Int64 // seconds
}

func newLinkSite(t *testing.T) *linkSite {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	s := &linkSite{T: t, dir: dir, api: map[string]*client.Client{}}
	s.clock.Store(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).Unix())
	data, err := store.Open(t.Context(), filepath.Join(dir, "server"))
	must(t, err)
	t.Cleanup(func() { must(t, data.Close()) })
	site := httptest.NewServer(server.New(server.Config{Store: data, Now: time.Now, PasswordCost: server.PasswordCost{Passes: 1, KiB: 8}}).Handler())
	t.Cleanup(site.Close)
	for _, name := range []string{"ann", "bob"} {
		hashed := server.HashPassword(name, server.PasswordCost{Passes: 1, KiB: 8})
		must(t, data.AddUser(t.Context(), store.User{ID: userID(name), Name: name, Password: hashed, TimeQuota: 1 << 40, DiskQuota: 1 << 20, ParallelRunQuota: 9}))
		s.api[name], err = client.New(site.URL, client.Options{Credentials: func(context.Context) (string, string, error) { return name, name, nil }})
		must(t, err)
	}
	for _, sub := range []string{"data", "shared/spool", "secret"} {
		must(t, os.MkdirAll(s.at(sub), 0o755))
	}
	s.Links = &Links{
		Roots: []LinkRoot{{Path: s.at("data")}}, Hidden: []string{s.at("shared"), "/proc"},
		Catalog: s.api["ann"], Records: spool.Layout(s.at("shared")).Link,
		Now: func() time.Time { return time.Unix(s.clock.Load(), 0) },
	}
	return s
}

func userID(name string) string {
	return "0x" + strings.Repeat("0", 32-len(name)) + strings.Repeat(name[:1], len(name))
}

func (s *linkSite) at(name string) string { return filepath.Join(s.dir, name) }

// write writes old files.
func (s *linkSite) write(files map[string]string) {
	s.Helper()
	for name, text := range files {
		must(s, os.MkdirAll(filepath.Dir(s.at(name)), 0o755))
		must(s, os.WriteFile(s.at(name), []byte(text), 0o644))
		must(s, os.Chtimes(s.at(name), time.Time{}, time.Unix(1e9, 0)))
	}
}

// link makes ann's bundle that is a link and returns its UUID.
func (s *linkSite) link(url, format string) string {
	s.Helper()
	sheet, err := s.api["ann"].FindWorksheet(s.Context(), "", client.HomeWorksheet)
	must(s, err)
	m := codalab.Metadata{"name": "set", "description": "", "tags": []string{}, "license": "", "source_url": ""}
	if url != "" {
		m["link_url"], m["link_format"] = url, format
	}
	b, err := s.api["ann"].CreateBundle(s.Context(), client.NewBundle{Worksheet: sheet.UUID, Type: codalab.TypeDataset, Metadata: m})
	must(s, err)
	return b.UUID
}

// of finds a dependency of a user's run.
func (s *linkSite) of(who, parent, below string) (spool.Dependency, bool, error) {
	s.Helper()
	s.clock.Add(3600) // so that fingerprints are not shared
	return s.findDependency(s.Context(), userID(who), codalab.Dependency{ChildPath: "data", ParentUUID: parent, ParentPath: below})
}

// finds finds a dependency that must exist.
func (s *linkSite) finds(who, parent, below string) spool.Dependency {
	s.Helper()
	found, linked, err := s.of(who, parent, below)
	if err != nil || !linked || !found.InPlace || found.Link == nil {
		s.Fatalf("found %+v, %v, %v", found, linked, err)
	}
	return found
}

// refuses checks that a dependency is refused, or delayed, with one sentence.
func (s *linkSite) refuses(who, parent, below, words string, again bool) {
	s.Helper()
	found, _, err := s.of(who, parent, below)
	var e *transfer.Error
	if !errors.As(err, &e) || e.Transient() != again || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		s.Errorf("found %+v, error %v, want one with %q, transient %v", found, err, words, again)
	}
}

func TestLinkedDataIsUsedWhereItLies(t *testing.T) {
	t.Parallel()
	s := newLinkSite(t)
	s.write(map[string]string{"data/set/a": "1", "data/set/sub/b": "22", "data/one.txt": "333"})
	must(t, os.Symlink("data", s.at("alias")))
	must(t, os.Symlink("set", s.at("data/latest")))
	must(t, os.Symlink("sub", s.at("data/set/near")))
	set := s.link(s.at("data/set"), "raw")
	got := s.finds("ann", set, "")
	if got.ChildPath != "data" || got.Source != s.at("data/set") || got.Link.Path != s.at("data/set") || got.Link.Bundle != set {
		t.Errorf("%+v", got)
	}
	if f := got.Link.Fingerprint; f.Files != 2 || f.Directories != 1 || f.Bytes != 3 || f.Entries != 4 || f.Partial || !f.Newest.Equal(time.Unix(1e9, 0)) || len(f.Digest) != 64 {
		t.Errorf("%+v", f)
	}
	for _, c := range []struct{ url, below, source string }{
		{s.at("data/set"), "sub/b", "data/set/sub/b"},
		{s.at("data/set/"), "./sub/", "data/set/sub"},
		{s.at("data/set"), "near/b", "data/set/sub/b"},
		{"file://" + s.at("data/one.txt"), "", "data/one.txt"},
		{s.at("data/latest"), "sub", "data/set/sub"},
		{s.at("data/x/../set"), "a", "data/set/a"},
		{s.at("data"), "", "data"},
	} {
		if got := s.finds("ann", s.link(c.url, ""), c.below); got.Source != s.at(c.source) {
			t.Errorf("%s %s: %s, want %s", c.url, c.below, got.Source, c.source)
		}
	}
	s.Roots = []LinkRoot{{Path: s.at("nosuch")}, {Path: s.at("alias")}}
	if got := s.finds("ann", s.link(s.at("alias/set"), "raw"), "a"); got.Source != s.at("data/set/a") {
		t.Errorf("below a root that is a symbolic link: %s", got.Source)
	}
	if _, linked, err := s.of("ann", s.link("", ""), ""); linked || err != nil {
		t.Errorf("an ordinary bundle: a link %v, %v", linked, err)
	}
}

func TestLinksThatLeadElsewhereAreRefused(t *testing.T) {
	t.Parallel()
	s := newLinkSite(t)
	s.write(map[string]string{"data/set/a": "1", "secret/s": "secret", "dataset/x": "beside", "data/beside/a": "2"})
	for link, target := range map[string]string{
		"data/out": "../secret", "data/set/out": "../../secret", "data/set/up": "../beside",
		"data/own": "../shared/spool", "data/self": "/proc/self", "data/loop": "loop",
	} {
		must(t, os.Symlink(target, s.at(link)))
	}
	must(t, syscall.Mkfifo(s.at("data/pipe"), 0o644))
	outside := "not under a directory that this site links (" + s.at("data") + ")"
	for _, c := range []struct{ url, below, words string }{
		{s.at("secret"), "", "dependency data (link to " + s.at("secret") + "): " + outside},
		{s.at("data/../secret"), "", outside},
		{s.at("dataset"), "", outside},
		{s.dir, "", outside},
		{"/", "", outside},
		{"/proc/self/root" + s.at("data"), "", outside},
		{s.at("data/out"), "", outside},
		{s.at("data/out/s"), "", outside},
		{s.at("data/self"), "", outside},
		{s.at("data/set"), "out/s", "the path out/s leads out of it"},
		{s.at("data/set"), "up/a", "the path up/a leads out of it"},
		{s.at("data/pipe"), "", "neither a file nor a directory"},
		{"data/set", "", "not the absolute path"},
		{"https://example.org/data", "", "not the absolute path"},
		{"gs://bucket/data", "", "not the absolute path"},
	} {
		s.refuses("ann", s.link(c.url, "raw"), c.below, c.words, false)
	}
	s.refuses("ann", s.link(s.at("data/set"), "zip"), "", `its format is "zip"`, false)
	s.refuses("ann", s.link(s.at("data/nosuch"), "raw"), "", "it is not there", true)
	s.refuses("ann", s.link(s.at("data/set"), "raw"), "nosuch", "dependency data (link to "+s.at("data/set")+"): the path nosuch is not there", false)
	s.refuses("ann", s.link(s.at("data/set/a"), "raw"), "../../secret/s", "the path ../../secret/s is not there", false)
	s.refuses("ann", s.link(s.at("data"), "raw"), "pipe/s", "the path pipe/s is not there", false)
	// Even if a root contains them, the bridge's own files are refused.
	s.Roots = []LinkRoot{{Path: s.dir}, {Path: "/proc"}}
	for _, own := range []string{"shared", "shared/spool", "data/own", "", "data/self"} {
		s.refuses("ann", s.link(s.at(own), "raw"), "", "bundles may not use this path", false)
	}
	s.refuses("ann", s.link(s.dir, "raw"), "shared/spool", "may not use", false)
	if _, linked, err := s.of("ann", s.link(s.at("secret"), "raw"), ""); !linked || err != nil {
		t.Errorf("beside the bridge's own: %v, %v", linked, err)
	}
	must(t, os.Symlink("/", s.at("data/everything")))
	s.Roots = []LinkRoot{{Path: s.at("data/everything")}}
	s.refuses("ann", s.link("/etc", "raw"), "", "not under a directory", false)
}

func TestMissingPathIsWaitedForWhereItMayStillBeShown(t *testing.T) {
	t.Parallel()
	s := newLinkSite(t)
	must(t, os.Mkdir(s.at("data/unmounted"), 0o755))
	must(t, os.Symlink("unmounted/model", s.at("data/latest")))
	for _, below := range []string{"unmounted/model", "unmounted/runs/1", "latest", "latest/w"} {
		s.refuses("ann", s.link(s.at("data"), "raw"), below, "the path "+below+" is not there", true)
	}
	s.write(map[string]string{"data/unmounted/other": ""}) // it is mounted
	s.refuses("ann", s.link(s.at("data"), "raw"), "unmounted/model", "the path unmounted/model is not there", false)
	s.write(map[string]string{"data/unmounted/model": ""})
	s.finds("ann", s.link(s.at("data"), "raw"), "latest")
}

func TestOthersUseOnlyWhatTheSitesTableGivesThem(t *testing.T) {
	t.Parallel()
	s := newLinkSite(t)
	s.write(map[string]string{"data/set/a": "1", "open/set/a": "1"})
	data, open := s.link(s.at("data/set"), "raw"), s.link(s.at("open/set"), "raw")
	s.refuses("bob", data, "", "this site does not let the bundle's owner use data in place", false)
	s.Roots = append(s.Roots, LinkRoot{Path: s.at("open"), Users: []string{"*"}})
	s.refuses("bob", data, "", "not under a directory that this site links ("+s.at("open")+")", false)
	if got := s.finds("bob", open, "a"); got.Source != s.at("open/set/a") {
		t.Errorf("%+v", got)
	}
	for _, users := range [][]string{{"bob"}, {"eve", userID("bob")}} {
		s.Roots[0].Users = users
		s.finds("bob", data, "a")
	}
	s.Roots[0].Users = []string{"bo", "eve"}
	s.refuses("bob", data, "", "not under a directory", false)
	s.finds("ann", data, "a")
}

// It runs as an ordinary user, because root may read everything.
func TestOwnDataIsCheckedAsThePersonWhoRuns(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	s := newLinkSite(t)
	s.write(map[string]string{"data/closed/a": "1", "data/locked/set/a": "1", "data/file": "1", "data/half/open/a": "1", "data/half/closed/b": "2"})
	for name, mode := range map[string]os.FileMode{"data/closed": 0, "data/locked": 0, "data/file": 0, "data/half/closed": 0} {
		must(t, os.Chmod(s.at(name), mode))
		t.Cleanup(func() { must(t, os.Chmod(s.at(name), 0o755)) })
	}
	for _, name := range []string{"data/closed", "data/locked/set", "data/file"} {
		s.refuses("ann", s.link(s.at(name), "raw"), "", "it may not be read", false)
	}
	got := s.finds("ann", s.link(s.at("data/half"), "raw"), "")
	if f := got.Link.Fingerprint; f.Files != 1 || f.Directories != 2 {
		t.Errorf("%+v", f)
	}
}

func TestServerThatIsDownIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := newLinkSite(t)
	s.refuses("ann", codalab.NewUUID(), "", " not found", false)
	set := s.link(s.at("data"), "raw")
	s.Catalog = unreachable{s.api["ann"]}
	s.refuses("ann", set, "", "the server is on fire", true)
}

// unreachable is a catalog that does not answer questions about users.
type unreachable struct{ Catalog }

func (unreachable) User(context.Context) (codalab.User, error) {
	return codalab.User{}, &codalab.Error{Method: "GET", Status: 503, Message: "the server is on fire"}
}

func TestChangeSinceTheFirstUseIsNoted(t *testing.T) {
	t.Parallel()
	s := newLinkSite(t)
	s.write(map[string]string{"data/set/a": "1", "data/set/sub/b": "22", "data/moved/a": "1"})
	set := s.link(s.at("data/set"), "raw")
	for _, below := range []string{"", ".", "", "sub"} {
		if got := s.finds("ann", set, below); got.Link.Note != "" {
			t.Fatalf("nothing has changed: %q", got.Link.Note)
		}
	}
	s.write(map[string]string{"data/set/c": "4444"})
	s.clock.Add(86400)
	what := "The data of dependency data (link to " + s.at("data/set") + ") "
	for range 2 { // each time
		want := what + "has changed since it was first used here on 2026-11-20: 2 files (3 bytes) then, 3 files (7 bytes) now."
		if got := s.finds("ann", set, ""); got.Link.Note != want {
			t.Errorf("%q, want %q", got.Link.Note, want)
		}
	}
	if got := s.finds("ann", set, "sub"); got.Link.Note != "" {
		t.Errorf("a part that has not changed: %q", got.Link.Note)
	}
	must(t, os.Remove(s.at("data/set/c")))
	must(t, os.Chtimes(s.at("data/set/sub/b"), time.Time{}, time.Unix(2e9, 0)))
	if got := s.finds("ann", set, ""); !strings.HasSuffix(got.Link.Note, "2 files (3 bytes) then and now, but other names or times.") {
		t.Errorf("%q", got.Link.Note)
	}
	must(t, os.Chtimes(s.at("data/set/sub/b"), time.Time{}, time.Unix(1e9, 0)))
	if got := s.finds("ann", set, ""); got.Link.Note != "" {
		t.Errorf("as it was: %q", got.Link.Note)
	}
	var rec linkRecord
	data, err := os.ReadFile(s.Records(set))
	must(t, err)
	must(t, json.Unmarshal(data, &rec))
	if part := rec.Parts["."]; len(rec.Parts) != 2 || part.First.Digest != part.Last.Digest || !part.Last.At.After(part.First.At) || part.First.Path != s.at("data/set") {
		t.Errorf("%s", data)
	}
	first, err := s.record(set, ".", linkSeen{At: s.Now(), Path: "/elsewhere"})
	if err != nil || first.Path != s.at("data/set") {
		t.Errorf("%+v, %v", first, err)
	}
	must(t, os.WriteFile(s.Records(set), []byte("not JSON"), 0o600))
	if got := s.finds("ann", set, ""); got.Link.Note != "" {
		t.Errorf("a record that is none: %q", got.Link.Note)
	}
}

func TestChangeUnderARunIsTold(t *testing.T) {
	t.Parallel()
	s := newLinkSite(t)
	s.write(map[string]string{"data/set/a": "1", "data/still/a": "1"})
	inputs := spool.Inputs{Dependencies: []spool.Dependency{
		s.finds("ann", s.link(s.at("data/set"), "raw"), ""), s.finds("ann", s.link(s.at("data/still"), "raw"), ""),
		{ChildPath: "copied", Source: s.at("shared/spool")},
	}}
	changed := func() string {
		s.clock.Add(3600)
		return s.Changed(t.Context(), inputs)
	}
	if got := changed(); got != "" {
		t.Errorf("nothing has changed: %q", got)
	}
	s.write(map[string]string{"data/set/a": "22"})
	what := "The data of dependency data (link to " + s.at("data/set") + ") "
	if got, want := changed(), what+"changed while the bundle was under way: 1 file (1 bytes) then, 1 file (2 bytes) now."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	must(t, os.Rename(s.at("data/set"), s.at("data/moved")))
	gone := what + "can no longer be read at the end of the bundle."
	if got := changed(); got != gone {
		t.Errorf("%q, want %q", got, gone)
	}
	must(t, os.Symlink(s.at("secret"), s.at("data/set")))
	if got := changed(); got != gone {
		t.Errorf("%q, want %q", got, gone)
	}
}

func TestRecordKeepsThePartsThatWereUsedLast(t *testing.T) {
	t.Parallel()
	s := newLinkSite(t)
	bundle := codalab.NewUUID()
	for i := range maxParts + 3 {
		_, err := s.record(bundle, "part"+strings.Repeat("x", i), linkSeen{At: s.Now().Add(time.Duration(i) * time.Second)})
		must(t, err)
	}
	rec, err := s.readRecord(bundle)
	if _, first := rec.Parts["partxx"]; err != nil || len(rec.Parts) != maxParts || first {
		t.Errorf("%d parts, %v", len(rec.Parts), err)
	}
}
