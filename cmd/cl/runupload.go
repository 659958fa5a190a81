package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/cmd/internal/sourcetree"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/provenance"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const runUploadHelp = `
The files of a directory of this machine, at the top of the run's directory:

  cl run --upload . 'python train.py'
  cl run --upload src --each lr=0.1,0.01 'python train.py --lr {lr}'

In a repository of git they are the files that git tracks and the new ones that
.gitignore does not name; .clignore names more to leave out, in the same format.
They become one bundle, whose entries are dependencies of the run, so the run
cannot write into them. The same files are sent once: later runs use your bundle
again. The run gets the tags git-commit=…, git-branch=… and, if there is something
uncommitted, git-dirty; the bundle has the difference in ` + sourcetree.DifferenceName + `.`

// The tags of a bundle with an uploaded directory, and of runs in it.
const (
	uploadTag = provenance.UploadTag
	commitTag = provenance.CommitTag
	branchTag = provenance.BranchTag
	dirtyTag  = provenance.DirtyTag
)

// Bounds of an uploaded directory. More than the surprising size is announced. Each entry at the top is a dependency, and so
// a mount in the run's container.
const (
	surprisingBytes = 1 << 30
	surprisingFiles = 100_000
	maxTop          = 1000
)

// source is a directory whose files a run gets (cl run --upload).
type source struct {
	*cli
	dir  string // as given
	tree *sourcetree.Tree
}

// readSource reads a directory; nil for an empty name. Nothing is sent.
func (c *cli) readSource(ctx context.Context, dir string) (*source, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // no directory is asked for
	}
	if rest, ok := strings.CutPrefix(dir, "~"); ok && (rest == "" || rest[0] == '/') {
		dir = c.Getenv("HOME") + rest // quoted, so that no shell has replaced it
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, refusef("--upload %s: %v", dir, errors.Unwrap(err))
	case !info.IsDir():
		return nil, refusef("--upload needs a directory, and %s is none; cl upload %s makes a bundle of it.", dir, dir)
	}
	x, err := (&upload{cli: c}).exclusion([]tarstream.Input{{Name: ".", Path: dir}})
	if err != nil {
		return nil, err
	}
	tree, err := sourcetree.Read(ctx, dir, x.isPrivate)
	if err != nil {
		return nil, unlessEnded(ctx, err)
	}
	s := &source{c, dir, tree}
	return s, s.check()
}

// check refuses a directory that no run can have.
func (s *source) check() error {
	if len(s.tree.Files) == 0 {
		return refusef("--upload %s: there is no file to send; .gitignore and .clignore leave files out.", s.dir)
	}
	top := s.tree.Top()
	if len(top) > maxTop {
		return refusef("--upload %s: it has %d entries at its top, and a run may have %d of them: put files into directories, or name some in .clignore.", s.dir, len(top), maxTop)
	}
	for _, name := range top {
		switch {
		case name == "stdout" || name == "stderr":
			return refusef("--upload %s: the run writes its own %s: rename yours, or name it in .clignore.", s.dir, name)
		case !utf8.ValidString(name) || strings.ContainsAny(name, "\n"):
			return refusef("--upload %s: a run cannot have an entry called %q: rename it, or name it in .clignore.", s.dir, name)
		}
	}
	return nil
}

// checkKeys refuses dependencies whose keys are those of entries of the directory.
func (s *source) checkKeys(deps []codalab.Input) error {
	if s == nil {
		return nil
	}
	for _, d := range deps {
		first, _, _ := strings.Cut(path.Clean(d.Key), "/")
		switch {
		case first == ".":
			return refusef("A dependency with the key . fills the run's directory, as --upload does: give it another key.")
		case slices.Contains(s.tree.Top(), first):
			return refusef("The dependency %s and the entry %s of --upload %s have the same name: give the dependency another key, or name the entry in .clignore.", d.Key, first, s.dir)
		}
	}
	return nil
}

// place is an uploaded directory at the server.
type place struct {
	uuid string
	deps []codalab.Dependency
	tags []string // for runs
}

// sent returns the bundle with the directory's files on a server: the user's own one with the same files, or a new one. A
// nil source has none.
func (s *source) sent(ctx context.Context, at *workspace, worksheet string) (place, error) {
	if s == nil {
		return place{}, nil
	}
	s.announce()
	digest, err := s.digest(ctx)
	if err != nil {
		return place{}, err
	}
	uuid, err := s.find(ctx, at, digest)
	if err == nil && uuid == "" {
		uuid, err = s.send(ctx, at, worksheet, digest)
	}
	return place{uuid, s.dependencies(uuid), s.tags()}, err
}

