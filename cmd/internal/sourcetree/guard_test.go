package sourcetree_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/sourcetree"
)

func TestConfigurationOfARepositoryStartsNoMonitor(t *testing.T) {
	t.Parallel()
	dir := newDir(t, map[string]string{"a": "1\n"})
	git := gitIn(t, dir)
	git("add", ".")
	git("commit", "-q", "-m", "one")
	mark := filepath.Join(t.TempDir(), "ran")
	put(t, dir, ".git/monitor", "#!/bin/sh\necho ran >> "+mark+"\nexit 1\n")
	must(t, os.Chmod(filepath.Join(dir, ".git/monitor"), 0o755))
	git("config", "core.fsmonitor", filepath.Join(dir, ".git/monitor"))
	put(t, dir, "a", "2\n")
	read(t, dir)
	if _, err := os.Stat(mark); err == nil {
		t.Error("git has run the program that the repository names")
	}
}

// A submodule's repository is gone. Git's list is not whole, and nothing is sent by other rules.
func TestRepositoryThatGitCannotListIsRefused(t *testing.T) {
	t.Parallel()
	other := newDir(t, map[string]string{"m.py": ""})
	git := gitIn(t, other)
	git("add", ".")
	git("commit", "-q", "-m", "one")
	dir := newDir(t, map[string]string{"a.py": ""})
	git = gitIn(t, dir)
	git("submodule", "--quiet", "add", other, "module")
	git("add", ".")
	git("commit", "-q", "-m", "one")
	must(t, os.RemoveAll(filepath.Join(dir, ".git/modules")))
	_, err := sourcetree.Read(t.Context(), dir, func(fs.FileInfo) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "git cannot list the files of ") || !strings.Contains(err.Error(), "module: not a git repository") {
		t.Errorf("error %v", err)
	}
}

func TestDifferenceHasNothingThatTheTreeLeavesOut(t *testing.T) {
	t.Parallel()
	other := newDir(t, map[string]string{"m.py": "", "secret": "old\n"})
	git := gitIn(t, other)
	git("add", ".")
	git("commit", "-q", "-m", "one")
	dir := newDir(t, map[string]string{"a": "x\n", ".private/login": "old\n", "file": "", ".clignore": "secret\n"})
	git = gitIn(t, dir)
	git("submodule", "--quiet", "add", other, "module")
	git("add", ".")
	git("commit", "-q", "-m", "one")
	git("config", "diff.submodule", "diff")
	put(t, dir, ".private/login", "password\n")
	put(t, dir, "module/secret", "password\n")
	must(t, os.Remove(filepath.Join(dir, "file")))
	put(t, dir, "file/secret", "password\n")
	put(t, dir, "a", "y\n")
	git("add", "file")
	tree, err := sourcetree.Read(t.Context(), dir, func(i fs.FileInfo) bool { return i.Name() == ".private" })
	must(t, err)
	if d := tree.Commit.Difference; strings.Contains(d, "password") || !strings.Contains(d, "+y\n") {
		t.Errorf("the difference is %s", tree.Commit.Difference)
	}
}

func TestLinkToTheDirectoryItselfIsStray(t *testing.T) {
	t.Parallel()
	dir := newDir(t, map[string]string{"a": "x\n"})
	must(t, os.Symlink(".", filepath.Join(dir, "self")))
	if stray := read(t, dir).StrayLinks(); len(stray) != 1 || stray[0] != "self" {
		t.Errorf("stray links %q", stray)
	}
}
