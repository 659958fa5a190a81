package search_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/keywords"
	"github.com/cl-slurm/cl-slurm/server/search"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A search keeps one of the few connections of the database busy for up to 20 seconds. Four of a stranger's kept all other
// requests waiting.
func TestSearchesOfOneUserLeaveOthersTheirTurns(t *testing.T) {
	t.Parallel()
	data, err := store.Open(t.Context(), t.TempDir())
	testenv.Must(t, err)
	defer data.Close()
	a := access.Access{Store: data, Now: time.Now, Searches: turns.New(2)}
	alice, bob, stranger := store.User{ID: "0xa", Name: "alice"}, store.User{ID: "0xb", Name: "bob"}, store.User{}
	searches := map[string]func(context.Context, store.User) error{
		"bundles": func(ctx context.Context, u store.User) error {
			_, _, err := search.Bundles(ctx, a, u, keywords.Query{Limit: 1})
			return err
		},
		"worksheets": func(ctx context.Context, u store.User) error { _, err := search.Worksheets(ctx, a, u, nil); return err },
		"names": func(ctx context.Context, u store.User) error {
			_, err := a.ResolveBundle(ctx, u, "", "a%")
			if no := context.Canceled; errors.Is(err, no) {
				return err
			}
			return nil // there is none
		},
	}
	for _, owner := range []store.User{alice, stranger} {
		leave, err := a.TakeSearch(t.Context(), owner)
		testenv.Must(t, err)
		ended, end := context.WithCancel(t.Context())
		end()
		for name, find := range searches {
			if err := find(ended, owner); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: a second search of %q does not wait: %v", name, owner.Name, err)
			}
			if err := find(t.Context(), bob); err != nil {
				t.Errorf("%s: bob's: %v", name, err)
			}
		}
		leave()
		leave() // as a handler may
		for name, find := range searches {
			if err := find(t.Context(), owner); err != nil {
				t.Errorf("%s: after the first search of %q: %v", name, owner.Name, err)
			}
		}
	}
}
