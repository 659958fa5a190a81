package disktrial_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/disktrial"
)

func TestTrialOfADiskLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := disktrial.Try(t.Context(), dir)
	if err != nil || f.Type == "" || f.HardLinks != "" || f.Symlinks != "" || f.Rename != "" || f.Flock != "" || f.RangeLock != "" {
		t.Errorf("a local disk: %+v, %v", f, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	if _, err := disktrial.Try(t.Context(), filepath.Join(dir, "absent")); err == nil {
		t.Error("a directory that is not there could be tried")
	}
}

// The disks are those of every Linux: one in memory has no clones, and /proc has nothing at all.
func TestLinksBetweenTwoDisksAreRefusedWithTheKernelsWord(t *testing.T) {
	t.Parallel()
	memory, err := os.MkdirTemp("/dev/shm", "trial-")
	if err != nil {
		t.Skip("no disk in memory: ", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(memory) })
	p, err := disktrial.Between(t.TempDir(), memory)
	if err != nil || p.HardLinks != "invalid cross-device link" || p.Clone == "" {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err = disktrial.Between(memory, memory); err != nil || p.HardLinks != "" || p.Clone == "" {
		t.Errorf("on one disk in memory: %+v, %v", p, err)
	}
	if left, err := os.ReadDir(memory); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	if _, err := disktrial.Try(t.Context(), "/proc"); err == nil {
		t.Error("/proc could be written to")
	}
}

// Many sites name their disks by links, such as /home to /gpfs/home.
func TestDiskBehindALinkIsTold(t *testing.T) {
	t.Parallel()
	memory, err := os.MkdirTemp("/dev/shm", "trial-")
	if err != nil {
		t.Skip("no disk in memory: ", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(memory) })
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(memory, link); err != nil {
		t.Fatal(err)
	}
	want, err := disktrial.Try(t.Context(), memory)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := disktrial.Try(t.Context(), link); err != nil || got.Type != want.Type {
		t.Errorf("the link is on %s, %v; want %s", got.Type, err, want.Type)
	}
}

// A lock that a mount keeps to itself gives both programs the lock: so does a lock of another kind.
func TestLockThatExcludesNobodyIsFound(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]disktrial.Lock{"flock": disktrial.Flock, "ranges": disktrial.RangeLock} {
		path := filepath.Join(t.TempDir(), name)
		release, err := disktrial.Hold(path, lock)
		if err != nil {
			t.Fatal(err)
		}
		if err := disktrial.Excluded(path, lock); err != nil {
			t.Errorf("%s: while it is held: %v", name, err)
		}
		release()
		if err := disktrial.Excluded(path, lock); !errors.Is(err, disktrial.ErrShared) {
			t.Errorf("%s: when it was given back: %v", name, err)
		}
		if err := disktrial.Excluded(path+"-absent", lock); err == nil || errors.Is(err, disktrial.ErrShared) {
			t.Errorf("%s: without the file: %v", name, err)
		}
	}
}

func TestDisksThatLetInByTicketsAreKnownByTheirMount(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		f        disktrial.Features
		kerberos bool
	}{
		{disktrial.Features{Type: "ext4"}, false},
		{disktrial.Features{Type: "nfs4", Options: []string{"vers=4.2", "sec=sys"}}, false},
		{disktrial.Features{Type: "nfs4", Options: []string{"vers=4.2", "sec=krb5p"}}, true},
		{disktrial.Features{Type: "nfs", Options: []string{"sec=krb5"}}, true},
		{disktrial.Features{Type: "afs"}, true},
		{disktrial.Features{Type: "lustre"}, false},
	} {
		if test.f.Kerberos() != test.kerberos {
			t.Errorf("%+v: tickets %v", test.f, test.f.Kerberos())
		}
	}
}
