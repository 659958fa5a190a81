package sourcetree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/cmd/internal/ignorefile"
	"github.com/cl-slurm/cl-slurm/internal/interruptible"
)

// Tree is the files of a directory.
type Tree struct {
	// Dir is the directory, absolute and without links.
	Dir string
	// Files are the regular files and links, in the order of their paths.
	Files []File
	// Pipes are the paths of pipes, sockets and devices, which are left out.
	Pipes []string
	// Commit is nil outside of a repository with a commit.
	Commit *Commit
	// GitFailure tells why the files of a repository were chosen without git: there is no git program.
	GitFailure string

	dirs map[string]bool // that have files
	// rules are those that hold in each directory that was read.
	rules map[string][]ignoring
}

// File is one of the files.
type File struct {
	// Path is slash-separated, below the directory.
	Path string
	Info fs.FileInfo
	// Link is the target of a symbolic link.
	Link string
}

// ErrChanged means a file that was changed or removed after the tree was read.
var ErrChanged = errors.New("was changed meanwhile")

// Read reads the tree of a directory. private reports whether a directory is left out for its owner's sake.
func Read(ctx context.Context, dir string, private func(fs.FileInfo) bool) (*Tree, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	t := &Tree{Dir: dir, dirs: map[string]bool{}, rules: map[string][]ignoring{}}
	w := walk{ctx: ctx, tree: t, private: private}
	if inRepository(dir) {
		w.listed, err = gitFiles(ctx, dir)
	}
	switch {
	case errors.Is(err, errNoGit):
		t.GitFailure = err.Error()
	case err != nil && !errors.Is(err, errNoRepository):
		// Without git's own list, files would be sent that it ignores for reasons outside of the directory.
		return nil, fmt.Errorf("git cannot list the files of %s: %w", dir, err)
	}
	if err := w.directory("", nil); err != nil {
		return nil, err
	}
	for _, f := range t.Files {
		for d := path.Dir(f.Path); !t.dirs[d]; d = path.Dir(d) {
			t.dirs[d] = true
		}
	}
	if w.listed != nil {
		t.Commit = readCommit(ctx, t)
	}
	return t, ctx.Err()
}

// Has reports whether the tree has a file, or a directory with files, at a path.
func (t *Tree) Has(p string) bool {
	_, found := slices.BinarySearchFunc(t.Files, p, func(f File, p string) int { return strings.Compare(f.Path, p) })
	return found || t.dirs[p]
}

// ignores reports whether .clignore leaves out a path that git tracks. There need be no such file any more.
func (t *Tree) ignores(name string) bool {
	rules := t.rules[""]
	for i := 0; i < len(name); i++ {
		if name[i] != '/' {
			continue
		}
		if ignored(rules, name[:i], true) {
			return true
		}
		if own, read := t.rules[name[:i]]; read {
			rules = own
		}
	}
	return ignored(rules, name, false)
}

