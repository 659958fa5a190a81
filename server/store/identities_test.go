package store_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestIdentities(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		must(t, s.AddUser(ctx, store.User{ID: "0xother", Name: "other"}))
		identity := func(issuer, subject, user string) store.Identity {
			return store.Identity{Issuer: issuer, Subject: subject, UserID: user, Linked: store.Time{Time: now}}
		}
		first, second := identity("https://a", "1", "0xme"), identity("https://b", "1", "0xme")
		must(t, s.Link(ctx, second))
		must(t, s.Link(ctx, first))
		must(t, s.Link(ctx, identity("https://a", "A", "0xother")))
		for name, test := range map[string]struct {
			link store.Identity
			want error
		}{
			"again":               {first, store.ErrExists},
			"of another user":     {identity("https://a", "1", "0xother"), store.ErrExists},
			"to nobody":           {identity("https://a", "2", "0xnobody"), store.ErrNotFound},
			"to a user's name":    {identity("https://a", "2", "me"), store.ErrNotFound},
			"taken, to nobody":    {identity("https://a", "1", "0xnobody"), store.ErrNotFound},
			"in another spelling": {identity("https://a", "a", "0xme"), nil}, // subjects have a case
		} {
			if err := s.Link(ctx, test.link); !errors.Is(err, test.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		all, err := s.Identities(ctx, "0xme")
		if diff := cmp.Diff([]store.Identity{first, identity("https://a", "a", "0xme"), second}, all); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		user := func(issuer, subject, want string) {
			t.Helper()
			u, err := s.UserOfIdentity(ctx, issuer, subject)
			if u.Name != want || (want == "") != errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s of %s is %q, %v", subject, issuer, u.Name, err)
			}
		}
		user("https://a", "1", "me")
		user("https://a", "A", "other")
		user("https://a", "2", "")
		user("https://a/", "1", "")
		user("", "", "")

		if n, err := s.Unlink(ctx, "0xme"); n != 3 || err != nil {
			t.Errorf("unlinked %d, %v", n, err)
		}
		if n, err := s.Unlink(ctx, "0xme"); n != 0 || err != nil {
			t.Errorf("unlinked %d more, %v", n, err)
		}
		user("https://a", "1", "")
		user("https://a", "A", "other")
		_, err = s.DeleteUser(ctx, "0xother")
		must(t, err)
		user("https://a", "A", "") // it goes with its user
		must(t, s.Link(ctx, identity("https://a", "A", "0xme")))
	})
}

// Of a person's first two sign-ins at once, one makes the user. The other makes none.
func TestPersonBecomesOneUser(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		added := make(chan error, 8)
		var all sync.WaitGroup
		for i := range cap(added) {
			all.Go(func() {
				n := strconv.Itoa(i)
				added <- s.AddLinkedUser(ctx, store.User{ID: "0xn" + n, Name: "new" + n, DiskQuota: 7}, store.Identity{Issuer: "https://a", Subject: "new", Linked: store.Time{Time: now}})
			})
		}
		all.Wait()
		close(added)
		made := 0
		for err := range added {
			switch {
			case err == nil:
				made++
			case !errors.Is(err, store.ErrExists):
				t.Error(err)
			}
		}
		users, err := s.Users(ctx)
		if made != 1 || err != nil || len(users) != 2 {
			t.Errorf("made %d of %d users, %v", made, len(users), err)
		}
		u, err := s.UserOfIdentity(ctx, "https://a", "new")
		if err != nil || u.DiskQuota != 7 || u.EntriesQuota != store.DefaultEntries || u.Password != "" {
			t.Errorf("%+v, %v", u, err)
		}
		if err := s.AddLinkedUser(ctx, store.User{ID: "0x2", Name: "me"}, store.Identity{Issuer: "https://a", Subject: "2"}); !errors.Is(err, store.ErrExists) {
			t.Errorf("a name that is taken: %v", err)
		}
		if _, err := s.UserOfIdentity(ctx, "https://a", "2"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the identity of a refused user: %v", err)
		}
	})
}

func TestUsersAreFoundByTheirEmail(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		for name, email := range map[string]string{"a": "One@lab.example", "b": "two@lab.example", "c": "TWO@lab.example", "d": "two@lab.example", "e": ""} {
			must(t, s.AddUser(ctx, store.User{ID: "0x" + name, Name: name}))
			_, err := s.ChangeUser(ctx, "0x"+name, func(u *store.User) error { u.Email = email; return nil })
			must(t, err)
		}
		for email, want := range map[string]int{"one@LAB.example": 1, "two@lab.example": 3, "": 0, "%": 0, "one_lab.example": 0, " one@lab.example": 0} {
			if found, err := s.UsersByEmail(ctx, email); err != nil || len(found) != want {
				t.Errorf("%q: %d users, %v", email, len(found), err)
			}
		}
	})
}
