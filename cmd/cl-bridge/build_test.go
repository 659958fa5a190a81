package main

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func TestNoBundleMayUseTheBridgesOwnFilesInPlace(t *testing.T) {
	t.Parallel()
	c := config.Config{Shared: "/shared", PasswordFile: "/home/ann/password", Path: "/home/ann/bridge.toml", ServerStore: "/store", Ledger: "/home/ann/ledger.db"}
	c.Cache.Dir, c.Image.Logins, c.Image.DockerConfig = "/cache", "/home/ann/logins", "/home/ann/docker.json"
	hidden := hiddenPaths(c)
	for _, path := range []string{
		"/shared", "/home/ann/password", "/home/ann/bridge.toml", "/store", "/cache", "/proc", "/sys", "/dev", "/run",
		"/home/ann/ledger.db", "/home/ann/ledger.db-wal", "/home/ann/ledger.db-shm", "/home/ann/ledger.db.lock",
		"/home/ann/logins", "/home/ann/docker.json",
	} {
		if !slices.Contains(hidden, path) {
			t.Errorf("%s is not among %q", path, hidden)
		}
	}
}

// What a group shares has to be public on the server, and bridges of an earlier version
// do not see its pins.
func TestCacheOfAGroupHasItsOwnDirectoryAndSharesOnlyWhatIsPublic(t *testing.T) {
	t.Parallel()
	for _, group := range []bool{false, true} {
		c := config.Config{Shared: t.TempDir()}
		c.Cache.Group = group
		s := stager(program.Process{Getenv: noConfiguration}, c, nil, nil, "b1b2b3", time.Now, nil)
		if asks := s.Dependencies.Public != nil; asks != group {
			t.Errorf("group %v: asks the server what is public: %v", group, asks)
		}
		want := filepath.Join(c.Shared, "cache")
		if group {
			want = filepath.Join(want, "v2")
		}
		o := cacheOptions(c, nil)
		if cacheDir(c) != want || o.Group != group || o.Settle >= 0 { // 0s is not the cache's default
			t.Errorf("group %v: %s, %+v", group, cacheDir(c), o)
		}
	}
}
