package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/keywords"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// library is a store with the bundles a to f of the users me and other, a second apart, whose uuids
// are 0xaaa… to 0xfff….
type library struct {
	*testing.T
	*store.Store
}

const lab = "0x99999999999999999999999999999999"

func uuidOf(letter string) string { return "0x" + strings.Repeat(letter, 32) }

// onLibraries runs a test with a library in each kind of database.
func onLibraries(t *testing.T, test func(t *testing.T, l library)) {
	t.Helper()
	onEach(t, func(t *testing.T, at place) { test(t, newLibrary(t, at)) })
}

func newLibrary(t *testing.T, at place) library {
	t.Helper()
	s := open(t, at)
	ctx := t.Context()
	for id, name := range map[string]string{"0xother": "other", "0xguest": "guest"} {
		must(t, s.AddUser(ctx, store.User{ID: id, Name: name, Joined: store.Time{Time: now.Add(time.Hour)}}))
	}
	other := "0xother"
	must(t, s.AddGroups(ctx, store.Group{UUID: lab, Name: "lab", OwnerID: &other}))
	must(t, s.SetMember(ctx, store.Member{UserID: "0xme", GroupUUID: lab}))
	for i, name := range []string{"open", "closed"} {
		must(t, s.AddWorksheets(ctx, store.DefaultPublic, store.Worksheet{UUID: fmt.Sprint("0xw", i), Name: name, OwnerID: "0xother"}))
	}
	must(t, s.SetPermissions(ctx, store.SharedWorksheet, store.Permission{Object: "0xw1", GroupUUID: store.PublicGroup, Permission: store.PermissionNone}))
	l := library{t, s}
	l.add("a", "0xme", "0xw0", codalab.Metadata{"tags": []string{"Red", "b_ue"}, "time": 9.5, "exitcode": 0})
	l.add("b", "0xme", "", codalab.Metadata{"tags": []string{"green\nred"}, "time": 10.0, "exitcode": 1, "request_network": true})
	l.add("c", "0xother", "0xw0", codalab.Metadata{"tags": []string{"blue"}, "time": 2.0, "note": `100%_sure`})
	l.add("d", "0xother", "0xw1", codalab.Metadata{"description": "secret", "time": 100.0})
	l.add("e", "0xother", "0xw0", codalab.Metadata{"description": "null \x00 character"})
	l.add("f", "0xother", "", codalab.Metadata{"exitcode": 2})
	must(t, s.SetPermissions(ctx, store.SharedBundle, store.Permission{Object: uuidOf("f"), GroupUUID: lab, Permission: store.PermissionRead}))
	_, err := s.Change(ctx, uuidOf("e"), func(b *store.Bundle) error {
		b.IsAnonymous, b.State = true, codalab.StateFailed
		return nil
	})
	must(t, err)
	return l
}

// add adds the bundle that a letter names, on a worksheet if one is given.
func (l library) add(letter, owner, worksheet string, m codalab.Metadata) {
	l.Helper()
	b := bundle(letter + "-Bundle")
	b.UUID, b.OwnerID = uuidOf(letter), owner
	b.Created.Time = now.Add(time.Duration(letter[0]) * time.Second)
	for key, value := range m {
		b.Metadata[key] = value
	}
	b.DataSize = int64(letter[0]-'a') * 10
	if letter > "a" {
		b.Dependencies = []codalab.Dependency{{ChildPath: "in", ParentUUID: uuidOf("a")}, {ChildPath: "x", ParentUUID: uuidOf("9")}}
	}
	must(l.T, l.CreateBundle(l.Context(), b, worksheet))
}

// find returns the letters of the bundles that a search finds, in their order.
func (l library) find(user, search string) string {
	l.Helper()
	q, err := keywords.Parse(strings.Split(search, " "))
	must(l.T, err)
	uuids, err := l.SearchBundles(l.Context(), store.User{ID: user}, q)
	if err != nil {
		l.Errorf("%s: %v", search, err)
	}
	letters := ""
	for _, uuid := range uuids {
		letters += uuid[len(uuid)-1:]
	}
	return letters
}

func (l library) measure(user, search string) string {
	l.Helper()
	q, err := keywords.Parse(strings.Split(search, " "))
	must(l.T, err)
	n, err := l.MeasureBundles(l.Context(), store.User{ID: user}, q)
	if err != nil {
		l.Errorf("%s: %v", search, err)
	}
	if n == nil {
		return "null"
	}
	return codalab.PythonStr(n)
}

