package store_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestAddressIsConfirmedOnceAndIsThatOfOneUser(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		must(t, s.AddUser(ctx, store.User{ID: "0xother", Name: "other"}))
		me, err := s.User(ctx, "me")
		must(t, err)
		for _, code := range []string{"first", "second"} {
			must(t, s.AddConfirmation(ctx, store.Confirmation{Code: code, UserID: "0xme", Email: "me@lab.example", Expires: store.Time{Time: now.Add(hour)}}, now))
		}
		must(t, s.AddReset(ctx, "0xme", "reset", now.Add(hour)))
		gone := func(code string, at time.Time) {
			t.Helper()
			if _, err := s.Confirmation(ctx, code, at); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v", code, err)
			}
			if err := s.Confirm(ctx, store.Confirmation{Code: code, UserID: "0xme"}, me, at); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v", code, err)
			}
		}
		gone("first", now) // another one has replaced it
		gone("second", now.Add(hour))
		c, err := s.Confirmation(ctx, "second", now)
		must(t, err)
		must(t, s.Confirm(ctx, c, me, now))
		gone("second", now)
		if u, err := s.User(ctx, "me"); err != nil || u.Email != "me@lab.example" {
			t.Errorf("%+v, %v", u, err)
		}
		if _, err := s.UserOfReset(ctx, "reset", now); !errors.Is(err, store.ErrNotFound) { // it went to the old address
			t.Errorf("the code for a new password: %v", err)
		}

		taken := store.Confirmation{Code: "taken", UserID: "0xother", Email: "ME@lab.example", Expires: store.Time{Time: now.Add(hour)}}
		must(t, s.AddConfirmation(ctx, taken, now))
		if err := s.Confirm(ctx, taken, store.User{ID: "0xother"}, now); !errors.Is(err, store.ErrExists) {
			t.Errorf("another user's address: %v", err)
		}
		must(t, s.AddConfirmation(ctx, store.Confirmation{Code: "third", UserID: "0xme", Email: "new@lab.example", Expires: store.Time{Time: now.Add(hour)}}, now))
		_, err = s.SetPassword(ctx, store.NewPassword{UserID: "0xme", Hashed: "x"}, now)
		must(t, err)
		gone("third", now)
	})
}

// Codes were mailed to an address, for an account of a kind. They end with either, and with the user's sign-ins.
func TestCodesEndWithWhatTheyWereMailedFor(t *testing.T) {
	t.Parallel()
	changed := func(do func(*store.User)) func(*store.Store, context.Context) error {
		return func(s *store.Store, ctx context.Context) error {
			_, err := s.ChangeUser(ctx, "0xme", func(u *store.User) error { do(u); return nil })
			return err
		}
	}
	for _, test := range []struct {
		what  string
		do    func(*store.Store, context.Context) error
		stays bool
	}{
		{"another address by the operator", changed(func(u *store.User) { u.Email = "moved@lab.example" }), false},
		{"no address", changed(func(u *store.User) { u.Email = "" }), false},
		{"another password", changed(func(u *store.User) { u.Password = "x" }), false},
		{"another quota", changed(func(u *store.User) { u.DiskQuota = 1 }), true},
		{"a worker account", func(s *store.Store, ctx context.Context) error { return s.SetScopes(ctx, "0xme", []store.Scope{{}}) }, false},
		{"the end of the sign-ins", func(s *store.Store, ctx context.Context) error { _, err := s.EndSignIns(ctx, "0xme"); return err }, false},
	} {
		onEach(t, func(t *testing.T, at place) {
			s, ctx := open(t, at), t.Context()
			must(t, changed(func(u *store.User) { u.Email = "me@lab.example" })(s, ctx))
			must(t, s.AddConfirmation(ctx, store.Confirmation{Code: "new", UserID: "0xme", Email: "new@lab.example", Expires: store.Time{Time: now.Add(hour)}}, now))
			must(t, s.AddReset(ctx, "0xme", "reset", now.Add(hour)))
			must(t, test.do(s, ctx))
			_, reset := s.UserOfReset(ctx, "reset", now)
			_, confirmation := s.Confirmation(ctx, "new", now)
			if (reset == nil) != test.stays || (confirmation == nil) != test.stays {
				t.Errorf("after %s: reset %v, confirmation %v", test.what, reset, confirmation)
			}
		})
	}
}

