package program

import (
	"cmp"
	"runtime/debug"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// release is the version of a release, such as v1.2.3. The linker sets it (-X), because
// Go's own version of a build only comes from git's tags.
var release string //nolint:gochecknoglobals // the linker sets nothing else

// Version returns the build's version and the protocol's.
func Version() string {
	version, revision := build()
	if strings.Contains(version, revision) {
		revision = ""
	}
	return strings.TrimSpace(version+" "+revision) + " (CodaLab " + codalab.Version + ")"
}

// build returns the version and, if it is known, the beginning of the commit.
func build() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(release, "(devel)"), ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value[:min(12, len(s.Value))]
		}
	}
	return cmp.Or(release, info.Main.Version, "(devel)"), revision
}
