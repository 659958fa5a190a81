package sharedfiles

import (
	"os"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestSharedDiskThatIsNotMountedIsNotTakenForAnEmptyOne(t *testing.T) {
	t.Parallel()
	layout := spool.Layout(t.TempDir())
	if err := Prepare(config.Config{}, layout, 3); err == nil || !strings.Contains(err.Error(), "is its disk mounted?") {
		t.Errorf("an empty directory for a ledger with bundles: %v", err)
	}
	if entries, err := os.ReadDir(string(layout)); err != nil || len(entries) > 0 {
		t.Errorf("made %v, %v", entries, err)
	}
	for _, bundles := range []int{0, 3} {
		if err := Prepare(config.Config{}, layout, bundles); err != nil {
			t.Errorf("with %d bundles: %v", bundles, err)
		}
	}
	if err := os.Remove(layout.KeptDirs()); err != nil { // as an earlier version leaves it
		t.Fatal(err)
	}
	if err := Prepare(config.Config{}, layout, 3); err != nil {
		t.Errorf("without a directory of kept results: %v", err)
	}
}