func TestBundlesAreFound(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		for search, want := range map[string]string{
			"": "abcdef", "bundle": "abcdef", "B-BUND": "b", "a%undle": "a", uuidOf("c"): "c", "0xcccc": "c", "a_bundle": "", `a\bundle`: "",
			"name=a-bundle": "a", "name=a-bundl": "", "name=%-b.*": "abcdef", "name=a-bundle,c-Bundle,x": "ac", "name=a%,c-bundle": "ac",
			"uuid=" + uuidOf("D"): "d", "uuid=0xd%": "d", "type=run": "abcdef", "bundle_type=dataset": "", "state=failed": "e", "state=FAILED,created": "abcdef",
			"command=x": "abcdef", "command=y": "", ".mine": "", "owner_id=0xme": "ab", "owner=me": "ab", "owner=me,OTHER": "abcdef", "owner=o%": "cdef",
			"owner=nobody": "", ".notmine owner=me": "ab", ".floating": "bf", ".shared": "", "group=" + lab: "f", "group=" + store.PublicGroup: "ace",
			"host_worksheet=0xw0": "ace", "worksheet=0xw1": "d", "worksheet=0xw%": "acde", "dependency=" + uuidOf("a"): "bcdef", "dependency/in=" + uuidOf("a") + " .limit=2": "bc",
			"dependency/in=" + uuidOf("9"): "", "dependency/x=0x9%": "bcdef", "size=10": "b", "data_size=10,30,x": "bd", "size=3%": "d", "size=ten": "",
			"tags=red": "a", "tags=RED,blue": "ac", "tags=b_ue": "a", "tags=b%": "ac", "tags=green\nred": "b", "tags=green%": "b", "tags=r%d,nosuch": "a", "tags=": "",
			"exitcode=0": "a", "exitcode=1,2": "bf", "request_network=true": "b", "request_network=True": "b", "request_network=False": "", "time=9.5": "a", "note=100%_sure": "c",
			"note=100x_sure": "", "note=%": "c", "nosuch=1": "", "a.b/c=1": "", "=red": "ab", "=Secret": "d", "=x": "abcdef", "=%": "abcdef",
			"description=secret": "d", "size=.sort-": "fedcba", "size=.sort- .limit=2 .offset=1": "ed", "name=.sort-": "fedcba", "time=.sort": "cabd", "time=.sort-": "dbac",
			"exitcode=.sort-": "fba", "exitcode=.sort": "abf", "note=.sort": "c", ".last": "fedcba", "id=.sort-": "fedcba", "created=.sort": "abcdef", ".last .limit=1": "f",
			"dependency/in=.sort": "bcdef", "dependency=.sort-": "fedcb", "host_worksheet=.sort": "aced", "state=.sort-": "efdcba",
			".before=" + now.Add('b'*time.Second).Format(time.RFC3339): "ab", ".after=2026-11-20T08:01:40.9Z": "def", ".after=2027": "",
			".limit=0": "", ".offset=99": "", ".limit=9999999999 .offset=5": "f", "name=a-bundle size=10": "",
		} {
			if got := l.find(store.RootID, search); got != want {
				t.Errorf("%q: %q, want %q", search, got, want)
			}
		}
	})
}

func TestOnlyReadableBundlesAreFoundAndCounted(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		for _, test := range []struct{ user, search, found, count, sum string }{
			{"0xme", "", "abcef", "5", "120.0"},
			{"0xguest", "", "ace", "3", "60.0"},
			{"", "", "ace", "3", "60.0"},
			{"0xother", "", "acdef", "5", "140.0"},
			{store.RootID, "", "abcdef", "6", "150.0"},
			{"0xguest", "d-bundle", "", "0", "null"},
			{"0xguest", uuidOf("d"), "", "0", "null"},
			{"0xguest", "=secret", "", "0", "null"},
			{"0xguest", "description=secret", "", "0", "null"},
			{"0xguest", "dependency=" + uuidOf("a"), "ce", "2", "60.0"},
			{"0xme", ".mine", "ab", "2", "10.0"},
			{"0xme", ".notmine", "cef", "3", "110.0"},
			{"", ".mine", "", "0", "null"},
			{"0xme", ".shared", "f", "1", "50.0"},
			{"0xguest", ".shared", "", "0", "null"},
			{"0xguest", "group=" + lab, "", "0", "null"},
			// A search does not reveal the owner of an anonymous bundle.
			{"0xguest", "owner=other", "c", "1", "20.0"},
			{"0xguest", "owner_id=0xo%", "c", "1", "20.0"},
			{"0xother", "owner=other", "cdef", "4", "140.0"},
			// A search does not reveal the bundles of worksheets that the user may not read.
			{"0xguest", "host_worksheet=0xw0", "ace", "3", "60.0"},
			{"0xme", "host_worksheet=0xw1", "", "0", "null"},
			{"0xother", "host_worksheet=0xw1", "d", "1", "30.0"},
		} {
			what := fmt.Sprintf("%s searches %q", test.user, test.search)
			if got := l.find(test.user, test.search); got != test.found {
				t.Errorf("%s: %q, want %q", what, got, test.found)
			}
			if got := l.measure(test.user, test.search+" .count .limit=1"); got != test.count {
				t.Errorf("%s: %s, want %s", what, got, test.count)
			}
			if got := l.measure(test.user, test.search+" size=.sum .offset=2"); got != test.sum {
				t.Errorf("%s: %s, want %s", what, got, test.sum)
			}
		}
	})
}

