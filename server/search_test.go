package server_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/server/store"
)

// search sends keywords, which are separated by spaces.
func (s *site) search(user, kind, words string) answer {
	s.t.Helper()
	return s.get(user, "/"+kind+"?include=owner&"+url.Values{"keywords": strings.Split(words, " ")}.Encode())
}

// names are those of an answer's objects, in their order.
func (a answer) names() string {
	a.t.Helper()
	list, _ := a.ok().value("data").([]any)
	var names []string
	for i := range list {
		name, ok := a.value("data", i, "attributes").(map[string]any)
		if !ok {
			a.t.Fatalf("%s: %s", a.what, a.body)
		}
		switch {
		case name["metadata"] != nil:
			names = append(names, a.text("data", i, "attributes", "metadata", "name"))
		case name["user_name"] != nil:
			names = append(names, a.text("data", i, "attributes", "user_name"))
		default:
			names = append(names, a.text("data", i, "attributes", "name"))
		}
	}
	return strings.Join(names, " ")
}

// searchable is a site with bundles of alice, of which bob may read one, and one of a group of hers
// and bob's.
func searchable(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.upload("first", "1")
	open := s.upload("second", "22")
	shared := s.upload("third", "333")
	s.share("alice", "bundle", open, "public", store.PermissionRead)
	group := s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok().text("data", 0, "id")
	s.call("alice", "POST", "/groups/lab/relationships/members", map[string]any{"data": []any{
		map[string]string{"type": "users", "id": s.get("bob", "/user").text("data", "id")},
	}}).ok()
	s.share("alice", "bundle", shared, group, store.PermissionRead)
	return s
}

func TestSearchOfBundles(t *testing.T) {
	t.Parallel()
	s := searchable(t)
	for _, test := range []struct{ user, words, want string }{
		{"alice", "", "first second third"},
		{"alice", "ir", "first third"},
		{"alice", ".mine size=.sort- .limit=2", "third second"},
		{"alice", "owner=alice .last .limit=1", "third"},
		{"alice", "owner=alice,nobody state=ready,failed .offset=2", "third"},
		{"alice", "owner=nobody", ""},
		{"alice", "host_worksheet=" + s.home("alice"), "first second third"},
		{"alice", "group=lab", "third"},
		{"bob", "", "second third"},
		{"bob", "ir", "third"},
		{"bob", ".mine", ""},
		{"bob", ".shared", "third"},
		{"bob", "group=lab", "third"},
		{"bob", "group=public", "second"},
		{"bob", "host_worksheet=" + s.home("alice"), ""},
		{"", "", "second"},
		{"", ".mine", ""},
		{"", "owner=alice", "second"},
		{"root", "", "first second third"},
		{"root", "group=lab type=dataset", "third"},
	} {
		a := s.search(test.user, "bundles", test.words)
		a.what += " " + test.user + ": " + test.words
		if got := a.names(); got != test.want {
			t.Errorf("%s: %q, want %q", a.what, got, test.want)
		}
	}
	for words, sentence := range map[string]string{
		".limit=-1": ".limit must be a number", ".offset=x": ".offset must be", ".before=x": "Unable to parse datetime", "group=.sort": "Cannot sort by group",
		"a\x00b": "characters that are not UTF-8, or are zero", "uuid=" + strings.Repeat("1,", 2000): "at most 1000 values",
	} {
		s.search("alice", "bundles", words).says(400, sentence)
	}
	s.search("bob", "bundles", "group=nosuch").says(404, "Found no group with name 'nosuch'")
	s.search("", "bundles", "group=lab").says(404, "Found no group with name 'lab'")
}

