package diskspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

func TestDiskOfAnExistingPathIsMeasured(t *testing.T) {
	t.Parallel()
	s, err := diskspace.Of(t.TempDir())
	if err != nil || s.Free <= 0 || s.Free > s.Total {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := diskspace.Of(filepath.Join(os.TempDir(), "there", "is", "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that is not there: %v", err)
	}
}

func TestLocalDiskIsNoNetworkAndMemoryIsKnown(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]struct {
		network string
		memory  bool
	}{
		t.TempDir(): {}, "/dev/shm": {memory: true}, "/there/is/none": {},
	} {
		if network, memory := diskspace.Network(path), diskspace.InMemory(path); network != want.network || memory != want.memory {
			t.Errorf("%s: network %q, in memory %v; want %+v", path, network, memory, want)
		}
	}
}