// announce names entries that are left out, and warns of a surprising size.
func (s *source) announce() {
	t := s.tree
	leftOut(t.Pipes).warn(s.cli)
	if t.GitFailure != "" {
		s.warn("cl: .gitignore is read without git, and no commit is recorded: %s", t.GitFailure)
	}
	if t.Commit != nil && t.Commit.Failure != "" {
		s.warn("cl: The uncommitted difference is not recorded: %s", t.Commit.Failure)
	}
	if stray := t.StrayLinks(); len(stray) > 0 {
		s.warn("cl: Symbolic links to files that are not sent: %s", someOf(stray))
	}
	if bytes := t.Bytes(); bytes > surprisingBytes || len(t.Files) > surprisingFiles {
		s.warn("cl: --upload %s is %s in %s, the largest in %s; .clignore leaves files out, and Ctrl-C ends this.",
			s.dir, codalab.FormatSize(bytes), termtext.Count(len(t.Files), "file"), s.largest())
	}
}

// someOf is a list of paths, of which it shows a few.
func someOf(paths []string) string {
	const most = 3
	if len(paths) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(paths[:most], ", "), len(paths)-most)
	}
	return strings.Join(paths, ", ")
}

// largest names the largest entries at the top.
func (s *source) largest() string {
	sizes := map[string]int64{}
	for _, f := range s.tree.Files {
		name, _, _ := strings.Cut(f.Path, "/")
		sizes[name] += f.Info.Size()
	}
	names := s.tree.Top()
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(sizes[b], sizes[a]) })
	for i, name := range names {
		names[i] = name + " (" + codalab.FormatSize(sizes[name]) + ")"
	}
	return strings.Join(names[:min(3, len(names))], ", ")
}

func (s *source) difference() string {
	if s.tree.Commit == nil {
		return ""
	}
	return s.tree.Commit.Difference
}

func (s *source) digest(ctx context.Context) (string, error) {
	p := s.progress("Read", s.tree.Bytes())
	defer p.end()
	digest, err := s.tree.Digest(ctx, s.difference(), p.add)
	if err != nil {
		return "", unlessEnded(ctx, err)
	}
	return digest, nil
}

// find returns the user's newest ready bundle with these files; empty if there is none.
func (s *source) find(ctx context.Context, at *workspace, digest string) (string, error) {
	me, err := at.User(ctx)
	if err != nil {
		return "", err
	}
	found, _, err := at.SearchBundles(ctx, "", []string{"tags=" + uploadTag + digest, "state=ready", "owner_id=" + me.ID, "id=.sort-", ".limit=10"})
	if err != nil {
		return "", err
	}
	for _, b := range found { // the server is not trusted to have chosen well
		if b.Type == codalab.TypeDataset && b.State == codalab.StateReady && b.OwnerID == me.ID && slices.Contains(b.Metadata.Strings("tags"), uploadTag+digest) {
			if _, err := at.ContentsInfo(ctx, codalab.Target{BundleUUID: b.UUID}, 0); codalab.IsStatus(err, http.StatusNotFound) {
				continue // its contents were removed
			} else if err != nil {
				return "", err
			}
			s.printOnTerminal("The files of %s are on the server already (%s)", s.dir, b.UUID)
			return b.UUID, nil
		}
	}
	return "", nil
}

// send makes the bundle.
func (s *source) send(ctx context.Context, at *workspace, worksheet, digest string) (string, error) {
	u := &upload{cli: s.cli, metadata: defaultMetadata(codalab.TypeDataset)}
	u.metadata["name"] = defaultName(codalab.TypeDataset, filepath.Base(s.tree.Dir))
	u.metadata["tags"] = append([]string{uploadTag + digest}, s.tags()...)
	inputs := []tarstream.Input{{Name: ".", Path: s.tree.Dir}}
	if s.difference() != "" {
		patch, remove, err := temporary(s.difference())
		if err != nil {
			return "", err
		}
		defer remove()
		inputs = append(inputs, tarstream.Input{Name: sourcetree.DifferenceName, Path: patch})
	}
	size := s.tree.Bytes() + int64(len(s.difference()))
	if err := u.checkQuota(ctx, at, size); err != nil {
		return "", err
	}
	p := &payload{name: u.metadata.String("name") + ".tar.gz", unpack: true, size: size, need: size, files: int64(len(s.tree.Files) + len(inputs) - 1)}
	p.open = func(ctx context.Context, progress *progress) (io.ReadCloser, error) {
		return piped(func(w io.Writer) error { return s.pack(ctx, w, inputs, progress) }), nil
	}
	return u.send(ctx, at, p, client.NewBundle{Worksheet: worksheet, Type: codalab.TypeDataset, Metadata: u.metadata, WaitForUpload: true})
}

