package pins_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/staging/images"
)

func TestCacheIsTrimmedOnceTheBridgeIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		unbounded, err := cache.Open(dir, cache.Options{Settle: -1})
		if err != nil {
			t.Fatal(err)
		}
		names := filepath.Join(t.TempDir(), "names")
		if err := os.Mkdir(names, 0o700); err != nil {
			t.Fatal(err)
		}
		for digest, holder := range map[string]cache.Holder{"pinned": pins.PersonHolder("ann"), "unused": ""} {
			sif := cache.Want{Key: cache.Key{Kind: "sif", ID: digest + " amd64 zstd-1"}, Holder: holder, Owner: "ann"}
			_, err := unbounded.Get(t.Context(), sif, func(_ context.Context, tmp string) error { return os.WriteFile(tmp, []byte(digest), 0o600) })
			name := fmt.Appendf(nil, `{"digest": %q, "architecture": "amd64", "names": ["lab/image"]}`, digest)
			if err := errors.Join(err, os.WriteFile(filepath.Join(names, digest), name, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		c, err := cache.Open(dir, cache.Options{Settle: -1, Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := func(when string, digests ...string) {
			t.Helper()
			entries, err := c.Entries(t.Context())
			files, filesErr := os.ReadDir(names)
			if err := errors.Join(err, filesErr); err != nil {
				t.Fatal(err)
			}
			var cached, named []string
			for _, e := range entries {
				key, _ := images.ParseKey(e.Key)
				cached = append(cached, key.Digest)
			}
			for _, f := range files {
				named = append(named, f.Name())
			}
			slices.Sort(cached)
			if d := cmp.Diff(digests, cached) + cmp.Diff(digests, named); d != "" {
				t.Errorf("%s (-want +got): %s", when, d)
			}
		}
		var ready atomic.Bool
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		im := &images.Images{Cache: c, Kept: images.Records(t.TempDir()), References: images.References{Dir: names}}
		go pins.KeepTrimmed(ctx, ready.Load, c, im, slog.New(slog.DiscardHandler))
		time.Sleep(5*time.Minute + time.Second)
		synctest.Wait()
		want("before the bridge is ready", "pinned", "unused")
		ready.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		want("a minute after", "pinned")
	})
}
