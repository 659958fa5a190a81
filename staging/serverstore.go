package staging

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
)

// ServerStore is the server's own store, on a disk that the server, this bridge
// and the nodes share (shared_file_system in the check-in). The server says in
// a run message where contents lie and where results go; nothing is fetched or
// sent (codalab/worker/worker_run_state.py: shared_file_system). What is not
// below Dir, or not in a directory that is named for the bundle, is refused:
// a server is not to reach other files of this account through its bridge.
type ServerStore struct {
	// Dir is the store's directory, under the path that the server says.
	Dir string
}

// dependency finds a dependency where the server has it. found is false where
// the server does not say so, or says another place: that of a link.
func (s *ServerStore) dependency(d codalab.RunDependency) (dep spool.Dependency, found bool, err error) {
	if d.Location == nil || !under(path.Clean(*d.Location), s.Dir) {
		return dep, false, nil
	}
	what := "dependency " + d.ChildPath + " (" + d.ParentUUID + ")"
	whole, err := s.locate(*d.Location, d.ParentUUID)
	if err != nil {
		return dep, true, &Error{What: what, Err: err, Retry: transient(err)}
	}
	source, err := within(whole, d.ParentPath)
	if err != nil {
		return dep, true, &Error{What: what, Err: err, Retry: transient(err)}
	}
	return spool.Dependency{ChildPath: d.ChildPath, Source: source, InPlace: true}, true, nil
}

// listingIn is how the kept.txt in a bundle's place begins; empty if there is
// none that can be read.
func (s *ServerStore) listingIn(location string) string {
	root, err := os.OpenRoot(location)
	if err != nil {
		return ""
	}
	defer func() { _ = root.Close() }() // only read
	f, err := root.OpenFile(listingName, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()                      // as above
	text, _ := io.ReadAll(io.LimitReader(f, titleAtMost)) // what cannot be read is none
	return string(text)
}

// locate returns the path of a bundle's place without symbolic links. Above the
// directory that is named for the bundle the server may have made some, for
// its partitions; in it nobody may.
func (s *ServerStore) locate(location, uuid string) (string, error) {
	location = path.Clean(location)
	below, err := filepath.Rel(s.Dir, location)
	if err != nil || !filepath.IsLocal(below) {
		return "", refusal("the server says it is at " + location + ", which is not in its store " + s.Dir)
	}
	at := s.Dir
	for rest := below; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		if !strings.HasPrefix(part, uuid) {
			at = path.Join(at, part)
			continue
		}
		if at, err = follow(at); err != nil {
			return "", fmt.Errorf("the server says it is at %s: %w", location, err)
		}
		want := path.Join(at, part, rest)
		got, err := follow(want)
		switch {
		case err != nil:
			return "", fmt.Errorf("the server says it is at %s: %w", location, err)
		case got != want:
			return "", refusal("there is a symbolic link in the path " + want)
		}
		return want, nil
	}
	return "", refusal("the server says it is at " + location + ", which is not named for it")
}

// markSuffix ends the name of the mark beside a run directory that says where
// its results are moved to.
const markSuffix = ".moved"

// moveMark is what a mark says. It is written before a move and after it.
type moveMark struct {
	// At is the place that the results are moved to.
	At string `json:"at"`
	// Moved is set when they are all there: what is still in the run directory
	// is only the rest of what was copied.
	Moved bool `json:"moved"`
	// Empty is set where there is none.
	Empty bool `json:"empty"`
}

// readMark reads the mark of a run directory. Where there is none the error is
// fs.ErrNotExist.
func readMark(dir string) (m moveMark, err error) {
	text, err := os.ReadFile(dir + markSuffix)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read where it was moved: %w", err)
	}
	return m, nil
}

func (m moveMark) write(dir string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("note where it is moved: %w", err)
	}
	return atomicfile.Write(dir+markSuffix, text, 0o600)
}

// Move moves what a run left in its directory to where the server wants it,
// without the links to its dependencies and without what its exclude_patterns
// name. It may be asked for the same again at any time: a mark beside the
// directory says where its move has begun to, and a directory that is gone then
// has been moved there.
func (s *ServerStore) Move(ctx context.Context, run codalab.RunBundle, dir string) error {
	err := s.move(ctx, run, dir)
	var known *Error
	if err == nil || errors.As(err, &known) || ctx.Err() != nil {
		return err
	}
	// Anything else may be put right; results are not to be had again.
	final := errors.Is(err, tarstream.ErrUnsafe) || errors.Is(err, tarstream.ErrTooLarge)
	return &Error{What: "results", Err: err, Retry: !final}
}

