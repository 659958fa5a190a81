package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/sbatch"
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

// The keys override Slurm's own settings. Before these are known, values are used with which no job
// counts as absent too early.
func TestSettingsOfSlurmAreFollowedUnlessTheConfigurationOverridesThem(t *testing.T) {
	t.Parallel()
	type site struct {
		Accounting bool
		RecordAge  time.Duration
	}
	known := sbatch.Settings{Accounting: false, MinJobAge: 10 * time.Second}
	for _, c := range []struct {
		keys          string
		before, after site
	}{
		{"", site{true, time.Hour}, site{false, 10 * time.Second}},
		{"accounting = true", site{true, time.Hour}, site{true, 10 * time.Second}},
		{"accounting = false", site{false, 0}, site{false, 10 * time.Second}},
		{`min_job_age = "5s"`, site{true, 5 * time.Second}, site{false, 5 * time.Second}},
		{"accounting = false\nmin_job_age = \"5s\"", site{false, 5 * time.Second}, site{false, 5 * time.Second}},
	} {
		file := "server = \"http://127.0.0.1:2900\"\nuser = \"ann\"\npassword_file = \"/p\"\nshared = \"/shared\"\n[slurm]\n" + c.keys + "\n[queue.cpu]\n"
		conf, err := config.Parse(strings.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		p := policy(conf, "b1b2b3", "/shared", sharedfiles.Programs{}, &sbatch.Client{})
		if got := (site{p.Accounting, p.RecordAge}); got != c.before {
			t.Errorf("%q, before Slurm answers: %+v, want %+v", c.keys, got, c.before)
		}
		adapt(conf.Slurm, &p, known)
		if got := (site{p.Accounting, p.RecordAge}); got != c.after {
			t.Errorf("%q: %+v, want %+v", c.keys, got, c.after)
		}
	}
	p := policy(config.Config{CancelStrays: new(bool)}, "b1b2b3", "/shared", sharedfiles.Programs{}, &sbatch.Client{})
	if adapt(config.Slurm{}, &p, sbatch.Settings{Accounting: true}); p.RecordAge != longestRecordAge {
		t.Errorf("a site that purges no job: %s", p.RecordAge)
	}
}
