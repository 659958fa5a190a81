package sourcetree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab/provenance"
	"github.com/cl-slurm/cl-slurm/internal/command"
)

// DifferenceName names the file with the uncommitted difference in an upload. No tree has a file of this name.
const DifferenceName = provenance.DifferenceName

// maxDifference bounds the recorded difference, in bytes.
const maxDifference = 16 << 20

// Commit is the state of a repository.
type Commit struct {
	// ID is the commit in hexadecimal digits.
	ID string
	// Branch is empty for a detached HEAD.
	Branch string
	// Dirty is set if files of the tree are not those of the commit.
	Dirty bool
	// Difference is the difference between the commit and the tree in files that git tracks. New files are in the tree.
	Difference string
	// Failure is the reason for a difference that is not recorded, or empty.
	Failure string
}

// inRepository reports whether a directory lies in a repository.
func inRepository(dir string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false
		}
		dir = up
	}
}

// errNoRepository means that a directory's .git is no repository.
var errNoRepository = errors.New("not a git repository")

// errNoGit means a machine without a git program.
var errNoGit = errors.New("there is no git program")

// git runs git in a directory and returns its output, which fails beyond the given bytes; 0 is no bound.
func git(ctx context.Context, dir string, most int, args ...string) ([]byte, error) {
	if _, err := command.Find("git"); err != nil {
		return nil, errNoGit
	}
	out := bounded{most: most}
	err := command.Command{
		Args: append([]string{"git", "-C", dir, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull, "--literal-pathspecs", "--no-pager"}, args...), Env: environment(), Stdout: &out,
	}.Run(ctx)
	switch {
	case out.over:
		return nil, errTooLarge
	case err != nil:
		return nil, gitError(err)
	}
	return out.text, nil
}

// bounded keeps a program's output, and refuses what exceeds a bound, which ends the program.
type bounded struct {
	text []byte
	most int
	over bool
}

// Write keeps output.
func (b *bounded) Write(p []byte) (int, error) {
	if b.over = b.over || b.most > 0 && len(b.text)+len(p) > b.most; b.over {
		return 0, errTooLarge
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

var errTooLarge = errors.New("it is larger than 16 MiB")

// gitError has the first fatal line that git wrote.
func gitError(err error) error {
	failure, ok := errors.AsType[*command.Error](err)
	if !ok {
		return err
	}
	for line := range strings.Lines(failure.Stderr) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "fatal: "); ok {
			if strings.HasPrefix(text, "not a git repository") {
				return errNoRepository
			}
			return fmt.Errorf("git: %s", text)
		}
	}
	return err
}

// environment is this process's, without the variables of a hook, which name another repository, and with git in English.
func environment() []string {
	own := []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(own, name)
	})
	return append(env, "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0")
}

// gitFiles returns the files in a directory that git tracks or does not ignore, and the directories above them. A
// repository in the directory, a submodule or not, is listed in the same way.
func gitFiles(ctx context.Context, dir string) (map[string]bool, error) {
	listed := map[string]bool{}
	if err := addGitFiles(ctx, listed, dir, ""); err != nil {
		return nil, err
	}
	return listed, nil
}

func addGitFiles(ctx context.Context, listed map[string]bool, dir, prefix string) error {
	out, err := git(ctx, filepath.Join(dir, filepath.FromSlash(prefix)), 0, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name == "" {
			continue
		}
		below := path.Join(prefix, name)
		at := filepath.Join(dir, filepath.FromSlash(below))
		if info, err := os.Lstat(at); err == nil && info.IsDir() {
			if _, err := os.Lstat(filepath.Join(at, ".git")); err != nil {
				continue // a submodule that is not there
			}
			if err := addGitFiles(ctx, listed, dir, below); err != nil {
				return fmt.Errorf("%s: %v", below, err) //nolint:errorlint // the directory itself is a repository
			}
			continue
		}
		for p := below; p != "." && !listed[p]; p = path.Dir(p) {
			listed[p] = true
		}
	}
	return nil
}

// readCommit returns the state of the repository of a tree; nil if it has no commit.
func readCommit(ctx context.Context, t *Tree) *Commit {
	id, err := git(ctx, t.Dir, 0, "rev-parse", "--verify", "-q", "HEAD^{commit}")
	if err != nil {
		return nil // there is none yet
	}
	c := &Commit{ID: strings.TrimSpace(string(id))}
	if branch, err := git(ctx, t.Dir, 0, "symbolic-ref", "-q", "--short", "HEAD"); err == nil {
		c.Branch = strings.TrimSpace(string(branch))
	}
	changed, err := gitNames(ctx, t, "diff", "--name-only", "-z", "--relative", "--no-renames", "HEAD", "--", ".")
	if err != nil {
		c.Dirty, c.Failure = true, err.Error()
		return c
	}
	changed = shown(t, changed)
	others, err := gitNames(ctx, t, "ls-files", "-z", "--others", "--exclude-standard")
	c.Dirty = err != nil || len(changed) > 0 || slices.ContainsFunc(others, t.Has)
	if err := c.readDifference(ctx, t, changed); err != nil {
		c.Failure = err.Error()
	}
	return c
}

// shown are the changed files of which the difference may go out: not those that .clignore names, nor those that are there and
// left out of the tree, as a private directory is.
func shown(t *Tree, changed []string) []string {
	var hidden []string
	changed = slices.DeleteFunc(changed, func(name string) bool {
		out := t.ignores(name)
		if !out && !t.Has(name) {
			_, err := os.Lstat(filepath.Join(t.Dir, filepath.FromSlash(name)))
			out = err == nil
		}
		if out {
			hidden = append(hidden, name)
		}
		return out
	})
	return slices.DeleteFunc(changed, func(name string) bool { // to git it also names the files below a directory that took its place
		return slices.ContainsFunc(hidden, func(h string) bool { return strings.HasPrefix(h, name+"/") })
	})
}

func gitNames(ctx context.Context, t *Tree, args ...string) ([]string, error) {
	out, err := git(ctx, t.Dir, 0, args...)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 }), nil
}

// readDifference reads the difference in these files, some at a time: an argument list is bounded.
func (c *Commit) readDifference(ctx context.Context, t *Tree, changed []string) error {
	var all strings.Builder
	for names := range slices.Chunk(changed, 200) {
		args := append([]string{
			"diff", "--relative", "--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short",
			"--no-renames", "--src-prefix=a/", "--dst-prefix=b/", "HEAD", "--",
		}, names...) // whatever the user's configuration says
		out, err := git(ctx, t.Dir, max(1, maxDifference-all.Len()), args...)
		if err != nil {
			return err
		}
		all.Write(out)
	}
	c.Difference = all.String()
	return nil
}
