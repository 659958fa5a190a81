package nfstest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cache/cachetest"
)

// old limits the age of a host's cached attributes in these tests.
const old = 300 * time.Millisecond

// hosts returns a server with three clients for the suite of the cache. It logs the faults at the
// end.
func hosts(t *testing.T, o Options, faults ...Fault) cachetest.Site {
	t.Helper()
	o.AcregMax, o.AcdirMax = old, old
	disk := t.TempDir()
	site := cachetest.Site{
		Server: disk, Options: cache.Options{Settle: 2 * old, Term: time.Second}, Faulty: len(faults) > 0,
	}
	s := Serve(t, disk, o)
	for range 3 {
		dir := t.TempDir()
		s.Mount(dir)
		site.Hosts = append(site.Hosts, dir)
	}
	s.Inject(faults...)
	t.Cleanup(func() { t.Log(s.Counts()) })
	return site
}

func TestCacheKeepsItsPromisesOnNFS(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, hosts(t, Options{Seed: 1, Skew: 90 * time.Second}))
}

func TestCacheKeepsItsPromisesOnNFSThatFails(t *testing.T) {
	t.Parallel()
	cachetest.RunStorm(t, hosts(
		t, Options{Seed: 2, Skew: -90 * time.Second},
		Fault{Kind: LostReply, Rate: 0.01},
		Fault{Kind: IO, Rate: 0.002},
		Fault{Kind: NoSpace, Rate: 0.002},
		Fault{Kind: StaleHandle, Rate: 0.3},
		Fault{Kind: Slow, Rate: 0.01},
	))
}

// A file that is open on the trimmer's own host is renamed instead of removed, and its directory is
// not empty. (Not in parallel: a program that another test starts closes its copy of the reader's
// descriptor, and then the client waits for the end of a handle that seems closed.)
func TestOpenFileStandsInNobodysWay(t *testing.T) { //nolint:paralleltest // see above
	s := forgetful(t)
	c, err := cache.Open(s.a, cache.Options{Settle: -1, Size: 10_000})
	must(t, err)
	path, err := c.Get(t.Context(), cache.Want{Key: cache.Key{Kind: "bundle", ID: "read"}}, func(_ context.Context, tmp string) error {
		return errors.Join(os.Mkdir(tmp, 0o700), os.WriteFile(filepath.Join(tmp, "f"), make([]byte, 3000), 0o600))
	})
	must(t, err)
	reader, err := os.Open(filepath.Join(path, "f"))
	must(t, err)
	for range 2 {
		if _, err := c.Trim(t.Context(), cache.TrimOptions{All: true}); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"b", "c", "d", "e", "f"} {
		w := cache.Want{Key: cache.Key{Kind: "bundle", ID: id}, Size: 3000}
		if _, err := c.Get(t.Context(), w, func(_ context.Context, tmp string) error { return os.WriteFile(tmp, make([]byte, 3000), 0o600) }); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	must(t, reader.Close())
	if _, err := c.Trim(t.Context(), cache.TrimOptions{All: true}); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(s.disk, "bundle/*/.trash-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("when the reader has ended there are %v, %v", left, err)
	}
}
