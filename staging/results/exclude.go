package results

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/spool"
)

// exclusion is which entries of a run directory are no results.
type exclusion struct {
	links    map[string]bool
	whole    bool // some parent is seen at "."
	patterns []string
	prefix   string
}

func exclusionOf(run codalab.RunBundle) exclusion {
	x := exclusion{links: map[string]bool{}, prefix: spool.DependenciesDir(run.UUID) + "/"}
	for _, pattern := range run.Metadata.Strings("exclude_patterns") {
		x.patterns = append(x.patterns, maskSlashes(strings.ReplaceAll(pattern, "[!", "[^")))
	}
	for _, d := range run.Dependencies {
		x.links[path.Clean(d.ChildPath)] = true
		x.whole = x.whole || path.Clean(d.ChildPath) == "."
	}
	return x
}

// excludes reports whether an entry of the run directory is no result: a link to a
// dependency, what a pattern names, or a half-made copy of a worker that was killed.
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

// matches reports whether tar(1) leaves an entry out for --exclude=pattern, which is how
// CodaLab applies the patterns (codalab/worker/file_util.py: tar_gzip_directory): a shell's
// pattern, with wildcards that match slashes, for the entry's path, or, unless it begins
// with "./", for what follows any slash in that. For a pattern such as ".*", which matches
// the directory's own name, CodaLab's tar leaves out everything; here it means the entries.
// The pattern's slashes are masked.
func matches(pattern, name string) bool {
	pattern, anchored := strings.CutPrefix(pattern, maskSlashes("./"))
	for ok := true; ok; _, name, ok = strings.Cut(name, "/") {
		matched, err := path.Match(pattern, maskSlashes(name))
		if matched || errors.Is(err, path.ErrBadPattern) && pattern == maskSlashes(name) {
			return true
		}
		if anchored {
			return false
		}
	}
	return false
}

// maskSlashes replaces slashes, which path.Match's wildcards do not match, by a byte that no
// name contains.
func maskSlashes(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

// clean removes from root what is no result, and calls visit for each result.
func (x exclusion) clean(ctx context.Context, root *os.Root, visit func(below string, info fs.FileInfo) error) error {
	var removing error
	skip := func(below string, d fs.DirEntry) bool {
		if !x.excludes(root, below, d) {
			return false
		}
		removing = errors.Join(removing, filetree.RemoveIn(root, below))
		return true
	}
	err := walker{root, skip, visit}.walk(ctx, ".")
	return errors.Join(err, removing)
}