// pack writes the archive. It breaks off if files have changed since their digest was taken, as the bundle would have other
// files than its tag says.
func (s *source) pack(ctx context.Context, w io.Writer, inputs []tarstream.Input, p *progress) error {
	left := map[string]bool{sourcetree.DifferenceName: true}
	for _, f := range s.tree.Files {
		left[f.Path] = true
	}
	err := tarstream.PackPaths(ctx, w, inputs, tarstream.PathOptions{PackOptions: tarstream.PackOptions{
		Exclude: func(below string, d fs.DirEntry) bool {
			if below == sourcetree.DifferenceName { // the directory may have a file of this name, and ours has another one
				return d.Name() == below
			}
			return !s.tree.Has(below)
		},
		Read: p.add,
		Entry: func(below string) {
			if left[below] {
				p.addFile()
			}
		},
	}})
	if err == nil {
		err = s.tree.Unchanged()
	}
	if err != nil {
		return unlessEnded(ctx, fmt.Errorf("--upload %s: %w; run the command again", s.dir, err))
	}
	return nil
}

// temporary makes a file with a text.
func temporary(text string) (file string, remove func(), err error) {
	f, err := os.CreateTemp("", "cl-difference-")
	if err != nil {
		return "", nil, refusef("%v", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", nil, refusef("%v", err)
	}
	return f.Name(), func() { _ = os.Remove(f.Name()) }, nil
}

// dependencies are those of a run on the entries at the top of the directory. A link there is the entry that it leads to.
func (s *source) dependencies(uuid string) []codalab.Dependency {
	links := map[string]bool{}
	for _, f := range s.tree.Files {
		links[f.Path] = f.Link != ""
	}
	var deps []codalab.Dependency
	for _, name := range s.tree.Top() {
		target := name
		if links[name] {
			resolved, ok := s.tree.Resolve(name)
			if !ok {
				continue // it was announced
			}
			target = resolved
		}
		deps = append(deps, codalab.Dependency{ParentUUID: uuid, ParentPath: target, ChildPath: name})
	}
	return deps
}

// tags tell the state of the repository.
func (s *source) tags() []string {
	commit := s.tree.Commit
	if commit == nil {
		return nil
	}
	tags := []string{commitTag + commit.ID}
	if commit.Branch != "" {
		tags = append(tags, branchTag+plainTag(commit.Branch))
	}
	if commit.Dirty {
		tags = append(tags, dirtyTag)
	}
	return tags
}

// plainTag escapes characters that tags, searches or a server of CodaLab's own cannot have.
func plainTag(text string) string {
	var plain strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == ',' || c == '%' {
			fmt.Fprintf(&plain, "%%%02X", c)
		} else {
			plain.WriteByte(c)
		}
	}
	return plain.String()
}

// withTags adds the tags of an uploaded directory to a run's, in place of those of another one.
func withTags(m codalab.Metadata, tags []string) {
	if tags == nil {
		return
	}
	old := slices.DeleteFunc(slices.Clone(m.Strings("tags")), func(tag string) bool {
		return tag == dirtyTag || strings.HasPrefix(tag, commitTag) || strings.HasPrefix(tag, branchTag)
	})
	m["tags"] = append(old, tags...)
}

// withoutUploads returns the dependencies that are on no uploaded directory. A parent that is gone or hidden is none.
func (w *workspace) withoutUploads(ctx context.Context, deps []codalab.Dependency) []codalab.Dependency {
	uploads := map[string]bool{}
	for _, d := range deps {
		if _, known := uploads[d.ParentUUID]; !known {
			parent, err := w.Bundle(ctx, d.ParentUUID)
			uploads[d.ParentUUID] = err == nil && slices.ContainsFunc(parent.Metadata.Strings("tags"), func(tag string) bool {
				return strings.HasPrefix(tag, uploadTag+"sha256:")
			})
		}
	}
	return slices.DeleteFunc(slices.Clone(deps), func(d codalab.Dependency) bool { return uploads[d.ParentUUID] })
}

// keysOf returns the keys of dependencies.
func keysOf(deps []codalab.Dependency) []codalab.Input {
	var keys []codalab.Input
	for _, d := range deps {
		keys = append(keys, codalab.Input{Key: d.ChildPath})
	}
	return keys
}
