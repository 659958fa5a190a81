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
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
)

// exclusion selects the entries of a run directory that are not results.
type exclusion struct {
	links    map[string]bool
	whole    bool // a parent is shown at "."
	patterns []string
	prefix   string
}

func exclusionOf(run codalab.RunBundle) exclusion {
	x := exclusion{links: map[string]bool{}, prefix: spool.DependenciesDir(run.UUID) + "/"}
	x.patterns = run.Metadata.Strings("exclude_patterns")
	for _, d := range run.Dependencies {
		x.links[path.Clean(d.ChildPath)] = true
		x.whole = x.whole || path.Clean(d.ChildPath) == "."
	}
	return x
}

// excludes reports whether an entry of the run directory is not a result: a link to a dependency,
// an entry that matches a pattern as for tar (codalab/worker/file_util.py: tar_gzip_directory), or
// the incomplete copy of a killed worker.
func (x exclusion) excludes(root *os.Root, below string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink != 0 && (x.whole || x.links[below]) {
		if target, err := root.Readlink(below); err == nil && strings.HasPrefix(target+"/", x.prefix) {
			return true
		}
	}
	if spool.IsCopyName(below) && !d.IsDir() {
		return true
	}
	return slices.ContainsFunc(x.patterns, func(pattern string) bool { return tarstream.ExcludedBy(pattern, below) })
}

// clean removes entries that are not results from root, and calls visit for each result.
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
