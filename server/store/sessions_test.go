package store_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/server/store"
)

const hour = time.Hour

// grant is a pair of tokens that begins with a name, as signIn makes it.
func grant(name string, at time.Time) store.Grant {
	return store.Grant{
		Access: name + "-access", Refresh: name + "-refresh",
		AccessExpires: store.Time{Time: at.Add(hour)}, RefreshExpires: store.Time{Time: at.Add(30 * 24 * hour)},
	}
}

// begin begins a session of the user "me".
func begin(t *testing.T, s *store.Store, id string, at time.Time) {
	t.Helper()
	_, err := s.BeginSession(t.Context(), store.SignIn{Session: store.Session{ID: id, UserID: "0xme", Client: "c", Program: id}, Grant: grant(id, at)}, at)
	must(t, err)
}

// renewal is a use of a refresh token, whose program uses it once.
func renewal(refresh, next string, at time.Time) store.Renewal {
	return store.Renewal{
		Refresh: refresh, Client: "c", Next: grant(next, at), Grace: time.Minute, ReusedAfter: 10 * time.Minute,
		Strict: func(program string) bool { return program != "lax" },
	}
}

// ids returns the sessions of the user "me".
func ids(t *testing.T, s *store.Store, at time.Time) (all []string) {
	t.Helper()
	sessions, err := s.Sessions(t.Context(), "0xme", at)
	must(t, err)
	for _, one := range sessions {
		all = append(all, one.ID)
	}
	return all
}

func TestSessionGoesOnByItsRefreshTokens(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		begin(t, s, "a", now)
		for i, test := range []struct {
			refresh, client string
			after           time.Duration
			want            error
		}{
			{"a-refresh", "other", 0, store.ErrNotFound},
			{"nosuch", "c", 0, store.ErrNotFound},
			{"a-refresh", "c", hour, nil},
			{"a-refresh", "c", hour + 30*time.Second, nil}, // the answer was lost
			{"a-refresh", "c", hour + 2*time.Minute, store.ErrNotFound},
			{"next2-refresh", "c", 40 * 24 * hour, store.ErrNotFound},
			{"next2-refresh", "c", 2 * hour, nil},
			{"a-refresh", "c", 2 * hour, store.ErrReused},
			{"next6-refresh", "c", 2 * hour, store.ErrNotFound}, // the session has ended
		} {
			in := renewal(test.refresh, "next"+strconv.Itoa(i), now.Add(test.after))
			in.Client = test.client
			u, err := s.RenewSession(ctx, in, now.Add(test.after))
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) || err == nil && (u.Name != "me" || u.SessionID != "a") {
				t.Errorf("%d: %+v, %v, want %v", i, u, err, test.want)
			}
		}
		if got := ids(t, s, now); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	})
}

func TestExpiredSessionsAreDroppedAndTheLeastUsedIsReplaced(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		begin(t, s, "old", now)
		later := now.Add(31 * 24 * hour)
		begin(t, s, "new", later)
		if diff := cmp.Diff([]string{"new"}, ids(t, s, now)); diff != "" {
			t.Error(diff)
		}
		for i := range 200 {
			begin(t, s, strconv.Itoa(i), later.Add(time.Duration(i)*time.Second))
		}
		if got := ids(t, s, later); len(got) != 200 || got[199] != "0" {
			t.Errorf("%d sessions", len(got))
		}
	})
}

// A thief who signs in with the old password while it is changed gets nothing.
func TestSignInWithAPasswordThatWasChangedMeanwhileFails(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		begin(t, s, "mine", now)
		begin(t, s, "other", now)
		set := func(in store.NewPassword) error {
			in.UserID = "0xme"
			_, err := s.SetPassword(ctx, in, now)
			return err
		}
		must(t, set(store.NewPassword{Hashed: "first", Session: "mine"}))
		if diff := cmp.Diff([]string{"mine"}, ids(t, s, now)); diff != "" {
			t.Error(diff)
		}
		in := store.SignIn{Session: store.Session{ID: "thief", UserID: "0xme"}, Grant: grant("thief", now), Checked: "first", Marks: []string{"m"}}
		must(t, set(store.NewPassword{Hashed: "second", Checked: "first"}))
		if _, err := s.BeginSession(ctx, in, now); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("signed in: %v", err)
		}
		if err := set(store.NewPassword{Hashed: "third", Checked: "first"}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("changed: %v", err)
		}
		in.Checked = "second"
		_, err := s.BeginSession(ctx, in, now)
		must(t, err)
		known, err := s.KnownClient(ctx, "0xme", []string{"m", "n"}, now)
		if diff := cmp.Diff(map[string]bool{"m": true}, known); diff != "" || err != nil {
			t.Error(diff, err)
		}
		must(t, set(store.NewPassword{Hashed: "fourth"}))
		if known, err := s.KnownClient(ctx, "0xme", []string{"m"}, now); len(known) != 0 || err != nil {
			t.Errorf("known after the change: %v, %v", known, err)
		}
	})
}

