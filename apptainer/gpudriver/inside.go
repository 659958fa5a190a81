package gpudriver

import (
	"path"
	"slices"
	"strings"
)

// LibraryDir is where a container has the libraries of the host's driver, as Apptainer does it.
const LibraryDir = "/.singularity.d/libs"

// ProgramDir is where a container with this environment finds the driver's programs: /usr/bin, or
// the last directory of its PATH if that lacks /usr/bin.
func ProgramDir(env []string) string {
	const usual = "/usr/bin"
	dir := usual
	for _, assignment := range env {
		if value, ok := strings.CutPrefix(assignment, "PATH="); ok {
			dirs := slices.DeleteFunc(strings.Split(value, ":"), func(dir string) bool { return !path.IsAbs(dir) })
			if len(dirs) > 0 && !slices.Contains(dirs, usual) {
				dir = dirs[len(dirs)-1]
			}
		}
	}
	return dir
}

// WithLibraryDir returns an environment in which the linker searches LibraryDir.
func WithLibraryDir(env []string) []string {
	const name = "LD_LIBRARY_PATH="
	i := slices.IndexFunc(env, func(assignment string) bool { return strings.HasPrefix(assignment, name) })
	switch {
	case i < 0:
		return append(env, name+LibraryDir)
	case env[i] == name:
		env[i] += LibraryDir
	default:
		env[i] += ":" + LibraryDir
	}
	return env
}
