package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestProgramTokens(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		at1 := func(d time.Duration) store.Time { return store.Time{Time: now.Add(d)} }
		ended := store.ProgramToken{ID: "ended", Token: "0", UserID: "0xme", Workers: "a", Created: at1(-2 * time.Hour), Expires: at1(-time.Hour)}
		first := store.ProgramToken{ID: "first", Token: "1", UserID: "0xme", Workers: "a b-*", Manages: true, Created: at1(0), Expires: at1(time.Hour)}
		second := store.ProgramToken{ID: "second", Token: "2", UserID: "0xme", Workers: "c", Created: at1(time.Second)}
		for _, one := range []store.ProgramToken{ended, first, second} {
			must(t, s.AddProgramToken(ctx, one, 2)) // the ended one does not count
		}
		if err := s.AddProgramToken(ctx, store.ProgramToken{ID: "third", Token: "3", UserID: "0xme", Workers: "d", Created: at1(0)}, 2); !errors.Is(err, store.ErrTooMany) {
			t.Errorf("a third token: %v", err)
		}
		for _, user := range []string{"", "0xme"} {
			all, err := s.ProgramTokens(ctx, user)
			if diff := cmp.Diff([]store.ProgramToken{ended, first, second}, all); err != nil || diff != "" {
				t.Errorf("of user %q: %v %s", user, err, diff)
			}
		}

		u, err := s.UserOfProgramToken(ctx, "1", now)
		if err != nil || u.Name != "me" || u.Program.ID != "first" || !u.Program.Manages || !u.Bounded() || !u.MayBe("a") || !u.MayBe("b-cpu") || u.MayBe("c") {
			t.Errorf("%+v, %v", u, err)
		}
		if _, err := s.UserOfProgramToken(ctx, "2", now.Add(1000*24*time.Hour)); err != nil {
			t.Errorf("a token without an end: %v", err)
		}
		for token, when := range map[string]time.Time{"0": now, "1": now.Add(time.Hour), "third": now, "first": now, "": now} {
			if _, err := s.UserOfProgramToken(ctx, token, when); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("token %q: %v", token, err)
			}
		}

		for _, step := range []struct{ at, want time.Duration }{{0, 0}, {store.ProgramUseStep - 1, 0}, {store.ProgramUseStep, store.ProgramUseStep}, {time.Minute, store.ProgramUseStep}} {
			must(t, s.NoteProgramTokenUsed(ctx, "first", now.Add(step.at)))
			if u, err := s.UserOfProgramToken(ctx, "1", now); err != nil || !u.Program.LastUsed.Equal(now.Add(step.want)) {
				t.Errorf("used at %s: %s, %v", step.at, u.Program.LastUsed, err)
			}
		}

		made := "first"
		must(t, s.AddWorkerToken(ctx, store.WorkerToken{Token: "w", UserID: "0xme", WorkerID: "a", Expires: at1(time.Hour), Latest: at1(time.Hour), Seconds: 9, MadeBy: &made}, now, 9))
		if _, err := s.RenewWorkerToken(ctx, "w", "renewed", now, 9); err != nil {
			t.Error(err)
		}
		_, err = s.SetPassword(ctx, store.NewPassword{UserID: "0xme", Hashed: "x"}, now)
		must(t, err)
		if _, err := s.UserOfToken(ctx, "renewed", now); err != nil {
			t.Errorf("a change of the password ends a worker token that a program token made: %v", err)
		}
		held := []store.Holder{{UserID: "0xme", ProgramID: "first"}, {UserID: "0xme", ProgramID: "gone"}}
		if over, err := s.Ended(ctx, held); err != nil || over[held[0]] || !over[held[1]] {
			t.Errorf("ended are %v, %v", over, err)
		}
		must(t, s.TidyTokens(ctx, now, store.TokenLives{}))
		if _, err := s.UserOfProgramToken(ctx, "0", now.Add(-90*time.Minute)); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("an ended token comes back with a clock that is set back: %v", err)
		}
		if err := s.DeleteProgramToken(ctx, "0xother", "first"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("another user ends it: %v", err)
		}
		must(t, s.DeleteProgramToken(ctx, "0xme", "first"))
		for _, token := range []string{"w", "renewed"} {
			if _, err := s.UserOfToken(ctx, token, now); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("worker token %s outlives the program token that made it: %v", token, err)
			}
		}
		must(t, s.DeleteProgramToken(ctx, "", "second"))
		if err := s.DeleteProgramToken(ctx, "", "second"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("again: %v", err)
		}
	})
}

func TestWorkerNamesAreIdsAndBeginningsOfIds(t *testing.T) {
	t.Parallel()
	names, err := store.ParseWorkerNames([]string{"lab-*", "host(7)"})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{
		"lab-cpu": true, "lab-": true, "host(7)": true, "lab": false, "xlab-cpu": false, "host(7)x": false, "host(7": false, "": false, "lab-* host(7)": true,
	} {
		if names.Has(id) != want {
			t.Errorf("%q is among %q: %t", id, names, !want)
		}
	}
	for _, bad := range [][]string{nil, {""}, {"*"}, {"a b"}, {"a,b"}, {"a*b"}, {"a**"}, {"a\n"}, {"ä-*"}, {"a", "*"}} {
		if names, err := store.ParseWorkerNames(bad); err == nil {
			t.Errorf("%q are %q", bad, names)
		}
	}
}
