package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// used returns a user's disk use.
func used(ctx context.Context, s *store.Store, id string) (codalab.Space, error) {
	u, err := s.User(ctx, id)
	return codalab.Space{Bytes: u.DiskUsed, Entries: u.EntriesUsed}, err
}

// However bundles are made, filled, given away and deleted at once, each user's disk use is the sum of the bundles'
// charges, and never negative meanwhile.
func TestDiskUseIsTheSumOfTheCharges(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		owners := []string{"0xme", "0xyou"}
		must(t, s.AddUser(t.Context(), store.User{ID: owners[1], Name: "you"}))
		failed := errors.New("the change is refused")
		g, ctx := errgroup.WithContext(t.Context())
		for seed := range uint64(4) {
			g.Go(func() error {
				r := rand.New(rand.NewPCG(seed, 1))
				var mine []string
				for range 40 {
					if len(mine) < 2 {
						b := bundle("b")
						b.OwnerID = owners[r.IntN(2)]
						mine = append(mine, b.UUID)
						if err := s.CreateBundle(ctx, b, ""); err != nil {
							return err
						}
					}
					var err error
					switch uuid := mine[r.IntN(len(mine))]; r.IntN(6) {
					case 0:
						err = s.DeleteBundles(ctx, mine[:1], store.Time{}, func(store.Bundle) error { return nil })
						mine = mine[1:]
					case 1:
						_, err = s.Change(ctx, uuid, func(b *store.Bundle) error {
							b.DataSize = 1 << 40
							return failed
						})
						if errors.Is(err, failed) {
							err = nil
						}
					case 2:
						_, err = s.Change(ctx, uuid, func(b *store.Bundle) error { b.OwnerID = owners[r.IntN(2)]; return nil })
					default:
						_, err = s.Change(ctx, uuid, func(b *store.Bundle) error {
							b.DataSize, b.Entries = r.Int64N(1<<30), r.Int64N(1000)
							return nil
						})
					}
					if err != nil {
						return err
					}
					for _, id := range owners {
						if n, err := used(ctx, s, id); err != nil || n.Bytes < 0 || n.Entries < 0 {
							return fmt.Errorf("%s uses %+v, %w", id, n, err)
						}
					}
				}
				return nil
			})
		}
		must(t, g.Wait())
		if lines, _ := check(t, s, false); strings.Contains(strings.Join(lines, " "), store.FindingDiskUsed) {
			t.Errorf("%q", lines)
		}
	})
}

// An older version has stored contents without counting their entries. The server counts them at its start; those
// that cannot be read do not keep it from the others.
func TestEntriesOfAnOlderVersionAreCounted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		whole, lost := stored(t, s, "whole"), stored(t, s, "lost")
		must(t, s.RemoveContents(lost.Contents))
		raw := openRaw(t, at)
		for _, old := range []string{`UPDATE bundles SET entries = 0`, `UPDATE users SET disk_used = 9, entries_used = 2`} {
			_, err := raw.ExecContext(ctx, old)
			must(t, err)
		}
		want := "size " + whole.UUID + ": its 1 entries are not counted yet; a running server counts them, and so does --repair"
		if lines, _ := check(t, s, false); !strings.Contains(strings.Join(lines, "\n"), want) {
			t.Errorf("%q", lines)
		}
		if n, err := s.CountEntries(ctx); n != 1 || err == nil || !strings.Contains(err.Error(), lost.UUID) {
			t.Errorf("%d counted, %v", n, err)
		}
		if n, err := used(ctx, s, "me"); err != nil || n != (codalab.Space{Bytes: 9 + codalab.BlockSize, Entries: 2 + 1}) {
			t.Errorf("%+v, %v", n, err)
		}
		must(t, s.DeleteBundles(ctx, []string{lost.UUID}, store.Time{}, func(store.Bundle) error { return nil }))
		if n, err := s.CountEntries(ctx); n != 0 || err != nil {
			t.Errorf("%d counted, %v", n, err)
		}
	})
}

func TestRunningUseIsThatOfRunsOnWorkers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		must(t, s.AddUser(ctx, store.User{ID: store.RootID, Name: "root"}))
		for i, one := range []struct {
			state  codalab.State
			worker string
		}{
			{codalab.StateRunning, store.RootID},
			{codalab.StatePreparing, "0xme"}, // the time on the owner's own worker does not count
			{codalab.StateReady, store.RootID},
			{codalab.StateStaged, ""},
		} {
			b := bundle("run")
			b.Type, b.State = codalab.TypeRun, one.state
			must(t, s.CreateBundle(ctx, b, ""))
			_, err := s.Change(ctx, b.UUID, func(b *store.Bundle) error {
				b.DataSize, b.Worker.User, b.Metadata["time"] = 100<<i, one.worker, 5.0+float64(i)
				return nil
			})
			must(t, err)
		}
		use, err := s.RunningUse(ctx, []string{"0xme", store.RootID})
		if want := (store.RunningUse{OwnerID: "0xme", Disk: 300, Time: 5}); err != nil || len(use) != 1 || use["0xme"] != want {
			t.Errorf("%+v, %v", use, err)
		}
	})
}

// The disk of the contents is not there when the server starts: one line says so for all bundles.
func TestContentsThatAreMissingInMassesAreOneShortError(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, place{dir: t.TempDir()}), t.Context()
	for range 500 {
		b := bundle("lost")
		must(t, s.CreateBundle(ctx, b, ""))
		_, err := s.Change(ctx, b.UUID, func(b *store.Bundle) error { b.Contents = b.UUID + "-00000000"; return nil })
		must(t, err)
	}
	n, err := s.CountEntries(ctx)
	if n != 0 || err == nil || !strings.Contains(err.Error(), "and 499 others") || len(err.Error()) > 300 {
		t.Errorf("%d counted, %v", n, err)
	}
}
