package assembly

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging"
)

func TestNoBundleMayUseTheBridgesOwnFilesInPlace(t *testing.T) {
	t.Parallel()
	c := config.Config{Shared: "/shared", PasswordFile: "/home/ann/password", TokenFile: "/home/ann/token", Path: "/home/ann/bridge.toml", ServerStore: "/store", Ledger: "/home/ann/ledger.db"}
	c.Cache.Dir, c.Image.Logins, c.Image.DockerConfig = "/cache", "/home/ann/logins", "/home/ann/docker.json"
	hidden := hiddenPaths(c)
	for _, path := range []string{
		"/shared", "/home/ann/password", "/home/ann/token", "/home/ann/bridge.toml", "/store", "/cache", "/proc", "/sys", "/dev", "/run",
		"/home/ann/ledger.db", "/home/ann/ledger.db-wal", "/home/ann/ledger.db-shm", "/home/ann/ledger.db.lock",
		"/home/ann/logins", "/home/ann/docker.json",
	} {
		if !slices.Contains(hidden, path) {
			t.Errorf("%s is not among %q", path, hidden)
		}
	}
}

// A group may only share contents that are public on the server, and bridges of an earlier version
// ignore its pins.
func TestCacheOfAGroupHasItsOwnDirectoryAndSharesOnlyWhatIsPublic(t *testing.T) {
	t.Parallel()
	for _, group := range []bool{false, true} {
		c := config.Config{Shared: t.TempDir()}
		c.Cache.Group = group
		s := stagerOf(c)
		if asks := s.Dependencies.Public != nil; asks != group {
			t.Errorf("group %v: asks the server what is public: %v", group, asks)
		}
		want := filepath.Join(c.Shared, "cache")
		if group {
			want = filepath.Join(want, "v2")
		}
		o := CacheOptions(c, nil)
		if CacheDir(c) != want || o.Group != group || o.Settle >= 0 { // 0s is not the cache's default
			t.Errorf("group %v: %s, %+v", group, CacheDir(c), o)
		}
	}
}

// The keys override Slurm's own settings, but a min_job_age above the site's would make jobs count as
// absent that were purged. Before the settings are known, the bridge uses values with which no job
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
		{"accounting = false\nmin_job_age = \"1h\"", site{false, time.Hour}, site{false, 10 * time.Second}},
	} {
		file := "server = \"http://127.0.0.1:2900\"\nuser = \"ann\"\npassword_file = \"/p\"\nshared = \"/shared\"\n[slurm]\n" + c.keys + "\n[queue.cpu]\n"
		conf, err := config.Parse(strings.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		p := policy(conf, "b1b2b3", "/shared", sharedfiles.Programs{}, time.Minute)
		if got := (site{p.Accounting, p.RecordAge}); got != c.before {
			t.Errorf("%q, before Slurm answers: %+v, want %+v", c.keys, got, c.before)
		}
		adapt(conf.Slurm, &p, known)
		if got := (site{p.Accounting, p.RecordAge}); got != c.after {
			t.Errorf("%q: %+v, want %+v", c.keys, got, c.after)
		}
	}
	p := policy(config.Config{CancelStrays: new(bool)}, "b1b2b3", "/shared", sharedfiles.Programs{}, time.Minute)
	if adapt(config.Slurm{}, &p, sbatch.Settings{Accounting: true}); p.RecordAge != longestRecordAge {
		t.Errorf("a site that purges no job: %s", p.RecordAge)
	}
}

