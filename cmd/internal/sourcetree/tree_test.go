package sourcetree_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/sourcetree"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

var must = testenv.Must

// newDir makes files with their texts below a new directory.
func newDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		put(t, dir, name, text)
	}
	return dir
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte(text), 0o644))
}

func read(t *testing.T, dir string) *sourcetree.Tree {
	t.Helper()
	tree, err := sourcetree.Read(t.Context(), dir, func(fs.FileInfo) bool { return false })
	must(t, err)
	return tree
}

func paths(tree *sourcetree.Tree) (list []string) {
	for _, f := range tree.Files {
		list = append(list, f.Path)
	}
	return list
}

func digest(t *testing.T, tree *sourcetree.Tree) string {
	t.Helper()
	sum, err := tree.Digest(t.Context(), "", func(int64) {})
	must(t, err)
	return sum
}

// gitIn returns a function that runs git in a new repository in dir.
func gitIn(t *testing.T, dir string) func(args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	run := func(args ...string) string {
		t.Helper()
		args = append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"}, args...)
		cmd := exec.CommandContext(t.Context(), "git", args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, &stderr)
		}
		return strings.TrimSpace(string(out))
	}
	run("init", "-q", "-b", "main")
	return run
}

func TestFilesAreThoseThatNoIgnoreFileNames(t *testing.T) {
	t.Parallel()
	dir := newDir(t, map[string]string{
		".gitignore": "*.o\n/data\n", ".clignore": "big\n!*.o\n", "a.py": "", "a.o": "", "data/x": "", "lib/data/x": "", "lib/big": "",
		"lib/.gitignore": "!keep.o\n", "lib/keep.o": "", "lib/b.o": "", ".git/x": "", "sub/.git": "", sourcetree.DifferenceName: "",
	})
	must(t, os.MkdirAll(filepath.Join(dir, "empty"), 0o755))
	want := []string{".clignore", ".gitignore", "a.py", "lib/.gitignore", "lib/data/x", "lib/keep.o"}
	tree := read(t, dir)
	if diff := cmp.Diff(want, paths(tree)); diff != "" || tree.Commit != nil {
		t.Error(tree.Commit, diff)
	}
	if diff := cmp.Diff([]string{".clignore", ".gitignore", "a.py", "lib"}, tree.Top()); diff != "" {
		t.Error(diff)
	}
}

func TestInARepositoryFilesAreTheTrackedAndTheNewOnes(t *testing.T) {
	t.Parallel()
	dir := newDir(t, map[string]string{
		".gitignore": "*.o\n", "a.py": "1\n", "gone": "gone\n", "secret": "s\n", "lib/forced.o": "", "lib/b.o": "",
	})
	git := gitIn(t, dir)
	git("add", ".")
	git("add", "-f", "lib/forced.o")
	git("remote", "add", "origin", "https://me:token@example.org/x")
	git("commit", "-q", "-m", "one")
	commit := git("rev-parse", "HEAD")
	tree := read(t, dir)
	if want := []string{".gitignore", "a.py", "gone", "lib/forced.o", "secret"}; cmp.Diff(want, paths(tree)) != "" {
		t.Error(paths(tree))
	}
	if want := (sourcetree.Commit{ID: commit, Branch: "main"}); cmp.Diff(want, *tree.Commit) != "" {
		t.Errorf("%+v", tree.Commit)
	}

	put(t, dir, "a.py", "2\n")
	put(t, dir, "new.py", "new\n")
	put(t, dir, "secret", "password\n")
	put(t, dir, ".clignore", "secret\n")
	must(t, os.Remove(filepath.Join(dir, "gone")))
	tree = read(t, dir)
	if want := []string{".clignore", ".gitignore", "a.py", "lib/forced.o", "new.py"}; cmp.Diff(want, paths(tree)) != "" {
		t.Error(paths(tree))
	}
	text := tree.Commit.Difference
	if !tree.Commit.Dirty || !strings.Contains(text, "\n-1\n+2\n") || !strings.Contains(text, "\n-gone\n") || strings.Contains(text, "password") || strings.Contains(text, "token") {
		t.Errorf("%+v", tree.Commit)
	}
	must(t, os.Remove(filepath.Join(dir, "secret")))
	if text := read(t, dir).Commit.Difference; strings.Contains(text, "secret") {
		t.Error(text)
	}

	// A directory in the repository, of which only the state counts.
	git("checkout", "-q", "--detach")
	if tree := read(t, filepath.Join(dir, "lib")); cmp.Diff([]string{"forced.o"}, paths(tree)) != "" || *tree.Commit != (sourcetree.Commit{ID: commit}) {
		t.Errorf("%q %+v", paths(tree), tree.Commit)
	}
	put(t, dir, "lib/new", "")
	if tree := read(t, filepath.Join(dir, "lib")); !tree.Commit.Dirty || tree.Commit.Difference != "" {
		t.Errorf("%+v", tree.Commit)
	}
}

