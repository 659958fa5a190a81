package apptainerexec

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/procstat"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
)

// addMountsBelow adds binds of the mounts below read-only binds, from the text of /proc/self/mountinfo (proc(5)).
// Apptainer shows these mounts too, and makes only the topmost one read-only (internal/pkg/runtime/engine/apptainer/
// container_linux.go: addBindsMount). Without them, a command could write to the cgroups in /sys that belong to its
// account. A mount that another one covers, or that this user cannot reach, needs none.
func addMountsBelow(binds []container.Bind, mountinfo string) []container.Bind {
	var writable []string
	for _, m := range procstat.Mounts(mountinfo) {
		// A bind of an autofs would mount what is not needed.
		if m.Type != "autofs" && !slices.Contains(m.Options, "ro") && !slices.Contains(writable, m.At) {
			writable = append(writable, m.At)
		}
	}
	all := slices.Clone(binds)
	for i, b := range binds {
		if !b.ReadOnly {
			continue
		}
		for _, at := range writable {
			below, ok := strings.CutPrefix(at, strings.TrimSuffix(b.Source, "/")+"/")
			if !ok {
				continue
			}
			target := path.Join(b.Target, below)
			covered := slices.ContainsFunc(binds[i+1:], func(later container.Bind) bool { return subpath.Within(target, later.Target) })
			if _, err := os.Stat(at); err == nil && !covered {
				all = append(all, container.Bind{Source: at, Target: target, ReadOnly: true})
			}
		}
	}
	return all
}
