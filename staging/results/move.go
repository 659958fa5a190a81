package results

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
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/staging/sitepath"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// moveRecord records where the results of a run directory are moved. It is a file beside the
// directory, written before the move and after it.
type moveRecord struct {
	// At is the place that the results are moved to.
	At string `json:"at"`
	// Moved is set when they are all there: what is still in the run directory is only the
	// rest of what was copied.
	Moved bool `json:"moved"`
	// Empty is set if there are no results.
	Empty bool `json:"empty"`
}

func movePath(dir string) string { return dir + ".moved" }

// readMove reads the record of a run directory. If there is none the error is
// fs.ErrNotExist.
func readMove(dir string) (m moveRecord, err error) {
	text, err := os.ReadFile(movePath(dir))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read where it was moved: %w", err)
	}
	return m, nil
}

func (m moveRecord) write(dir string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("note where it is moved: %w", err)
	}
	return atomicfile.Write(movePath(dir), text, 0o600)
}

// done notes that all results are in their place.
func (m moveRecord) done(dir string) error {
	if err := atomicfile.SyncDir(path.Dir(m.At)); err != nil {
		return err
	}
	m.Moved = true
	return m.write(dir)
}

// open opens the results where they were moved. locate checked the place when the record was
// written; open refuses it if a symbolic link has been put into its path since.
func (m moveRecord) open() (*os.Root, error) {
	if err := checkNoLink(m.At); err != nil {
		return nil, err
	}
	return os.OpenRoot(m.At)
}

// Move moves what a run left in its directory to where the server wants it, without the
// links to its dependencies and without what its exclude_patterns name. It may be called
// again at any time: the record names the place where the results are moved, and if the
// directory is gone then, they have been moved there.
func (s *Store) Move(ctx context.Context, run codalab.RunBundle, dir string) error {
	err := s.move(ctx, run, dir)
	var known *transfer.Error
	if err == nil || errors.As(err, &known) || ctx.Err() != nil {
		return err
	}
	// An operator may mend anything else, and results cannot be had again.
	return failed(err, !errors.Is(err, tarstream.ErrUnsafe) && !errors.Is(err, tarstream.ErrTooLarge))
}

func (s *Store) move(ctx context.Context, run codalab.RunBundle, dir string) error {
	at, err := s.locate(*run.Location, run.UUID)
	if err != nil {
		return err
	}
	earlier, err := readMove(dir)
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
		return failed(fmt.Errorf("the working directory %s is gone", dir), false)
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only used for what is below
	if err := prepare(ctx, root, run, at); err != nil {
		return err
	}
	names, err := sitepath.List(dir)
	if err != nil {
		return err
	}
	if earlier.At != at { // else this may be an earlier try's copy
		if held, err := sitepath.List(at); err != nil || len(held) > 0 {
			return fmt.Errorf("move to %s: %w", at, cmp.Or[error](err, syscall.ENOTEMPTY))
		}
	}
	m := moveRecord{At: at, Empty: len(names) == 0}
	if err := m.write(dir); err != nil {
		return err
	}
	err = rename(dir, at)
	if errors.Is(err, syscall.EXDEV) {
		return copyOver(ctx, root, dir, m, earlier.At == at)
	}
	if err != nil {
		return fmt.Errorf("move to %s: %w", at, err)
	}
	return m.done(dir)
}

// prepare makes a run directory ready to be moved to a place in the store: it removes what is
// no result, opens what the command closed to its owner, and gives the directory the mode of
// the place. By that mode the server, which as a rule has another account than the bundle,
// can read it.
func prepare(ctx context.Context, root *os.Root, run codalab.RunBundle, at string) error {
	place, err := os.Lstat(at)
	if err != nil {
		return err
	}
	open := func(below string, info fs.FileInfo) error { return filetree.OpenEntry(root, below, info) }
	if err := exclusionOf(run).clean(ctx, root, open); err != nil {
		return err
	}
	return root.Chmod(".", place.Mode().Perm()|0o700)
}

// rename renames a directory. If the reply to an earlier try was lost, the directory is
// gone, and rename returns nil.
func rename(from, to string) error {
	err := syscall.Rename(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := os.Lstat(from); errors.Is(gone, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

// moveOn moves results that were moved to one place on to another, unless it is the same:
// the server has given the bundle to the bridge once more. If there is nothing at the first
// place, an earlier try has moved them to the second. If they are at neither place, they are
// lost.
func moveOn(m moveRecord, to, dir string) error {
	from := m.At
	if from != to {
		if err := rename(from, to); err != nil {
			return failed(fmt.Errorf("they were moved to %s, and cannot be moved on to %s: %w", from, to, err), true)
		}
	}
	names, err := sitepath.List(to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || len(names) == 0 && !m.Empty {
		return failed(fmt.Errorf("they were moved to %s, and are not there any more, nor at %s", from, to), false)
	}
	m.At = to
	return m.done(dir)
}

// copyOver moves results to another file system: it makes a copy beside their place, flushes
// it and renames it to the place before it removes what it copied. The place is an empty
// directory; if it is not, and there was an earlier try, it is that one's copy.
func copyOver(ctx context.Context, root *os.Root, dir string, m moveRecord, again bool) error {
	tmp := path.Join(path.Dir(m.At), "."+path.Base(m.At)+".moving")
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
		err = rename(tmp, m.At)
	}
	if again && (errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)) {
		err = filetree.Remove(tmp)
	}
	if err == nil {
		err = m.done(dir)
	}
	if err != nil {
		_ = filetree.Remove(tmp) // if this fails, the next try does it
		return fmt.Errorf("copy to %s: %w", m.At, err)
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
