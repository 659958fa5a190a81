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
