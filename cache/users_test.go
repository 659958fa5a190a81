package cache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cache/cachetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

const group = 4711 // a group without users on this machine

// groupDir makes a directory of the group below parent.
func groupDir(t *testing.T, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "cache-")
	if err = errors.Join(err, os.Chown(dir, 0, group), os.Chmod(dir, 0o770|os.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGroupKeepsThePromises: the members of a group fill, read and trim one cache, one of them on
// each host, without rights beyond the group's.
func TestGroupKeepsThePromises(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two other users")
	}
	parent := testenv.SharedDir(t)
	dir, logs := groupDir(t, parent), filepath.Join(parent, "logs")
	if err := errors.Join(os.Mkdir(logs, 0o700), os.Chmod(logs, 0o777)); err != nil {
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

// verifyJob is the environment variable that makes a test program verify the cache of a group.
const verifyJob = "CACHE_TEST_VERIFY"

func verifyAsMember(dir string) (code int) {
	c, err := cache.Open(dir, cache.Options{Group: true})
	if err == nil {
		err = c.Verify(context.Background(), func(e cache.Entry, wrong error) {
			fmt.Printf("%s damaged=%v private=%v sound=%v\n", e.ID, errors.Is(wrong, cache.ErrDamaged), errors.Is(wrong, fs.ErrPermission), wrong == nil)
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestVerifyTellsWhatIsPrivateFromWhatIsDamaged(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user than researcher")
	}
	parent := testenv.SharedDir(t)
	dir := groupDir(t, parent)
	c := open(t, dir, cache.Options{Group: true})
	paths := map[string]string{}
	for _, id := range []string{"damaged", "private", "sound"} {
		w := cache.Want{Key: cache.Key{Kind: "bundle", ID: id}, Private: id == "private"}
		var err error
		if paths[id], err = c.Get(t.Context(), w, text("content")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(paths["damaged"], []byte("c0ntent"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(parent, "test")
	testenv.CopyProgram(t, program)
	member := testenv.AgainAs(t, program, &syscall.Credential{Uid: 60001, Gid: 60001, Groups: []uint32{group}}, verifyJob+"="+dir)
	out, err := io.ReadAll(member)
	if err = errors.Join(err, member.Wait()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	want := []string{
		"damaged damaged=true private=false sound=false",
		"private damaged=false private=true sound=false",
		"sound damaged=false private=false sound=true",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("a member finds %q, want %q", lines, want)
	}
}

// Root fills. Researcher, an ordinary user, reads, once with the cache's group and once without.
func TestAnotherUserReadsWhatTheGroupSharesAndNothingElse(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user than researcher")
	}
	u := testenv.Researcher(t)
	parent := testenv.SharedDir(t)
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
			dir := groupDir(t, parent)
			c := open(t, dir, cache.Options{Group: test.group})
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
