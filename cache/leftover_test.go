package cache_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

// Nothing tells which content a record named that cannot be read any more.
func TestPinnedContentStaysWhenItsRecordCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := cache.Open(dir, cache.Options{Settle: -1, Grace: 1})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(_ context.Context, tmp string) error { return os.WriteFile(tmp, []byte("content"), 0o600) }
	w := cache.Want{Key: cache.Key{Kind: "bundle", ID: "a"}, Holder: "row-1"}
	first, err := c.Get(t.Context(), w, fill)
	if err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob(filepath.Join(dir, "bundle/*/*.json"))
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	if err := os.WriteFile(records[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Holder = ""
	second, err := c.Get(t.Context(), w, fill)
	if err != nil || second == first {
		t.Fatalf("got %s, %v; want another content than %s", second, err, first)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Dir(first), long, long); err != nil {
		t.Fatal(err)
	}
	sweeper, err := cache.Open(dir, cache.Options{Settle: -1, Grace: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sweeper.Trim(t.Context(), cache.TrimOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first); err != nil {
		t.Errorf("the pinned content is gone: %v", err)
	}
}

// A bridge that is told to end leaves its downloads to the next one, as one that
// is killed does.
func TestFillWhoseCallersHaveLeftIsGoneOnWith(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := cache.Open(dir, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := cache.Want{Key: cache.Key{Kind: "bundle", ID: "a"}, Resume: true}
	ctx, leave := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	_, err = c.Get(ctx, w, func(ctx context.Context, tmp string) error {
		defer close(stopped)
		err := os.WriteFile(tmp, []byte("half"), 0o600)
		leave()
		<-ctx.Done()
		return errors.Join(err, ctx.Err())
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-stopped
	path, err := c.Get(t.Context(), w, func(_ context.Context, tmp string) error {
		half, err := os.ReadFile(tmp)
		if err != nil {
			return err
		}
		return os.WriteFile(tmp, append(half, " and half"...), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "half and half" {
		t.Errorf("content %q, %v", got, err)
	}
}

func TestContentWhoseSizeWasLostCountsAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := cache.Open(dir, cache.Options{Settle: -1})
	if err != nil {
		t.Fatal(err)
	}
	w := cache.Want{Key: cache.Key{Kind: "bundle", ID: "a"}, Owner: "ann"}
	if _, err := c.Get(t.Context(), w, func(_ context.Context, tmp string) error { return os.WriteFile(tmp, make([]byte, 5000), 0o600) }); err != nil {
		t.Fatal(err)
	}
	sizes, err := filepath.Glob(filepath.Join(dir, "sizes/*"))
	if err != nil || len(sizes) != 1 {
		t.Fatal(sizes, err)
	}
	if err := os.Remove(sizes[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trim(t.Context(), cache.TrimOptions{}); err != nil {
		t.Fatal(err)
	}
	if u, err := c.Usage(); err != nil || u.Owners["ann"] < 5000 || u.Entries != 1 {
		t.Errorf("it counts %+v, %v", u, err)
	}
}