// A bridge knows that the holder of the shared directory has ended only if it has the lock of the
// holder's ledger.
func TestLeaseOfTheSameLockedLedgerIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	file := lease.Holder{Bridge: "9f02ab", Ledger: "/var/tmp/ledger.db", Host: "login1"}
	database := lease.Holder{Bridge: "9f02ab", Ledger: "postgres://h/bridge", Host: "login1"}
	with := func(h lease.Holder, change func(h *lease.Holder)) lease.Holder {
		change(&h)
		return h
	}
	for _, c := range []struct {
		before, me lease.Holder
		atOnce     bool
	}{
		{file, file, true},
		{database, with(database, func(h *lease.Holder) { h.Host = "login2" }), true},
		{file, with(file, func(h *lease.Holder) { h.Host = "login2" }), false},             // another disk
		{file, with(file, func(h *lease.Holder) { h.Bridge = "b1b2b3" }), false},           // a new file in the place of the old one
		{file, with(file, func(h *lease.Holder) { h.Ledger = "/var/tmp/copy.db" }), false}, // a copy
		{database, with(database, func(h *lease.Holder) { h.Bridge = "b1b2b3" }), false},   // another schema
	} {
		synctest.Test(t, func(t *testing.T) {
			layout := spool.Layout(t.TempDir())
			began := time.Now()
			for _, h := range []lease.Holder{c.before, c.me} {
				if _, err := takeShared(t.Context(), layout, h, slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); (took == 0) != c.atOnce {
				t.Errorf("%s after %s: it took %s", c.me, c.before, took)
			}
		})
	}
}

func TestTransfersAreBoundedAsConfiguredAlsoAfterAReload(t *testing.T) {
	t.Parallel()
	var c config.Config
	c.Shared, c.Staging.Downloads = t.TempDir(), 8
	content, err := cache.Open(t.TempDir(), cache.Options{Settle: -1})
	if err == nil {
		_, err = content.Get(t.Context(), cache.Want{Key: cache.Key{Kind: "bundle", ID: "x"}}, func(_ context.Context, tmp string) error { return os.WriteFile(tmp, []byte("content"), 0o600) })
	}
	if err != nil {
		t.Fatal(err)
	}
	made := parts{live: newLive(c), content: content}
	made.addStager(program.Process{Getenv: noConfiguration}, c, nil, "b1b2b3", time.Now, nil)
	collector := (Assembly{Config: c}).collector(made.live, time.Now)
	if n := collector.MaxBytes(); n != 0 {
		t.Errorf("results may have %d bytes before", n)
	}
	c.Staging = config.Staging{MaxResults: config.Size{Bytes: 1 << 30}, MaxDependency: config.Size{Bytes: 1 << 20}, MaxFiles: 7, Downloads: 3}
	c.Image.Conversions, c.Cache.Size = 2, config.Size{Bytes: 1}
	made.follow(c)
	if n := collector.MaxBytes(); n != 1<<30 {
		t.Errorf("results may have %d bytes", n)
	}
	if l := made.Stager.Dependencies.Limits(); l.Bytes != 1<<20 || l.Entries != 7 {
		t.Errorf("a dependency may have %+v", l)
	}
	if n := made.Stager.Dependencies.AtOnceNow(); n != 3 {
		t.Errorf("%d downloads at once", n)
	}
	if n := made.Images.AtOnceNow(); n != 2 {
		t.Errorf("%d conversions at once", n)
	}
	if done, err := made.content.Trim(t.Context(), cache.TrimOptions{DryRun: true}); err != nil || len(done.Retired) != 1 {
		t.Errorf("the cache has more than its size, and %+v is retired; %v", done.Retired, err)
	}
}

// Without it a run that depends on a UUID that somebody has used again would get the first owner's data.
func TestI9StagerAsksTheServerWhichBundleADependencyIsOn(t *testing.T) {
	t.Parallel()
	s := stagerOf(config.Config{Shared: t.TempDir()})
	if s.Dependencies.Identity == nil {
		t.Error("it asks nobody")
	}
}

// noConfiguration is an environment without variables.
func noConfiguration(string) string { return "" }

// stagerOf returns the stager of a configuration.
func stagerOf(c config.Config) *staging.Stager {
	made := parts{live: newLive(c)}
	made.addStager(program.Process{Getenv: noConfiguration}, c, nil, "b1b2b3", time.Now, nil)
	return made.Stager
}
