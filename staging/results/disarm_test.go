package results

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/spool"
)

// arm makes programs that give the rights of their owner and group to everybody, as root in a container may.
func arm(t *testing.T, dir string) {
	t.Helper()
	plant(t, dir, map[string]string{"bin/root": "a shell", "bin/group": "a shell"})
	must(t, os.Chmod(filepath.Join(dir, "bin/root"), fs.ModeSetuid|0o711))
	must(t, os.Chmod(filepath.Join(dir, "bin/group"), fs.ModeSetgid|0o171))
}

func isDisarmed(t *testing.T, dir string) {
	t.Helper()
	for name, want := range map[string]fs.FileMode{"bin/root": 0o711, "bin/group": 0o171} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if must(t, err); info.Mode()&^0o400 != want&^0o400 {
			t.Errorf("%s has the mode %v, want %v", name, info.Mode(), want)
		}
	}
}

func TestResultsOnADiskGiveNobodyTheRightsOfTheirOwner(t *testing.T) {
	t.Parallel()
	t.Run("moved", func(t *testing.T) {
		t.Parallel()
		onEachDisk(t, func(m *moved, _ bool) {
			arm(m.T, m.runDir)
			must(m.T, m.move())
			isDisarmed(m.T, m.location)
		})
	})
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		r := left(t, map[string]string{"stdout": "out"})
		arm(t, r.runDir)
		r.mustCollect(spool.ResultsKeep)
		isDisarmed(t, r.layout.KeptDir(run1))
	})
}

func TestDevicesAreNoResults(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "out"})
	if err := unix.Mknod(filepath.Join(r.runDir, "null"), unix.S_IFCHR|0o666, 1<<8|3); err != nil {
		t.Skipf("needs the right to make a device: %v", err)
	}
	r.mustCollect(spool.ResultsKeep)
	if _, err := os.Lstat(filepath.Join(r.layout.KeptDir(run1), "null")); err == nil {
		t.Error("the device was kept")
	}
}