// Top returns the names of the entries at the top, in their order.
func (t *Tree) Top() []string {
	var names []string
	for _, f := range t.Files {
		name, _, _ := strings.Cut(f.Path, "/")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Bytes returns the sum of the files' sizes.
func (t *Tree) Bytes() int64 {
	var sum int64
	for _, f := range t.Files {
		if f.Info.Mode().IsRegular() {
			sum += f.Info.Size()
		}
	}
	return sum
}

// Resolve returns the path below the directory that a link leads to, if the tree has it.
func (t *Tree) Resolve(link string) (string, bool) {
	target, err := filepath.EvalSymlinks(filepath.Join(t.Dir, filepath.FromSlash(link)))
	if err != nil {
		return "", false
	}
	below, err := filepath.Rel(t.Dir, target)
	below = filepath.ToSlash(below)
	return below, err == nil && below != "." && t.Has(below) // a run has no entry for the directory itself
}

// StrayLinks returns the links that lead to nothing in the tree.
func (t *Tree) StrayLinks() []string {
	var stray []string
	for _, f := range t.Files {
		if f.Link == "" {
			continue
		}
		if _, ok := t.Resolve(f.Path); !ok || filepath.IsAbs(f.Link) {
			stray = append(stray, f.Path)
		}
	}
	return stray
}

// Digest reads the files and returns their digest, sha256:…. more is the text of a further file that belongs to them. read
// is called for n more bytes.
func (t *Tree) Digest(ctx context.Context, more string, read func(n int64)) (string, error) {
	all := sha256.New()
	for _, f := range t.Files {
		kind, content := "file", ""
		switch {
		case f.Link != "":
			kind, content = "link", f.Link
		default:
			if f.Info.Mode()&0o100 != 0 {
				kind = "program"
			}
			sum, err := t.sum(ctx, f, read)
			if err != nil {
				return "", err
			}
			content = sum
		}
		all.Write(fmt.Appendf(nil, "%s %q %q\n", kind, f.Path, content))
	}
	all.Write(fmt.Appendf(nil, "more %q\n", more))
	return "sha256:" + hex.EncodeToString(all.Sum(nil)), nil
}

func (t *Tree) sum(ctx context.Context, f File, read func(int64)) (string, error) {
	in, err := os.Open(t.path(f))
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }() // only read
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(sum, counter(read)), interruptible.Reader(ctx, in))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", f.Path, err)
	case n != f.Info.Size():
		return "", fmt.Errorf("%s %w", f.Path, ErrChanged)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

type counter func(int64)

// Write counts bytes.
func (c counter) Write(b []byte) (int, error) {
	c(int64(len(b)))
	return len(b), nil
}

func (t *Tree) path(f File) string { return filepath.Join(t.Dir, filepath.FromSlash(f.Path)) }

// Unchanged fails with ErrChanged if the size, the time or the mode of a file has changed since the tree was read.
func (t *Tree) Unchanged() error {
	for _, f := range t.Files {
		now, err := os.Lstat(t.path(f))
		if err != nil || now.Mode() != f.Info.Mode() || now.Size() != f.Info.Size() || !now.ModTime().Equal(f.Info.ModTime()) {
			return fmt.Errorf("%s %w", f.Path, ErrChanged)
		}
	}
	return nil
}

// walk reads a tree.
type walk struct {
	ctx     context.Context //nolint:containedctx // of one call
	tree    *Tree
	private func(fs.FileInfo) bool
	listed  map[string]bool // the files that git names, and the directories above them; nil without git
}

// ignoring are the rules of a file of patterns.
type ignoring struct {
	dir   string // "" for the top, else with a slash at its end
	file  string
	rules ignorefile.Rules
}

// directory adds the files of a directory; above are the rules of those above it.
func (w *walk) directory(below string, above []ignoring) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	dir := filepath.Join(w.tree.Dir, filepath.FromSlash(below))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	prefix := ""
	if below != "" {
		prefix = below + "/"
	}
	own, err := w.rules(dir, prefix)
	if err != nil {
		return err
	}
	rules := append(slices.Clip(above), own...)
	w.tree.rules[below] = rules
	for _, e := range entries {
		if err := w.entry(prefix+e.Name(), e, rules); err != nil {
			return err
		}
	}
	if below == "" {
		slices.SortFunc(w.tree.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	}
	return nil
}

func (w *walk) entry(below string, e fs.DirEntry, rules []ignoring) error {
	switch {
	case e.Name() == ".git", below == DifferenceName:
		return nil
	case w.listed != nil && !w.listed[below] && !isPipe(e.Type()):
		return nil
	case ignored(rules, below, e.IsDir()):
		return nil
	}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f := File{Path: below, Info: info}
	switch kind := info.Mode().Type(); {
	case kind.IsDir() && w.private(info):
		return nil
	case kind.IsDir():
		return w.directory(below, rules)
	case kind == fs.ModeSymlink:
		if f.Link, err = os.Readlink(w.tree.path(f)); err != nil {
			return err
		}
	case !kind.IsRegular():
		w.tree.Pipes = append(w.tree.Pipes, below)
		return nil
	}
	w.tree.Files = append(w.tree.Files, f)
	return nil
}

// isPipe reports whether an entry is a pipe, a socket or a device. git names none.
func isPipe(kind fs.FileMode) bool {
	return !kind.IsRegular() && !kind.IsDir() && kind != fs.ModeSymlink
}

// rules reads the patterns of a directory. git has read the files .gitignore already.
func (w *walk) rules(dir, prefix string) ([]ignoring, error) {
	var all []ignoring
	for _, file := range []string{".gitignore", ".clignore"} {
		if file == ".gitignore" && w.listed != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, ignoring{prefix, file, ignorefile.Parse(string(text))})
	}
	return all, nil
}

// ignored reports whether an entry of a directory that is not ignored is ignored itself, by the files .gitignore or by the
// files .clignore. Of those of one name the deepest one with a matching pattern decides.
func ignored(rules []ignoring, below string, isDir bool) bool {
	decided := map[string]bool{}
	for _, r := range slices.Backward(rules) {
		if decided[r.file] {
			continue
		}
		switch r.rules.Of(strings.TrimPrefix(below, r.dir), isDir) {
		case ignorefile.Ignored:
			return true
		case ignorefile.Kept:
			decided[r.file] = true
		case ignorefile.Silent: // a file above may decide
		}
	}
	return false
}
