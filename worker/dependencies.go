package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/spool"
)

// link is a symbolic link in the working directory to a dependency. target is a path in the
// container.
type link struct{ name, target string }

// planDependencies plans the binds of dependencies, and the links to them in the working directory
// (codalab/worker/worker_run_state.py: _transition_from_PREPARING, mount_dependency). A dependency
// at "." shows all entries of its source at top level. It is bound as a whole, so that links in it
// are resolved in the container and never on the host. A dependency at an absolute path is bound at
// that path and has no link, because os.path.join puts it there in CodaLab's own containers.
func planDependencies(bundle string, deps []spool.Dependency) ([]link, []container.Bind, error) {
	base := spool.DependenciesDir(bundle)
	var links []link
	var binds []container.Bind
	var names []string
	for _, d := range deps {
		name, err := childPath(bundle, d.ChildPath)
		if err != nil {
			return nil, nil, err
		}
		if i := slices.IndexFunc(names, func(other string) bool { return nested(name, other) }); i >= 0 {
			return nil, nil, &userError{fmt.Sprintf("The dependencies %q and %q have the same path, or one lies inside the other.", names[i], name)}
		}
		names = append(names, name)
	}
	for i, d := range deps {
		if err := checkSource(d); err != nil {
			return nil, nil, err
		}
		name, target := names[i], path.Join(base, names[i])
		switch {
		case path.IsAbs(name):
			target = name
		case name == ".":
			target = path.Join(base, unusedName(names))
		default:
			links = append(links, link{name, target})
		}
		binds = append(binds, container.Bind{Source: d.Source, Target: target, ReadOnly: true, Exact: d.InPlace, OfOthers: d.InPlace})
		if name != "." {
			continue
		}
		entries, err := listNames(d.Source)
		if err != nil {
			return nil, nil, err
		}
		for _, entry := range entries {
			if isOutput(entry) {
				continue // the command's own output is there
			}
			links = append(links, link{entry, path.Join(target, entry)})
		}
	}
	return links, binds, nil
}

// childPath checks and cleans a dependency's path in the container.
func childPath(bundle, p string) (string, error) {
	if p == "" {
		return ".", nil
	}
	if path.IsAbs(p) && !strings.ContainsRune(p, 0) {
		return absolutePath(bundle, p)
	}
	if !filepath.IsLocal(p) || strings.ContainsRune(p, 0) {
		return "", &userError{fmt.Sprintf("The dependency %q would lie outside of the working directory.", p)}
	}
	p = path.Clean(p)
	if first, _, _ := strings.Cut(p, "/"); isOutput(first) {
		return "", &userError{fmt.Sprintf("The dependency %q has the name of a file that the command's output goes to.", p)}
	}
	return p, nil
}

// absolutePath checks and cleans an absolute path in the container. It refuses a path that would
// hide the directories of every container.
func absolutePath(bundle, p string) (string, error) {
	clean := path.Clean(p)
	own := []string{"/dev", "/proc", "/sys", "/" + bundle, spool.DependenciesDir(bundle), tempDir(bundle), outputDir(bundle)}
	if clean == "/" || slices.ContainsFunc(own, func(dir string) bool { return nested(clean, dir) }) {
		return "", &userError{fmt.Sprintf("The dependency %q would hide what every container has there: give it another key.", p)}
	}
	return clean, nil
}

func isOutput(name string) bool { return slices.Contains(outputs(), name) }

// nested reports whether one of two child paths is the other, or is inside it. It ignores conflicts
// with the entries of a dependency at ".", which makeLinks finds.
func nested(a, b string) bool {
	if a == "." || b == "." {
		return a == b
	}
	return strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", a+"/")
}

// unusedName returns a name for the dependency at "." that conflicts with no other.
func unusedName(names []string) string {
	name := "all"
	for slices.ContainsFunc(names, func(other string) bool { return nested(name, other) }) {
		name += "_"
	}
	return name
}

// checkSource refuses a source that is a symbolic link, because the host would
// follow it to another place.
func checkSource(d spool.Dependency) error {
	info, err := os.Lstat(d.Source)
	if err != nil {
		return fmt.Errorf("the dependency %q is not where it was prepared: %w", d.ChildPath, err)
	}
	if info.Mode().Type()&fs.ModeSymlink != 0 {
		return fmt.Errorf("the dependency %q was prepared as a symbolic link, %s", d.ChildPath, d.Source)
	}
	return nil
}

func listNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("list the dependency %q: %w", ".", err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && !info.IsDir() {
		return nil, &userError{`The dependency "." is a file: only the entries of a directory can be shown at top level.`}
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the dependency %q: %w", ".", err)
	}
	slices.Sort(names)
	return names, nil
}

// makeLinks makes links in the working directory, and the directories above them. It keeps the
// links of an earlier worker. In the files of an earlier attempt, it keeps whatever the command has put in their place.
func makeLinks(root *os.Root, links []link, resumed bool) error {
	for _, l := range links {
		if dir := path.Dir(l.name); dir != "." {
			err := root.MkdirAll(dir, 0o755)
			if err != nil && resumed && replaced(root, dir) {
				continue
			}
			if err != nil {
				return linkError(l, err)
			}
		}
		err := root.Symlink(l.target, l.name)
		if errors.Is(err, fs.ErrExist) {
			if standing, readErr := root.Readlink(l.name); resumed || readErr == nil && standing == l.target {
				continue
			}
		}
		if err != nil {
			return linkError(l, err)
		}
	}
	return nil
}

// replaced reports whether a path of directories is something else: a file, or a link that leads nowhere or out of the
// working directory.
func replaced(root *os.Root, dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if info, err := root.Lstat(dir); err == nil && !info.IsDir() {
			return true
		}
	}
	return false
}

// linkError describes the failure of a link. The directory was empty, so an existing name belongs
// to another dependency.
func linkError(l link, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return &userError{fmt.Sprintf("Two dependencies of this bundle have the name %q.", l.name)}
	}
	return fmt.Errorf("link the dependency %q: %w", l.name, err)
}
