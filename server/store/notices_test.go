package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestNoticeIsDueOnceWhenAllItsBundlesHaveEnded(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		most := store.NoticeBounds{Waiting: 3, InTime: 5, Since: now.Add(-24 * time.Hour)}
		a, b, c := bundle("a"), bundle("b"), bundle("c")
		_, err := s.CreateBundles(ctx, []store.Bundle{a, b, c}, store.Place{})
		must(t, err)
		end := func(uuid string, state codalab.State) {
			t.Helper()
			_, err := s.Change(ctx, uuid, func(b *store.Bundle) error { b.State = state; return nil })
			must(t, err)
		}
		add := func(id string, at time.Time, uuids ...string) (store.Notice, error) {
			return s.AddNotice(ctx, store.Notice{ID: id, UserID: "0xme", Made: store.Time{Time: at}}, uuids, most)
		}
		due := func(at time.Time) (ids []string) {
			found, err := s.DueNotices(ctx, at)
			must(t, err)
			for _, n := range found {
				ids = append(ids, n.ID)
			}
			return ids
		}
		if found, err := s.AnyNotice(ctx); found || err != nil {
			t.Error(found, err)
		}
		_, err = add("n1", now, a.UUID, b.UUID)
		must(t, err)
		if n, err := add("n2", now, b.UUID, a.UUID, b.UUID); err != nil || n.ID != "n1" || n.Bundles != 2 {
			t.Errorf("a second notice for the same bundles: %+v, %v", n, err)
		}
		if _, err := add("n3", now, a.UUID, codalab.NewUUID()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("for a bundle that is not there: %v", err)
		}
		_, err = add("n4", now.Add(time.Second), c.UUID)
		must(t, err)
		end(a.UUID, codalab.StateReady)
		if got := due(now); got != nil {
			t.Errorf("due are %q", got)
		}
		end(b.UUID, codalab.StateFailed)
		if got := due(now); !slices.Equal(got, []string{"n1"}) {
			t.Errorf("due are %q", got)
		}
		must(t, s.NoteNotice(ctx, store.Notice{ID: "n1", Tries: 1, NextTry: store.Time{Time: now.Add(time.Minute)}, Problem: "away"}))
		if got := due(now.Add(59 * time.Second)); got != nil {
			t.Errorf("before its next try, due are %q", got)
		}
		if got := due(now.Add(time.Minute)); !slices.Equal(got, []string{"n1"}) {
			t.Errorf("at its next try, due are %q", got)
		}
		must(t, s.NoteNotice(ctx, store.Notice{ID: "n1", Tries: 1, Done: store.Time{Time: now.Add(time.Minute)}}))
		if n, err := add("n5", now, a.UUID, b.UUID); err != nil || n.ID != "n1" || n.Done.IsZero() {
			t.Errorf("a notice for bundles that a mail was about: %+v, %v", n, err)
		}
		must(t, s.DeleteBundles(ctx, []string{c.UUID}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
		if got := due(now.Add(time.Hour)); !slices.Equal(got, []string{"n4"}) {
			t.Errorf("after a removal, due are %q", got)
		}
		must(t, s.ForgetNotices(ctx, now.Add(time.Hour)))
		if n, err := add("n6", now, a.UUID, b.UUID); err != nil || n.ID != "n6" {
			t.Errorf("after a month: %+v, %v", n, err)
		}
		if left, err := s.WaitingNotices(ctx, "0xme"); err != nil || len(left) != 2 || left[0].ID != "n6" || left[1].ID != "n4" {
			t.Errorf("waiting are %+v, %v", left, err)
		}
	})
}

func TestNoticesHaveBoundsAndGoWithTheirUser(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		must(t, s.AddUser(ctx, store.User{ID: "0xyou", Name: "you", Joined: store.Time{Time: now}}))
		add := func(id, user string, uuid string) error {
			_, err := s.AddNotice(ctx, store.Notice{ID: id, UserID: user, Made: store.Time{Time: now}}, []string{uuid},
				store.NoticeBounds{Waiting: 2, InTime: 3, Since: now.Add(-time.Hour)})
			return err
		}
		var uuids []string
		for _, name := range []string{"a", "b", "c", "d"} {
			b := bundle(name)
			_, err := s.CreateBundles(ctx, []store.Bundle{b}, store.Place{})
			must(t, err)
			uuids = append(uuids, b.UUID)
		}
		must(t, errors.Join(add("n0", "0xme", uuids[0]), add("n1", "0xme", uuids[1]), add("m0", "0xyou", uuids[0])))
		if err := add("n2", "0xme", uuids[2]); !errors.Is(err, store.ErrTooMany) {
			t.Errorf("a third that waits: %v", err)
		}
		if err := s.DeleteNotices(ctx, "0xme", []string{"n1", "m0"}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("removed another user's: %v", err)
		}
		must(t, s.NoteNotice(ctx, store.Notice{ID: "n0", Done: store.Time{Time: now}}))
		if err := s.DeleteNotices(ctx, "0xme", []string{"n0"}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("removed one that is done: %v", err)
		}
		must(t, add("n2", "0xme", uuids[2]))
		must(t, s.DeleteNotices(ctx, "0xme", []string{"n1"}))
		must(t, add("n1", "0xme", uuids[1]))
		must(t, s.NoteNotice(ctx, store.Notice{ID: "n1", Done: store.Time{Time: now}}))
		if err := add("n3", "0xme", uuids[3]); !errors.Is(err, store.ErrTooMany) {
			t.Errorf("a fourth within the time: %v", err)
		}
		if _, err := s.DeleteUser(ctx, "0xyou"); err != nil {
			t.Fatal(err)
		}
		if left, err := s.WaitingNotices(ctx, "0xyou"); err != nil || len(left) > 0 {
			t.Errorf("of a deleted user: %+v, %v", left, err)
		}
	})
}
