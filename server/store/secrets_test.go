package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestSecretsAreOfTheirUserAndGoWithTheUser(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		must(t, s.AddUser(ctx, store.User{ID: "0xyou", Name: "you", Joined: store.Time{Time: now}}))
		set := func(user, name, sealed string) error {
			return s.SetSecret(ctx, store.Secret{UserID: user, Name: name, Sealed: sealed, KeyID: "k1", Set: store.Time{Time: now}}, 3)
		}
		must(t, errors.Join(set("0xme", "A", "a"), set("0xme", "B", "b"), set("0xyou", "A", "x"), set("0xme", "B", "b2"), set("0xme", "C", "c")))
		if err := set("0xme", "D", "d"); !errors.Is(err, store.ErrTooMany) {
			t.Errorf("one too many: %v", err)
		}
		later := now.Add(time.Hour)
		must(t, s.SecretsUsed(ctx, "0xme", []string{"A"}, later))
		want := []store.Secret{
			{UserID: "0xme", Name: "A", Sealed: "a", KeyID: "k1", Set: store.Time{Time: now}, Used: store.Time{Time: later}},
			{UserID: "0xme", Name: "B", Sealed: "b2", KeyID: "k1", Set: store.Time{Time: now}},
			{UserID: "0xme", Name: "C", Sealed: "c", KeyID: "k1", Set: store.Time{Time: now}},
		}
		got, err := s.Secrets(ctx, "0xme")
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if err := s.DeleteSecrets(ctx, "0xme", []string{"A", "nosuch"}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("removed one that is not there: %v", err)
		}
		must(t, s.DeleteSecrets(ctx, "0xme", []string{"B", "C"}))
		if got, err := s.Secrets(ctx, "0xme"); err != nil || len(got) != 1 || got[0].Name != "A" {
			t.Errorf("left: %v, %v", got, err)
		}
		if _, err := s.DeleteUser(ctx, "0xyou"); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Secrets(ctx, "0xyou"); err != nil || len(got) != 0 {
			t.Errorf("of a deleted user: %v, %v", got, err)
		}
	})
}

func TestSecretsAreSealedAgainAllOrNone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		for _, name := range []string{"A", "B"} {
			must(t, s.SetSecret(ctx, store.Secret{UserID: "0xme", Name: name, Sealed: "old", KeyID: "k1", Set: store.Time{Time: now}}, 9))
		}
		failed, seen := errors.New("no"), 0
		_, err := s.SealSecrets(ctx, func(one store.Secret) (store.Secret, error) {
			if seen++; seen > 1 {
				return one, failed
			}
			one.Sealed, one.KeyID = "new", "k2"
			return one, nil
		})
		if n, countErr := s.OtherSecrets(ctx, "k1"); !errors.Is(err, failed) || n != 0 || countErr != nil {
			t.Errorf("half sealed: %v, %d, %v", err, n, countErr)
		}
		n, err := s.SealSecrets(ctx, func(one store.Secret) (store.Secret, error) {
			one.Sealed, one.KeyID = "new", "k2"
			return one, nil
		})
		others, countErr := s.OtherSecrets(ctx, "k2")
		if n != 2 || err != nil || others != 0 || countErr != nil {
			t.Errorf("%d, %v; %d, %v", n, err, others, countErr)
		}
	})
}
