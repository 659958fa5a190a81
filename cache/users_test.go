package cache_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cache/cachetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// TestGroupKeepsThePromises: the members of a group fill, read and trim one
// cache, one of them on each host, and none may do more than the group.
func TestGroupKeepsThePromises(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two other users")
	}
	parent := testenv.SharedDir(t)
	const group = 4711 // whoever that is
	dir, logs := filepath.Join(parent, "caches"), filepath.Join(parent, "logs")
	if err := errors.Join(
		os.Mkdir(dir, 0o700), os.Chown(dir, 0, group), os.Chmod(dir, 0o770|os.ModeSetgid),
		os.Mkdir(logs, 0o700), os.Chmod(logs, 0o777),
	); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(parent, "test")
	testenv.CopyProgram(t, program)
	cachetest.RunStorm(t, cachetest.Site{
		Hosts:   []string{dir, dir},
		Options: cache.Options{Settle: -1, Term: time.Second, Group: true},
		Program: program, Logs: logs,
		As: func(host int) *syscall.Credential {
			id := uint32(60001 + host)
			return &syscall.Credential{Uid: id, Gid: id, Groups: []uint32{group}}
		},
	})
}

// Root fills; researcher, an ordinary user, looks, once with the cache's group
// and once without.
func TestAnotherUserReadsWhatTheGroupSharesAndNothingElse(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user than researcher")
	}
	u := testenv.Researcher(t)
	parent := testenv.SharedDir(t)
	const group = 4711 // whoever that is
	for name, test := range map[string]struct {
		group, private bool
		groups         []uint32
		reads          bool
	}{
		"a cache of one's own":        {groups: []uint32{group}},
		"shared, by the group":        {group: true, groups: []uint32{group}, reads: true},
		"shared, by others":           {group: true},
		"private in it, by the group": {group: true, private: true, groups: []uint32{group}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp(parent, "cache-") //nolint:usetesting // the other user does not see TempDir
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir, 0, group); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o770|os.ModeSetgid); err != nil {
				t.Fatal(err)
			}
			c, err := cache.Open(dir, cache.Options{Group: test.group})
			if err != nil {
				t.Fatal(err)
			}
			w := cache.Want{Key: cache.Key{Kind: "bundle", ID: "a"}, Private: test.private, Holder: "row-1"}
			path, err := c.Get(t.Context(), w, func(_ context.Context, tmp string) error {
				if err := os.Mkdir(tmp, 0o755); err != nil {
					return err
				}
				return os.WriteFile(filepath.Join(tmp, "f"), []byte("secret"), 0o644)
			})
			if err != nil {
				t.Fatal(err)
			}
			read := exec.CommandContext(t.Context(), "cat", filepath.Join(path, "f"))
			read.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.Credential.Uid, Gid: u.Credential.Gid, Groups: test.groups}}
			out, err := read.Output()
			if reads := err == nil && string(out) == "secret"; reads != test.reads {
				t.Errorf("researcher read %q, %v; want that to succeed: %v", out, err, test.reads)
			}
		})
	}
}