func TestAggregatesCountReadableBundlesOnly(t *testing.T) {
	t.Parallel()
	s := searchable(t)
	for _, test := range []struct {
		user, words string
		want        any
	}{
		{"alice", ".count", 3.0},
		{"alice", "size=.sum", 6.0},
		{"alice", "size=.sum .format=size", "6 bytes"},
		{"alice", ".count .format=%.2f", "3.00"},
		{"alice", "exitcode=1 size=.sum", nil},
		{"bob", ".count", 2.0},
		{"bob", "size=.sum", 5.0},
		{"bob", ".count first", 0.0},
		{"bob", ".count owner=alice .limit=1", 2.0},
		{"", ".count", 1.0},
		{"", "size=.sum", 2.0},
	} {
		a := s.search(test.user, "bundles", test.words).ok()
		if got := a.value("meta", "result"); got != test.want || strings.Contains(a.body, `"data"`) {
			t.Errorf("%s searches %s: %s, want %v", test.user, test.words, a.body, test.want)
		}
	}
	if a := s.search("alice", "bundles", "size=.sum"); !strings.Contains(a.body, `"result":6.0`) {
		t.Errorf("a total is no float for Python: %s", a.body)
	}
}

func TestSearchOfWorksheets(t *testing.T) {
	t.Parallel()
	s := newSite(t, publicByDefault)
	for _, name := range []string{"wide", "narrow"} {
		s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": name})).ok()
	}
	for _, test := range []struct{ user, words, want string }{
		{"alice", "name=wide", "wide"},
		{"alice", ".mine name=.sort", "home-alice narrow wide"},
		{"alice", "ROW", "narrow"},
		{"bob", "owner=alice name=.sort", "narrow wide"},
		{"bob", ".notmine name=.sort-", "wide narrow"},
		{"", "home", ""},
		{"bob", "home", "home-bob"},
	} {
		if got := s.search(test.user, "worksheets", test.words).names(); got != test.want {
			t.Errorf("%s searches %s: %q, want %q", test.user, test.words, got, test.want)
		}
	}
	if got := s.get("bob", "/worksheets").names(); !strings.HasPrefix(got, "home-bob ") || len(strings.Fields(got)) != 3 {
		t.Errorf("without keywords: %s", got)
	}
	for words, sentence := range map[string]string{
		"nosuch=1": "Unknown key: nosuch", ".count": "Worksheets cannot be counted", "tag=.sort": "Cannot sort by tag", ".floating": "Unknown key: .floating",
	} {
		s.search("alice", "worksheets", words).says(400, sentence)
	}
}

func TestSearchOfUsers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for words, want := range map[string]string{
		"": "alice bob root", "ali": "alice", "user_name=.sort-": "root bob alice", "user_name=b%": "bob", "user_name=.sort .limit=1 .offset=1": "bob",
	} {
		for _, user := range []string{"root", "alice", ""} {
			got := strings.Fields(s.search(user, "users", words).names())
			if words == "" {
				got = strings.Fields(s.search(user, "users", "user_name=.sort").names())
			}
			if diff := cmp.Diff(strings.Fields(want), got); diff != "" {
				t.Errorf("%s searches %q: %s", user, words, diff)
			}
		}
	}
	a := s.search("alice", "users", ".count user_name=%o%").ok()
	if a.value("meta", "results") != 2.0 || strings.Contains(a.body, `"data"`) {
		t.Errorf("%s", a.body)
	}
	if a := s.search("alice", "users", "bob").ok(); strings.Contains(a.body, "disk_quota") || strings.Contains(a.body, "email") {
		t.Errorf("alice sees %s", a.body)
	}
	for _, words := range []string{"email=%", ".disk_used_more_than=1%", "disk_used=.sort", "time_quota=5", ".active_after=2020", "last_login=.sort-", ".count email=a%", "nosuch=1"} {
		s.search("alice", "users", words).says(403, "You don't have access to search for these fields")
		s.search("", "users", words).says(403, "You don't have access to search for these fields")
		if words != "nosuch=1" {
			s.search("root", "users", words).ok()
		}
	}
	s.search("root", "users", "nosuch=1").says(400, "Unknown key: nosuch")
	s.search("root", "users", ".disk_used_more_than=x").says(400, "needs a number or percents")
}
