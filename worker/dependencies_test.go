package worker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestDependenciesAreBoundAndLinked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink("file", filepath.Join(dir, "link")))
	must(t, os.WriteFile(filepath.Join(dir, "stdout"), nil, 0o600))
	deps := "/" + bundle + "_dependencies/"
	for name, test := range map[string]struct {
		dependencies []spool.Dependency
		links        []link
		binds        []container.Bind
	}{
		"file and nested": {
			dependencies: []spool.Dependency{{ChildPath: "data", Source: file}, {ChildPath: "./a/b/", Source: dir}},
			links:        []link{{"data", deps + "data"}, {"a/b", deps + "a/b"}},
			binds: []container.Bind{
				{Source: file, Target: deps + "data", ReadOnly: true},
				{Source: dir, Target: deps + "a/b", ReadOnly: true},
			},
		},
		"in place": {
			dependencies: []spool.Dependency{{ChildPath: "data", Source: dir, InPlace: true}},
			links:        []link{{"data", deps + "data"}},
			binds:        []container.Bind{{Source: dir, Target: deps + "data", ReadOnly: true, Exact: true, OfOthers: true}},
		},
		"absolute": {
			dependencies: []spool.Dependency{{ChildPath: "/foo/./bar/", Source: file}, {ChildPath: "/etc/passwd", Source: file, InPlace: true}, {ChildPath: "foo", Source: dir}},
			links:        []link{{"foo", deps + "foo"}},
			binds: []container.Bind{
				{Source: file, Target: "/foo/bar", ReadOnly: true},
				{Source: file, Target: "/etc/passwd", ReadOnly: true, Exact: true, OfOthers: true},
				{Source: dir, Target: deps + "foo", ReadOnly: true},
			},
		},
		"top level": {
			dependencies: []spool.Dependency{{ChildPath: ".", Source: dir}, {ChildPath: "all", Source: file}},
			links:        []link{{"file", deps + "all_/file"}, {"link", deps + "all_/link"}, {"all", deps + "all"}},
			binds: []container.Bind{
				{Source: dir, Target: deps + "all_", ReadOnly: true},
				{Source: file, Target: deps + "all", ReadOnly: true},
			},
		},
		"empty path": {
			dependencies: []spool.Dependency{{Source: dir}},
			links:        []link{{"file", deps + "all/file"}, {"link", deps + "all/link"}},
			binds:        []container.Bind{{Source: dir, Target: deps + "all", ReadOnly: true}},
		},
	} {
		links, binds, err := planDependencies(bundle, test.dependencies)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.links, links, cmp.AllowUnexported(link{})) + cmp.Diff(test.binds, binds); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		root, err := os.OpenRoot(t.TempDir())
		must(t, err)
		for range 2 { // once more after an earlier worker
			must(t, makeLinks(root, links, false))
		}
		for _, l := range links {
			if target, err := root.Readlink(l.name); err != nil || target != l.target {
				t.Errorf("%s: %s leads to %s, %v", name, l.name, target, err)
			}
		}
		must(t, root.Close())
	}
}

func TestDependenciesThatCannotBeShownAreTheUsersFault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for want, deps := range map[string][]spool.Dependency{
		`The dependency "../x" would lie outside of the working directory.`:                                  {{ChildPath: "../x", Source: file}},
		`The dependency "/" would hide what every container has there: give it another key.`:                 {{ChildPath: "/", Source: dir}},
		`The dependency "/a/../proc" would hide what every container has there: give it another key.`:        {{ChildPath: "/a/../proc", Source: dir}},
		`The dependency "/dev/x" would hide what every container has there: give it another key.`:            {{ChildPath: "/dev/x", Source: file}},
		`The dependency "/` + bundle + `/x" would hide what every container has there: give it another key.`: {{ChildPath: "/" + bundle + "/x", Source: file}},
		`The dependencies "/a" and "/a/b" have the same path, or one lies inside the other.`:                 {{ChildPath: "/a", Source: dir}, {ChildPath: "/a/b", Source: dir}},
		`The dependency "stderr" has the name of a file that the command's output goes to.`:                  {{ChildPath: "stderr", Source: file}},
		`The dependencies "a" and "a/b" have the same path, or one lies inside the other.`:                   {{ChildPath: "a", Source: dir}, {ChildPath: "a/b", Source: dir}},
		`The dependencies "." and "." have the same path, or one lies inside the other.`:                     {{ChildPath: ".", Source: dir}, {ChildPath: "", Source: dir}},
		`The dependency "." is a file: only the entries of a directory can be shown at top level.`:           {{ChildPath: ".", Source: file}},
		`Two dependencies of this bundle have the name "file".`:                                              {{ChildPath: ".", Source: dir}, {ChildPath: "file", Source: dir}},
	} {
		links, _, err := planDependencies(bundle, deps)
		if err == nil {
			root, openErr := os.OpenRoot(t.TempDir())
			must(t, openErr)
			err = makeLinks(root, links, false)
			must(t, root.Close())
		}
		got := ending{err: err}.verdict(spool.Spec{})
		if got.Cause != spool.CauseUser || got.Failure != want {
			t.Errorf("%s: %s, want %s", got.Cause, got.Failure, want)
		}
	}
}

func TestPreparedLinkIsNotFollowedOnTheHost(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "latest")
	must(t, os.Symlink("/etc", source))
	_, _, err := planDependencies(bundle, []spool.Dependency{{ChildPath: "x", Source: source}})
	if got := (ending{err: err}).verdict(spool.Spec{}); got.Cause != spool.CausePlatform {
		t.Errorf("%+v (%v)", got, err)
	}
}