func TestClockThatWasSetBackMakesNoTokenLiveLonger(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		lives := store.TokenLives{Access: hour, Refresh: 30 * 24 * hour, Worker: 35 * 24 * hour, Reset: hour, Confirmation: hour}
		begin(t, s, "expired", now)
		ahead := now.Add(365 * 24 * hour)
		begin(t, s, "future", ahead)
		token := store.WorkerToken{Token: "t", UserID: "0xme", WorkerID: "w", Seconds: 3600, Expires: store.Time{Time: ahead}, Latest: store.Time{Time: ahead}}
		must(t, s.AddWorkerToken(ctx, token, ahead, 9))
		must(t, s.AddReset(ctx, "0xme", "code", ahead))
		must(t, s.AddConfirmation(ctx, store.Confirmation{Code: "code", UserID: "0xme", Expires: store.Time{Time: ahead}}, now))
		if diff := cmp.Diff([]string{"future"}, ids(t, s, now)); diff != "" { // what had expired does not come back
			t.Error(diff)
		}
		must(t, s.TidyTokens(ctx, now, lives))
		valid := func(token string, after time.Duration) bool {
			_, err := s.UserOfToken(ctx, token, now.Add(after))
			return err == nil
		}
		for _, token := range []string{"future-access", "t"} {
			if !valid(token, hour-1) || valid(token, hour) {
				t.Errorf("%s: valid within the hour %t, and after it %t", token, valid(token, hour-1), valid(token, hour))
			}
		}
		if _, err := s.UserOfReset(ctx, "code", now.Add(hour)); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the code is valid: %v", err)
		}
		if _, err := s.Confirmation(ctx, "code", now.Add(hour)); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the confirmation is valid: %v", err)
		}
		if _, err := s.RenewSession(ctx, renewal("future-refresh", "next", now), now.Add(hour)); err != nil {
			t.Errorf("the session does not go on: %v", err)
		}
		must(t, s.TidyTokens(ctx, now.Add(60*24*hour), lives))
		if got := dump(t, at); len(got["sessions"])+len(got["grants"])+len(got["worker_tokens"])+len(got["password_resets"])+len(got["confirmations"]) > 0 {
			t.Errorf("left: %v", got)
		}
	})
}

func TestHoldersOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		begin(t, s, "s", now)
		must(t, s.AddWorkerToken(ctx, store.WorkerToken{Token: "t", UserID: "0xme", WorkerID: "w", Expires: store.Time{Time: now}}, now, 9))
		there := []store.Holder{{UserID: "0xme", SessionID: "s"}, {UserID: "0xme", WorkerID: "w"}, {UserID: "0xme"}}
		gone := []store.Holder{{UserID: "0xme", SessionID: "x"}, {UserID: "0xme", WorkerID: "x"}, {UserID: "0xyou"}, {UserID: "0xyou", SessionID: "s"}}
		ended, err := s.Ended(ctx, append(gone, there...))
		must(t, err)
		want := map[store.Holder]bool{}
		for _, h := range gone {
			want[h] = true
		}
		if diff := cmp.Diff(want, ended); diff != "" {
			t.Error(diff)
		}
		if ended, err := s.Ended(ctx, nil); err != nil || len(ended) != 0 {
			t.Errorf("of none: %v, %v", ended, err)
		}
	})
}

// Rows of used refresh tokens stay for a month, so that a second use is noticed.
func TestExpiredTokensOfAUsedRowDoNotComeBackWithTheClock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		lives := store.TokenLives{Access: hour, Refresh: 30 * 24 * hour, Worker: 35 * 24 * hour, Reset: hour}
		begin(t, s, "a", now)
		used := now.Add(30 * time.Minute)
		_, err := s.RenewSession(ctx, renewal("a-refresh", "b", used), used)
		must(t, err)
		back := now.Add(time.Minute)
		refused := func(when string) {
			t.Helper()
			if _, err := s.RenewSession(ctx, renewal("a-refresh", when, back), back); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s the used refresh token is valid again: %v", when, err)
			}
		}
		refused("at once")
		must(t, s.TidyTokens(ctx, used.Add(hour), lives))
		if _, err := s.UserOfToken(ctx, "a-access", back); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the expired access token is valid again: %v", err)
		}
		refused("after it has expired,")
		must(t, s.TidyTokens(ctx, back, lives))
		refused("after the clock has been noticed,")
		later := back.Add(hour)
		if _, err := s.RenewSession(ctx, renewal("a-refresh", "thief", later), later); !errors.Is(err, store.ErrReused) {
			t.Errorf("its use is not noticed an hour later: %v", err)
		}
	})
}
