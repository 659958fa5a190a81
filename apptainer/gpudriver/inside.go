package gpudriver

import (
	"path"
	"slices"
	"strings"
)

// LibraryDir is a container's directory for the libraries of the host's driver, as in Apptainer.
const LibraryDir = "/.singularity.d/libs"

// Inside lists the driver's programs and files, with their paths in a container with this
// environment. Programs are in /usr/bin, or in the last directory of a PATH without it.
func (d Driver) Inside(env []string) []File {
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
	files := make([]File, 0, len(d.Programs)+len(d.Files))
	for _, program := range d.Programs {
		files = append(files, File{Path: program, Name: path.Join(dir, path.Base(program))})
	}
	return append(files, d.Files...)
}

// All lists the driver's libraries, in LibraryDir, followed by those of Inside.
func (d Driver) All(env []string) []File {
	var files []File
	for _, lib := range d.Libraries {
		files = append(files, File{Path: lib.Path, Name: path.Join(LibraryDir, lib.Name)})
	}
	return append(files, d.Inside(env)...)
}

// WithLibraryDir returns an environment in which the linker also searches LibraryDir.
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
