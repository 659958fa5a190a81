package transfer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// One owner's endless transfer does not delay other owners' transfers.
func TestI11ContentsComeInInTurnByOwner(t *testing.T) {
	t.Parallel()
	content, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegistry(2) // one owner alone has only one
	get := func(ctx context.Context, owner string, do func() error) error {
		w := cache.Want{Key: cache.Key{Kind: "bundle", ID: owner}, Owner: owner}
		_, err := r.Get(ctx, content, w, "0x1", &Item{}, func(ctx context.Context, t *Transfer, tmp string) error {
			return t.InTurn(ctx, func() error { return errors.Join(do(), os.WriteFile(tmp, nil, 0o600)) })
		})
		return err
	}
	began, over, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() { ended <- get(t.Context(), "ann", func() error { close(began); <-over; return nil }) }()
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	if err := get(ctx, "ben", func() error { return nil }); err != nil {
		t.Error(err)
	}
	close(over)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
