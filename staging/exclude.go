package staging

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// exclusion says which entries of a run's directory are no results.
type exclusion struct {
	links    map[string]bool
	whole    bool // some parent is seen at "."
	patterns []string
	prefix   string
}

func exclusionOf(run codalab.RunBundle) exclusion {
	x := exclusion{links: map[string]bool{}, prefix: spool.DependenciesDir(run.UUID) + "/"}
	for _, pattern := range run.Metadata.Strings("exclude_patterns") {
		x.patterns = append(x.patterns, flat(strings.ReplaceAll(pattern, "[!", "[^")))
	}
	for _, d := range run.Dependencies {
		x.links[path.Clean(d.ChildPath)] = true
		x.whole = x.whole || path.Clean(d.ChildPath) == "."
	}
	return x
}

// excludes says whether an entry of the run directory is not a result: the link
// to a dependency, what a pattern names, or what a worker had not wholly copied
// when it was killed.
func (x exclusion) excludes(root *os.Root, below string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink != 0 && (x.whole || x.links[below]) {
		if target, err := root.Readlink(below); err == nil && strings.HasPrefix(target+"/", x.prefix) {
			return true
		}
	}
	if spool.IsCopyName(below) && !d.IsDir() {
		return true
	}
	return slices.ContainsFunc(x.patterns, func(pattern string) bool { return matches(pattern, below) })
}

// matches says whether tar(1) leaves an entry out for --exclude=pattern, which
// is how CodaLab applies the patterns (codalab/worker/file_util.py:
// tar_gzip_directory): a shell's pattern, whose wildcards match slashes, for the
// entry's path, or, unless it begins with "./", for what follows any slash in
// that. CodaLab's tar also leaves out everything for a pattern such as ".*" that
// matches the directory's own name; here it means the entries. The pattern is
// flat.
func matches(pattern, name string) bool {
	pattern, anchored := strings.CutPrefix(pattern, flat("./"))
	for ok := true; ok; _, name, ok = strings.Cut(name, "/") {
		matched, err := path.Match(pattern, flat(name))
		if matched || errors.Is(err, path.ErrBadPattern) && pattern == flat(name) {
			return true
		}
		if anchored {
			return false
		}
	}
	return false
}

// flat makes slashes what no name contains: path.Match has a wildcard match
// anything but them.
func flat(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
