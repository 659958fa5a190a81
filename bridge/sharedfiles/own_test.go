package sharedfiles

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

// ownSite is a configuration with everything that a bridge has.
func ownSite(t *testing.T) config.Config {
	t.Helper()
	testenv.UsesMachine()
	top := t.TempDir()
	c := config.Config{Shared: filepath.Join(top, "shared"), Ledger: filepath.Join(top, "state", "ledger.db"), Path: filepath.Join(top, "config", "bridge.toml")}
	for _, dir := range append(spool.Layout(c.Shared).Directories(), filepath.Dir(c.Ledger), filepath.Dir(c.Path), filepath.Join(top, "cache")) {
		testenv.Must(t, os.MkdirAll(dir, 0o700))
	}
	for _, file := range []string{c.Ledger, c.Path} {
		testenv.Must(t, os.WriteFile(file, nil, 0o600))
	}
	return c
}

func TestEachPathOfABridgesOwnIsJudged(t *testing.T) {
	t.Parallel()
	if open := CheckOwn(ownSite(t)); len(open) > 0 {
		t.Fatal(open)
	}
	for open, key := range map[string]string{
		"shared": "shared", "shared/bin": "shared", "shared/spool": "shared", "shared/runs": "shared", "shared/kept": "shared", "shared/spool/bell": "shared",
		"shared/cache": "cache.dir", "state": "ledger", "state/ledger.db": "ledger", "config": "configuration", "config/bridge.toml": "configuration",
	} {
		t.Run(open, func(t *testing.T) {
			t.Parallel()
			c := ownSite(t)
			path := filepath.Join(filepath.Dir(c.Shared), open)
			testenv.Must(t, os.Chmod(path, 0o777))
			found := CheckOwn(c)
			if len(found) != 1 || found[0].Key != key || !strings.HasPrefix(found[0].Error(), key+": everybody can write to "+path+" (mode 0777)") || !strings.HasSuffix(found[0].Error(), "and so run programs as this account: "+found[0].Cure()) {
				t.Errorf("%v", found)
			}
		})
	}
}

// The members of the group that shares a cache may run code in each other's name, and nobody else may.
func TestCacheOfAGroupMayBeOpenToItsGroupAlone(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	const lab = 5012
	for mode, want := range map[os.FileMode]string{0o770 | os.ModeSetgid: "", 0o777: "everybody can write to "} {
		c := ownSite(t)
		c.Cache.Dir, c.Cache.Group = filepath.Join(filepath.Dir(c.Shared), "cache"), true
		testenv.Must(t, errors.Join(os.Chown(c.Cache.Dir, -1, lab), os.Chmod(c.Cache.Dir, mode)))
		found := CheckOwn(c)
		if (want == "") != (len(found) == 0) || len(found) > 0 && !strings.HasPrefix(found[0].Error(), "cache.dir: "+want+c.Cache.Dir) {
			t.Errorf("mode %s: %v", mode, found)
		}
		c.Cache.Group = false
		if found = CheckOwn(c); len(found) != 1 {
			t.Errorf("mode %s, without cache.group: %v", mode, found)
		}
	}
}

func TestTrustedGroupMayWriteAndIsNamedOtherwise(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	const lab = 5012
	c := ownSite(t)
	testenv.Must(t, errors.Join(os.Chown(c.Shared, -1, lab), os.Chmod(c.Shared, 0o770)))
	if found := CheckOwn(c); len(found) != 1 || !strings.HasSuffix(found[0].Error(), `: chmod g-w `+c.Shared+`; or write trust = ["@5012"] if they may act as you`) {
		t.Errorf("%v", found)
	}
	c.Trust = []string{"@5012"}
	if found := CheckOwn(c); len(found) > 0 {
		t.Errorf("%v", found)
	}
	c.Trust = []string{"@5012", "nosuch"}
	if found := CheckOwn(c); !slices.ContainsFunc(found, func(o *OpenError) bool {
		return o.Error() == `trust: there is no user "nosuch" on this host: give the number, such as "5012"`
	}) {
		t.Errorf("%v", found)
	}
}
