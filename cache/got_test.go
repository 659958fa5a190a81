package cache_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache"
)

func TestGotTellsHitsFromMisses(t *testing.T) {
	t.Parallel()
	var seen []bool
	c, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{Got: func(_ cache.Key, hit bool) { seen = append(seen, hit) }})
	if err != nil {
		t.Fatal(err)
	}
	w := want
	for range 2 {
		w.Holder = "row-1"
		if _, err := c.Get(t.Context(), w, func(_ context.Context, tmp string) error { return os.WriteFile(tmp, nil, 0o600) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Get(t.Context(), cache.Want{Key: cache.Key{Kind: "sif", ID: "other"}}, func(context.Context, string) error { return os.ErrPermission }); err == nil {
		t.Error("a failed fill succeeds")
	}
	if !slices.Equal(seen, []bool{false, true}) {
		t.Errorf("hits %v", seen)
	}
}
