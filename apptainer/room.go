package apptainer

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

// makeRoom makes the directory for the layers, and checks that what is missing
// of them and a SIF in dst, which may be empty for none, have room on their
// disks. A SIF is rarely larger than the layers are.
func (c Converter) makeRoom(l *layers, dir, dst string) error {
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o700); err != nil {
		return fmt.Errorf("make room for its layers: %w", err)
	}
	needs := map[string]int64{dir: l.missing()}
	switch {
	case dst == "":
	case sameDisk(dir, dst):
		needs[dir] += l.report.toConvert
	default:
		needs[dst] = l.report.toConvert
	}
	for path, need := range needs {
		space, err := diskspace.Of(path)
		if err != nil {
			return fmt.Errorf("make room for it: %w", err)
		}
		var stays int64
		if c.Reserve != nil && (path == dst || len(needs) == 1) {
			stays = c.Reserve(space.Total)
		}
		if space.Total > 0 && space.Free-stays < need {
			return fmt.Errorf("it needs about %d MiB on the disk of %s, which has %d MiB free, of which %d MiB stay free: %w",
				need>>20, path, space.Free>>20, stays>>20, syscall.ENOSPC)
		}
	}
	return nil
}

func sameDisk(a, b string) bool {
	var s, t syscall.Stat_t
	return syscall.Stat(a, &s) == nil && syscall.Stat(b, &t) == nil && s.Dev == t.Dev
}

// missing is how much has still to be pulled.
func (l *layers) missing() int64 {
	missing := l.report.toPull
	counted := map[*blob]bool{}
	for _, b := range l.blobs {
		if counted[b] || b.local != nil {
			continue
		}
		counted[b] = true
		if info, err := os.Stat(b.path); err == nil {
			missing -= min(b.Size, info.Size())
		}
	}
	return missing
}
