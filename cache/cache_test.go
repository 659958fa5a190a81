package cache_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cache/cachetest"
)

func TestMain(m *testing.M) {
	cachetest.Main()
	if dir := os.Getenv(verifyJob); dir != "" {
		os.Exit(verifyAsMember(dir))
	}
	os.Exit(m.Run())
}

func TestPlainDiskKeepsThePromises(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cachetest.Run(t, cachetest.Site{
		Hosts:   []string{dir, dir},
		Options: cache.Options{Settle: -1, Term: time.Second},
	})
}

// TestSettlingKeepsThePromises: the contract also holds where retired content stays for a while, as
// on a disk that other hosts may see late.
func TestSettlingKeepsThePromises(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: it takes many seconds")
	}
	dir := t.TempDir()
	cachetest.Contract(t, cachetest.Site{
		Hosts:   []string{dir, dir},
		Options: cache.Options{Settle: 300 * time.Millisecond, Term: time.Second},
	})
}

func TestFillEndsWhenTheLastCallerHasLeftAndIsBegunAnewByTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, t.TempDir(), cache.Options{})
		finish := make(chan struct{})
		var running, most atomic.Int32
		slow := func(ctx context.Context, _ string) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-ctx.Done()
			<-finish // a fill need not obey immediately
			return ctx.Err()
		}
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := c.Get(ctx, want, slow)
			gone <- err
		}()
		synctest.Wait()
		leave()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		next := make(chan error, 1)
		go func() {
			_, err := c.Get(t.Context(), want, func(_ context.Context, tmp string) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				return os.WriteFile(tmp, nil, 0o600)
			})
			next <- err
		}()
		synctest.Wait()
		close(finish)
		if err := <-next; err != nil {
			t.Error(err)
		}
		if most.Load() != 1 {
			t.Errorf("%d fills of one key at once", most.Load())
		}
	})
}

var want = cache.Want{Key: cache.Key{Kind: "sif", ID: "sha256:0a amd64 squashfs"}}

func open(tb testing.TB, dir string, o cache.Options) *cache.Cache {
	tb.Helper()
	c, err := cache.Open(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func text(s string) cache.Fill {
	return func(_ context.Context, tmp string) error { return os.WriteFile(tmp, []byte(s), 0o600) }
}

func BenchmarkHit(b *testing.B) {
	c := open(b, b.TempDir(), cache.Options{})
	w := want
	w.Holder = "row-1"
	for b.Loop() {
		_, err := c.Get(b.Context(), w, text(""))
		if err != nil {
			b.Fatal(err)
		}
	}
}
