package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/keywords"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestWorksheetsAreFound(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		ctx := t.Context()
		title := "A Title"
		for i, w := range []store.Worksheet{
			{UUID: "0xm1", Name: "mine1", OwnerID: "0xme", Title: &title, TagsJSON: `["Paper","x"]`},
			{UUID: "0xm2", Name: "mine2", OwnerID: "0xme"},
			{UUID: "0xan", Name: "hidden", OwnerID: "0xother"},
		} {
			w.Created.Time, w.Modified.Time = now.Add(time.Duration(i)*time.Hour), now.Add(time.Duration(i)*time.Hour)
			must(t, l.AddWorksheets(ctx, store.DefaultPublic, w))
		}
		_, err := l.ChangeWorksheet(ctx, "0xan", func(w *store.Worksheet) error {
			w.IsAnonymous = true
			return nil
		})
		must(t, err)
		sub, at := "0xw0", store.Time{Time: now.Add(10 * time.Hour)}
		must(t, l.ReplaceItems(ctx, "0xm1", []store.Item{{Type: codalab.ItemWorksheet, Subworksheet: &sub}, {Type: codalab.ItemMarkup, Value: "Some words"}}, at))
		must(t, l.SetPermissions(ctx, store.SharedWorksheet, store.Permission{Object: "0xw1", GroupUUID: lab, Permission: store.PermissionRead}))
		for _, test := range []struct{ user, search, want string }{
			{"0xme", "", "mine1 mine2 hidden open closed"},
			{"0xguest", "", "mine1 hidden mine2 open"},
			{"", "", "mine1 hidden mine2 open"},
			{"0xother", "", "hidden open closed mine1 mine2"},
			{"0xme", ".mine", "mine1 mine2"},
			{"0xme", ".notmine", "hidden open closed"},
			{"0xme", ".shared", "closed"},
			{"0xme", ".last", "mine2 mine1 hidden open closed"},
			{"0xme", "name=.sort", "mine1 mine2 closed hidden open"},
			{"0xme", "MINE", "mine1 mine2"},
			{"0xme", "title", "mine1"},
			{"0xme", "title=a%", "mine1"},
			{"0xme", "name=OPEN", "open"},
			{"0xme", "uuid=0xm2,0xw0", "mine2 open"},
			{"0xme", "owner=me", "mine1 mine2"},
			{"0xme", "owner=other", "open closed"},
			{"0xother", "owner_id=0xother", "hidden open closed"},
			{"0xme", "group=" + lab, "closed"},
			{"0xme", "bundle=" + uuidOf("a"), "open"},
			{"0xguest", "bundle=" + uuidOf("d"), ""},
			{"0xme", "worksheet=0xw0", "mine1"},
			{"0xme", "tag=paper", "mine1"},
			{"0xme", "tag=p%,nosuch", "mine1"},
			{"0xme", "=words", "mine1"},
			{"0xme", ".limit=1 .offset=1", "mine2"},
		} {
			q, err := keywords.Parse(strings.Split(test.search, " "))
			must(t, err)
			found, err := l.SearchWorksheets(ctx, store.User{ID: test.user}, q)
			must(t, err)
			var names []string
			for _, w := range found {
				names = append(names, w.Name)
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("%s searches %q: %s, want %s", test.user, test.search, got, test.want)
			}
		}
	})
}

func TestUsersAreFound(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		ctx := t.Context()
		_, err := l.ChangeUser(ctx, "0xguest", func(u *store.User) error {
			u.FirstName, u.Email, u.LastLogin, u.DiskQuota, u.TimeQuota, u.TimeUsed = "Gus", "g@x.edu", store.Time{Time: now}, 100, 10, 7
			return nil
		})
		must(t, err)
		for search, want := range map[string]string{
			"": "me guest other", "gu": "guest", "0xm": "me", "=GUS": "guest", "first_name=gus": "guest", "user_name=.sort-": "other me guest", "name=me": "me",
			"email=g@%": "guest", "id=.sort-": "other guest me", ".last .limit=1": "other", "user_id=0xme": "me", "disk_quota=.sort-": "me guest other",
			".joined_before=2026-11-20T08:00": "me", ".joined_after=2026-11-20T08:30": "guest other", ".active_after=2026": "guest", ".active_before=2027": "guest",
			".time_used_more_than=70%": "guest", ".time_used_less_than=0.69": "", ".disk_used_less_than=50%": "me guest", "time_used=7": "guest",
		} {
			q, err := keywords.Parse(strings.Split(search, " "))
			must(t, err)
			found, err := l.SearchUsers(ctx, q)
			if err != nil {
				t.Errorf("%s: %v", search, err)
			}
			var names []string
			for _, u := range found {
				names = append(names, u.Name)
			}
			if diff := cmp.Diff(strings.Fields(want), names); len(names)+len(want) > 0 && diff != "" {
				t.Errorf("%s: %s", search, diff)
			}
			n, err := l.CountUsers(ctx, q)
			if !strings.Contains(search, ".limit=1") && (err != nil || codalab.PythonStr(n) != fmt.Sprint(len(names))) {
				t.Errorf("%s: %v, %v", search, n, err)
			}
		}
	})
}
