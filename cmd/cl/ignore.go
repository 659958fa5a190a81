package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// exclusion selects the files that an upload omits from the directories that it packs.
type exclusion struct {
	*upload
	paths map[string]string // of the inputs, by their names in the archive
	// private are the directories with tokens, for os.SameFile.
	private []fs.FileInfo
	found   map[string]bool // the paths of those that were left out
	// ignored maps directories to the patterns of their ignore files; a directory without such a
	// file has none.
	ignored map[string][]string
	failure error // of reading them
}

// exclusion returns the exclusion for inputs. It fails if an input itself is a directory with
// tokens.
func (u *upload) exclusion(inputs []tarstream.Input) (*exclusion, error) {
	x := &exclusion{upload: u, paths: map[string]string{}, found: map[string]bool{}, ignored: map[string][]string{}}
	dirs := []string{filepath.Join(u.Getenv("HOME"), ".codalab")}
	if home, err := u.home(); err == nil {
		dirs = append(dirs, home)
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil {
			x.private = append(x.private, info)
		}
	}
	for _, in := range inputs {
		x.paths[in.Name] = in.Path
		if info, err := os.Stat(in.Path); err == nil && x.isPrivate(info) {
			return nil, refusef("%s is cl's own directory, with your logins: it is not uploaded.", in.Path)
		}
	}
	return x, nil
}

func (x *exclusion) isPrivate(info fs.FileInfo) bool {
	return slices.ContainsFunc(x.private, func(dir fs.FileInfo) bool { return os.SameFile(dir, info) })
}

// excludes is a tarstream.PackOptions.Exclude.
func (x *exclusion) excludes(below string, d fs.DirEntry) bool {
	if slices.ContainsFunc(x.exclude, func(pattern string) bool { return tarstream.ExcludedBy(pattern, below) }) {
		return true
	}
	base, rest := x.paths["."], below
	if base == "" {
		var name string
		name, rest, _ = strings.Cut(below, "/")
		base = x.paths[name]
	}
	path := filepath.Join(base, rest)
	if (d.IsDir() || x.follow && d.Type() == fs.ModeSymlink) && len(x.private) > 0 {
		if info, err := os.Stat(path); err == nil && x.isPrivate(info) {
			x.found[path] = true
			return true
		}
	}
	return x.ignore != "" && rest != "" && x.ignores(base, rest)
}

// ignores reports whether an ignore file in one of the directories above names an entry
// (codalab/worker/file_util.py: tar_gzip_directory; GNU tar's --exclude-ignore).
func (x *exclusion) ignores(base, below string) bool {
	for dir := filepath.Dir(below); ; dir = filepath.Dir(dir) {
		for _, pattern := range x.patterns(filepath.Join(base, dir)) {
			if tarstream.IgnoredBy(pattern, below) {
				return true
			}
		}
		if dir == "." {
			return false
		}
	}
}

func (x *exclusion) patterns(dir string) []string {
	list, known := x.ignored[dir]
	if known {
		return list
	}
	file := x.ignore
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	list, err := tarstream.ReadIgnoreFile(file)
	x.failure = errors.Join(x.failure, err)
	x.ignored[dir] = list
	return list
}

// warn prints a warning for each directory with logins that was left out, and for an --ignore that
// matched no file.
func (x *exclusion) warn() {
	for _, path := range slices.Sorted(maps.Keys(x.found)) {
		x.upload.warn("%s is left out: it has your logins.", path)
	}
	if x.ignore != "" && !slices.ContainsFunc(slices.Collect(maps.Values(x.ignored)), func(list []string) bool { return len(list) > 0 }) {
		x.upload.warn("No directory that is uploaded has a file %s with patterns.", x.ignore)
	}
}