func TestTotals(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		for search, want := range map[string]string{
			"time=.sum": "121.5", "exitcode=.sum": "3.0", "description=.sum": "0.0", "nosuch=.sum": "null", "data_size=.sum": "150.0",
			"time=.sum .mine": "null", "time=.sum name=b%": "10.0",
		} {
			if got := l.measure(store.RootID, search); got != want {
				t.Errorf("%s: %s, want %s", search, got, want)
			}
		}
	})
}

// The database stores everybody's permission twice: in a row, and in the column public.
func TestSearchesFollowPermissions(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		for _, step := range []struct {
			permission int
			group      string
			found      string
		}{
			{store.PermissionAll, store.PublicGroup, "acde"},
			{store.PermissionNone, store.PublicGroup, "ace"},
			{store.PermissionRead, store.PublicGroup, "acde"},
			{store.PermissionNone, lab, "acde"},
			{store.PermissionNone, store.PublicGroup, "ace"},
		} {
			must(t, l.SetPermissions(t.Context(), store.SharedBundle, store.Permission{Object: uuidOf("d"), GroupUUID: step.group, Permission: step.permission}))
			if got := l.find("0xguest", ""); got != step.found {
				t.Errorf("%+v: %s", step, got)
			}
		}
		must(t, l.RemoveMember(t.Context(), "0xme", lab))
		if got := l.find("0xme", ".notmine"); got != "ce" {
			t.Errorf("after leaving the group: %s", got)
		}
	})
}

func TestSearchesFollowChanges(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		_, err := l.Change(t.Context(), uuidOf("a"), func(b *store.Bundle) error {
			b.Metadata["tags"], b.Metadata["time"], b.Metadata["name"] = []string{strings.Repeat("long", 200), "red"}, 1.0, "new"
			return nil
		})
		must(t, err)
		for search, want := range map[string]string{
			"tags=red": "a", "tags=b_ue": "", "tags=%long": "a", "time=.sort": "acbd", "name=new": "a", "name=a-bundle": "",
		} {
			if got := l.find(store.RootID, search); got != want {
				t.Errorf("%s: %q, want %q", search, got, want)
			}
		}
	})
}

func TestSearchesThatHaveNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		for search, want := range map[string]string{
			".before=soon": "Unable to parse datetime.", ".after=2026,2027": ".after needs one time", "owner=.sort": "Cannot sort by owner",
			"group=.sort": "Cannot sort by group", "state=.sum": "Bundles have no total of state",
		} {
			q, err := keywords.Parse(strings.Split(search, " "))
			must(t, err)
			if q.Aggregate() {
				_, err = l.MeasureBundles(t.Context(), store.User{ID: "0xme"}, q)
			} else {
				_, err = l.SearchBundles(t.Context(), store.User{ID: "0xme"}, q)
			}
			var no *keywords.Error
			if !errors.As(err, &no) || !strings.HasPrefix(no.Error(), want) {
				t.Errorf("%s: %v, want %s", search, err, want)
			}
		}
	})
}

// The database must take the largest search that Parse takes.
func TestLargestSearches(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(_ *testing.T, l library) {
		list := strings.Repeat("a%,", 98) + strings.TrimSuffix(strings.Repeat("a,", 890), ",")
		for _, search := range []string{
			"name=" + list, "tags=" + list, "note=" + list, "owner=" + list, "uuid=" + strings.ReplaceAll(list, "%", ""), "size=" + list,
			strings.Repeat("note=%a%a%a%a%a%a%a%a%b ", 99), strings.Repeat(`\ `, 99), strings.Repeat("%", 9_000), "note=" + strings.Repeat("%a", 4_000),
			"'; DROP TABLE bundles;--", `a"b=c`, `name=');--`, `x'=1`, "é=ü", "/././=1",
		} {
			_ = l.find("0xme", search)
		}
	})
}
