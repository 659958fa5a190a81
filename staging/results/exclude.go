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
// an entry that matches a pattern as for tar (codalab/worker/file_util.py: tar_gzip_directory),
// the incomplete copy of a killed worker, or a device. Root in a container of Docker can make devices, which
// would open the host's disks to whoever may open the results.
func (x exclusion) excludes(at place, d fs.DirEntry) bool {
	below := at.below
	if d.Type()&fs.ModeSymlink != 0 && (x.whole || x.links[below]) {
		if target, err := at.dir.Readlink(at.name); err == nil && strings.HasPrefix(target+"/", x.prefix) {
			return true
		}
	}
	if spool.IsCopyName(below) && !d.IsDir() || d.Type()&fs.ModeDevice != 0 {
		return true
	}
	return slices.ContainsFunc(x.patterns, func(pattern string) bool { return tarstream.ExcludedBy(pattern, below) })
}

// from is excludes for the paths below root.
func (x exclusion) from(root *os.Root) func(below string, d fs.DirEntry) bool {
	return func(below string, d fs.DirEntry) bool {
		return x.excludes(place{dir: root, name: below, below: below}, d)
	}
}

// clean removes entries that are not results from root, and calls visit for each result. Results that stay on
// a disk lose the right of their owner that they give to everybody who executes them.
func (x exclusion) clean(ctx context.Context, root *os.Root, visit func(at place, info fs.FileInfo) error) error {
	var removing error
	skip := func(at place, d fs.DirEntry) bool {
		if !x.excludes(at, d) {
			return false
		}
		removing = errors.Join(removing, filetree.RemoveIn(at.dir, at.name))
		return true
	}
	disarmed := func(at place, info fs.FileInfo) error {
		if err := visit(at, info); err != nil {
			return err
		}
		return disarm(at, info)
	}
	err := walker{skip: skip, visit: disarmed}.walk(ctx, root)
	return errors.Join(err, removing)
}

// disarm takes the set-user-ID and set-group-ID bits from a file. Root in a container may set them, has no use
// of them there, and owns the file as the bridge's account outside.
func disarm(at place, info fs.FileInfo) error {
	if !info.Mode().IsRegular() || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) == 0 {
		return nil
	}
	now, err := at.dir.Lstat(at.name) // visit may have changed its permissions
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return at.dir.Chmod(at.name, now.Mode().Perm())
}
