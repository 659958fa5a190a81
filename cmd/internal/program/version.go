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
func Version() string { return Build() + " (CodaLab " + codalab.Version + ")" }

// Build returns the build's version, with its commit if that is known.
func Build() string {
	version, revision := build()
	if strings.Contains(version, revision) {
		revision = ""
	}
	return strings.TrimSpace(version + " " + revision)
}

// ImageTag returns the build's version as the tag of an image. `make worker-image` gives the workers' image this tag.
func ImageTag() string {
	version, _ := build()
	return imageTag(version)
}

// imageTag drops the characters of a version that no tag may have (OCI distribution-spec: <reference>).
func imageTag(version string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if strings.ContainsRune("+()", r) {
			return '-'
		}
		return r
	}, version), "-")
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