func (s *ServerStore) move(ctx context.Context, run codalab.RunBundle, dir string) error {
	at, err := s.locate(*run.Location, run.UUID)
	if err != nil {
		return err
	}
	earlier, err := readMark(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if earlier.Moved {
		if err := filetree.Remove(dir); err != nil {
			return err
		}
	}
	root, err := openClosed(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if earlier.At != "" {
			return moveOn(earlier, at, dir)
		}
		return &Error{What: "results", Err: fmt.Errorf("the working directory %s is gone", dir)}
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only used for what is below
	place, err := os.Lstat(at)
	if err != nil {
		return err
	}
	if err := (clearing{ctx: ctx, root: root, keep: exclusionOf(run)}).directory("."); err != nil {
		return err
	}
	// The server is to read what the bundle's account wrote, where that is
	// another: as it made the place.
	if err := root.Chmod(".", place.Mode().Perm()|0o700); err != nil {
		return err
	}
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	if earlier.At != at { // else what stands there may be an earlier try's copy
		if held, err := namesIn(at); err != nil || len(held) > 0 {
			return fmt.Errorf("move to %s: %w", at, cmp.Or[error](err, syscall.ENOTEMPTY))
		}
	}
	mark := moveMark{At: at, Empty: len(names) == 0}
	if err := mark.write(dir); err != nil {
		return err
	}
	err = syscall.Rename(dir, at)
	if errors.Is(err, syscall.EXDEV) {
		return copyOver(ctx, root, dir, mark, earlier.At == at)
	}
	if errors.Is(err, fs.ErrNotExist) { // a reply may have been lost
		if _, gone := os.Lstat(dir); errors.Is(gone, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("move to %s: %w", at, err)
	}
	return mark.moved(dir)
}

// moved notes that all is in its place.
func (m moveMark) moved(dir string) error {
	if err := atomicfile.SyncDir(path.Dir(m.At)); err != nil {
		return err
	}
	m.Moved = true
	return m.write(dir)
}

// openMoved opens the results of a run directory where a mark says that they are.
// The place was the server's to say when the mark was made; since then it must
// not have become one to which a symbolic link leads.
func openMoved(m moveMark) (*os.Root, error) {
	at, err := follow(m.At)
	if err == nil && at != m.At {
		err = refusal("there is a symbolic link in the path " + m.At)
	}
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(at)
}

// moveOn moves results that were moved to one place on to another, unless it is
// the same: the server has given the bundle to the bridge once more. If there is
// nothing at the first place, what stands at the second is an earlier try's. Only
// results that are at neither are lost: the server has made the place anew.
func moveOn(m moveMark, to, dir string) error {
	from := m.At
	if from != to {
		err := syscall.Rename(from, to)
		if errors.Is(err, fs.ErrNotExist) {
			if _, gone := os.Lstat(from); errors.Is(gone, fs.ErrNotExist) {
				err = nil
			}
		}
		if err != nil {
			return &Error{What: "results", Err: fmt.Errorf("they were moved to %s, and cannot be moved on to %s: %w", from, to, err), Retry: true}
		}
	}
	names, err := namesIn(to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || len(names) == 0 && !m.Empty {
		return &Error{What: "results", Err: fmt.Errorf("they were moved to %s, and are not there any more, nor at %s", from, to)}
	}
	m.At = to
	return m.moved(dir)
}

// openClosed opens a directory that a command may have closed to its owner.
func openClosed(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(dir, 0o700) == nil { //nolint:gosec // a directory needs x
		root, err = os.OpenRoot(dir)
	}
	return root, err
}

// copyOver is a move to another file system: the copy is made beside its place,
// flushed, and takes that by one rename, before what was copied goes. The place
// is an empty directory; when it is not, and there was an earlier try, that one's
// copy has taken it.
func copyOver(ctx context.Context, root *os.Root, dir string, mark moveMark, again bool) error {
	at := mark.At
	tmp := path.Join(path.Dir(at), "."+path.Base(at)+".moving")
	if err := filetree.Remove(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	err := copyTree(ctx, root, tmp)
	if err == nil {
		err = atomicfile.SyncTree(tmp)
	}
	if err == nil {
		err = syscall.Rename(tmp, at)
	}
	if again && (errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)) {
		err = filetree.Remove(tmp)
	}
	if errors.Is(err, fs.ErrNotExist) { // a reply may have been lost
		if _, gone := os.Lstat(tmp); errors.Is(gone, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = mark.moved(dir)
	}
	if err != nil {
		_ = filetree.Remove(tmp) // else the next try does, if there is one
		return fmt.Errorf("copy to %s: %w", at, err)
	}
	return filetree.Remove(dir)
}

func copyTree(ctx context.Context, from *os.Root, to string) error {
	info, err := from.Stat(".")
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := tarstream.Pack(ctx, w, from, ".", tarstream.PackOptions{})
		return errors.Join(err, w.CloseWithError(err))
	})
	g.Go(func() error {
		_, err := tarstream.Unpack(ctx, r, root, tarstream.Limits{})
		return errors.Join(err, r.CloseWithError(err))
	})
	return errors.Join(g.Wait(), root.Chmod(".", info.Mode().Perm()), root.Close())
}

// clearing makes of a run's directory what its results are.
type clearing struct {
	ctx  context.Context //nolint:containedctx // lives as long as one call of Move
	root *os.Root
	keep exclusion
}

// directory removes what is no result, and opens what a command that was root
// where it ran has closed to its owner.
func (c clearing) directory(at string) error {
	d, err := c.root.Open(at)
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	if err := errors.Join(err, d.Close(), c.ctx.Err()); err != nil {
		return err
	}
	for _, e := range entries {
		if err := c.entry(path.Join(at, e.Name()), e); err != nil {
			return err
		}
	}
	return nil
}

func (c clearing) entry(name string, e fs.DirEntry) error {
	info, err := c.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mode := info.Mode()
	switch {
	case info.IsDir() && mode&0o700 != 0o700:
		err = c.root.Chmod(name, mode.Perm()|0o700)
	case mode.IsRegular() && mode&0o400 == 0:
		err = c.root.Chmod(name, mode.Perm()|0o400)
	}
	if err == nil && info.IsDir() {
		err = c.directory(name)
	}
	if err == nil && c.keep.excludes(c.root, name, e) {
		err = c.root.RemoveAll(name)
	}
	return err
}