// The server reads a user, and adds the code that it mails. Meanwhile the user may change.
func TestCodeIsMailedToTheUserAsReadAlone(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(*store.Store, context.Context) error{
		"": func(*store.Store, context.Context) error { return nil },
		"another address": func(s *store.Store, ctx context.Context) error {
			_, err := s.ChangeUser(ctx, "0xme", func(u *store.User) error { u.Email = "moved@lab.example"; return nil })
			return err
		},
		"another password": func(s *store.Store, ctx context.Context) error {
			_, err := s.SetPassword(ctx, store.NewPassword{UserID: "0xme", Hashed: "x"}, now)
			return err
		},
		"a worker account": func(s *store.Store, ctx context.Context) error { return s.SetScopes(ctx, "0xme", []store.Scope{{}}) },
		"a sign-in by a provider": func(s *store.Store, ctx context.Context) error {
			return s.Link(ctx, store.Identity{Issuer: "https://i", Subject: "1", UserID: "0xme"})
		},
	} {
		onEach(t, func(t *testing.T, at place) {
			s, ctx := open(t, at), t.Context()
			me, err := s.ChangeUser(ctx, "0xme", func(u *store.User) error { u.Email = "me@lab.example"; return nil })
			must(t, err)
			must(t, do(s, ctx))
			err = s.AddMailedReset(ctx, me, "reset", now.Add(hour))
			if what != "" && !errors.Is(err, store.ErrNotFound) || what == "" && err != nil {
				t.Errorf("after %s: %v", what, err)
			}
			if _, err := s.UserOfReset(ctx, "reset", now); (err == nil) != (what == "") {
				t.Errorf("after %s the code's user: %v", what, err)
			}
		})
	}
}

// Anybody can ask for a mail. The operator's code is that of the user's own wish, and ends the others.
func TestMailedCodesReplaceEachOtherAndNotTheOperators(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		me, err := s.ChangeUser(ctx, "0xme", func(u *store.User) error { u.Email = "me@lab.example"; return nil })
		must(t, err)
		valid := func(want ...string) {
			t.Helper()
			for _, code := range []string{"mailed", "mailed again", "operator", "operator again"} {
				if _, err := s.UserOfReset(ctx, code, now); (err == nil) != slices.Contains(want, code) {
					t.Errorf("%s: %v, want %v alone", code, err, want)
				}
			}
		}
		must(t, s.AddReset(ctx, "0xme", "operator", now.Add(hour)))
		must(t, s.AddMailedReset(ctx, me, "mailed", now.Add(hour)))
		valid("operator", "mailed")
		must(t, s.AddMailedReset(ctx, me, "mailed again", now.Add(hour)))
		valid("operator", "mailed again")
		must(t, s.AddReset(ctx, "0xme", "operator again", now.Add(hour)))
		valid("operator again")
		must(t, s.AddMailedReset(ctx, me, "mailed", now.Add(hour)))
		for _, code := range []string{"operator", "mailed again"} {
			if _, err := s.SetPassword(ctx, store.NewPassword{UserID: "0xme", Hashed: "x", Code: code}, now); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v", code, err)
			}
		}
		_, err = s.SetPassword(ctx, store.NewPassword{UserID: "0xme", Hashed: "x", Code: "operator again"}, now)
		must(t, err)
		valid()
	})
}

func TestSignUpMakesAUserWhoseNameIsFree(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		must(t, s.AddUser(ctx, store.User{ID: "0xother", Name: "old"}))
		_, err := s.ChangeUser(ctx, "0xother", func(u *store.User) error { u.Name, u.Email = "other", "other@lab.example"; return nil })
		must(t, err)
		must(t, s.AddUser(ctx, store.User{ID: "0xgone", Name: "Gone"}))
		_, err = s.DeleteUser(ctx, "0xgone")
		must(t, err)
		for i, name := range []string{"me", "Other", "old", "gone", "new"} { // taken, by case, a former one, a removed user's
			if err := s.CheckUserName(ctx, name); name != "new" && !errors.Is(err, store.ErrExists) || name == "new" && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			c := store.Confirmation{Code: strconv.Itoa(i), Name: name, Email: "ann@lab.example", Password: "p", Expires: store.Time{Time: now.Add(hour)}}
			must(t, s.AddConfirmation(ctx, c, now))
			u := store.User{ID: "0x" + strconv.Itoa(i), Name: name, Password: "p", FirstName: "Ann", DiskQuota: 7}
			if err := s.Confirm(ctx, c, u, now); name != "new" && !errors.Is(err, store.ErrExists) || name == "new" && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		u, err := s.User(ctx, "new")
		if err != nil || u.Email != "ann@lab.example" || u.FirstName != "Ann" || u.DiskQuota != 7 || u.EntriesQuota != store.DefaultEntries {
			t.Errorf("%+v, %v", u, err)
		}
		c := store.Confirmation{Code: "last", Name: "last", Email: "Ann@lab.example", Expires: store.Time{Time: now.Add(hour)}}
		must(t, s.AddConfirmation(ctx, c, now))
		if err := s.Confirm(ctx, c, store.User{ID: "0xlast", Name: "last"}, now); !errors.Is(err, store.ErrExists) {
			t.Errorf("an address of another user: %v", err)
		}
		if _, err := s.User(ctx, "last"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the user was made: %v", err)
		}
	})
}
