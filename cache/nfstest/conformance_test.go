package nfstest

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cache/cachetest"
)

// old is how old may be what a host believes, in these tests.
const old = 300 * time.Millisecond

// hosts is a server with three clients, for the suite of the cache. What went
// wrong is told at the end.
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
		Fault{Kind: Quota, Rate: 0.002},
		Fault{Kind: StaleHandle, Rate: 0.3},
		Fault{Kind: Slow, Rate: 0.01, Delay: 20 * time.Millisecond},
	))
}