func TestRepositoriesInARepositoryAreRead(t *testing.T) {
	t.Parallel()
	other := newDir(t, map[string]string{"m.py": ""})
	git := gitIn(t, other)
	git("add", ".")
	git("commit", "-q", "-m", "one")
	dir := newDir(t, map[string]string{"a.py": "", "nested/n.py": "", "nested/n.o": "", "nested/.gitignore": "*.o"})
	gitIn(t, filepath.Join(dir, "nested"))
	git = gitIn(t, dir)
	if tree := read(t, dir); tree.Commit != nil { // there is none yet
		t.Errorf("%+v", tree.Commit)
	}
	git("submodule", "--quiet", "add", other, "module")
	git("commit", "-q", "-m", "one")
	want := []string{".gitmodules", "a.py", "module/m.py", "nested/.gitignore", "nested/n.py"}
	if diff := cmp.Diff(want, paths(read(t, dir))); diff != "" {
		t.Error(diff)
	}
}

func TestEqualTreesHaveEqualDigests(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a": "1", "b/c": "2"}
	dir := newDir(t, files)
	sum := digest(t, read(t, dir))
	other := newDir(t, files)
	must(t, os.Chtimes(filepath.Join(other, "a"), time.Time{}, time.Unix(1, 0)))
	must(t, os.Chmod(filepath.Join(other, "a"), 0o600))
	must(t, os.Mkdir(filepath.Join(other, "empty"), 0o755))
	if got := digest(t, read(t, other)); got != sum || !strings.HasPrefix(sum, "sha256:") {
		t.Errorf("%s, want %s", got, sum)
	}
	for name, change := range map[string]func(dir string) error{
		"content":    func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("2"), 0o644) },
		"permission": func(dir string) error { return os.Chmod(filepath.Join(dir, "a"), 0o755) },
		"name":       func(dir string) error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "d")) },
		"place":      func(dir string) error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b/a")) },
		"link": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "a")), os.Symlink("1", filepath.Join(dir, "a")))
		},
	} {
		dir := newDir(t, files)
		must(t, change(dir))
		if got := digest(t, read(t, dir)); got == sum {
			t.Errorf("another %s has the same digest", name)
		}
	}
	if got, err := read(t, dir).Digest(t.Context(), "more", func(int64) {}); err != nil || got == sum {
		t.Errorf("with more: %s %v", got, err)
	}
}

func TestTreeThatChangesIsNoticed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(dir string) error{
		"longer": func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("22"), 0o644) },
		"gone":   func(dir string) error { return os.Remove(filepath.Join(dir, "a")) },
		"later": func(dir string) error {
			return os.Chtimes(filepath.Join(dir, "a"), time.Time{}, time.Unix(1, 0))
		},
	} {
		dir := newDir(t, map[string]string{"a": "1"})
		tree := read(t, dir)
		must(t, tree.Unchanged())
		must(t, change(dir))
		if err := tree.Unchanged(); !errors.Is(err, sourcetree.ErrChanged) || !strings.HasPrefix(err.Error(), "a ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLinksThatLeadOutAreNamed(t *testing.T) {
	t.Parallel()
	dir := newDir(t, map[string]string{"a": "", "b/c": "", ".clignore": "ignored", "ignored": ""})
	for name, target := range map[string]string{"ok": "b", "b/ok": "../a", "abs": filepath.Join(dir, "a"), "out": "../x", "none": "nosuch", "left": "ignored"} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	tree := read(t, dir)
	if diff := cmp.Diff([]string{"abs", "left", "none", "out"}, tree.StrayLinks()); diff != "" {
		t.Error(diff)
	}
	if target, ok := tree.Resolve("ok"); target != "b" || !ok {
		t.Error(target, ok)
	}
}
