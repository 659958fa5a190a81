package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestProgramsThatOpenANewPlaceAtOnceAgree(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				s, err := store.OpenDatabase(context.Background(), at.dir, at.url)
				if err == nil {
					err = s.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// A copy of a data directory has the id of the same database.
func TestOnlyOneCopyOfADirectoryIsServed(t *testing.T) {
	t.Parallel()
	at := place{filepath.Join(t.TempDir(), "data"), testenv.Postgres(t)}
	s, dir := open(t, at), filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(dir, os.DirFS(at.dir)))
	twin, err := store.OpenDatabase(t.Context(), dir, at.url)
	must(t, err)
	t.Cleanup(func() { must(t, twin.Close()) })
	unlock, err := s.Lock(t.Context())
	must(t, err)
	if _, err := twin.Lock(t.Context()); !errors.Is(err, store.ErrLocked) {
		t.Errorf("error %v", err)
	}
	must(t, unlock())
	unlock, err = twin.Lock(t.Context())
	must(t, errors.Join(err, unlock()))
	if _, err := store.OpenDatabase(t.Context(), filepath.Join(t.TempDir(), "other"), at.url); !errors.Is(err, store.ErrWrongDatabase) {
		t.Errorf("another directory: %v", err)
	}
}
