package results

import (
	"cmp"
	"context"
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
	"github.com/cl-slurm/cl-slurm/internal/subids"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/staging/sitepath"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// moveRecord records the location of a run directory's results in the store. It is a file next to the
// directory, written before and after the move.
type moveRecord struct {
	// Location is the directory of the results.
	Location string `json:"at"`
	// Moved is set when all results are there. The run directory then has only the rest of the
	// copied files.
	Moved bool `json:"moved"`
	// Empty is set if there are no results.
	Empty bool `json:"empty"`
}

func moveRecordPath(runDir string) string { return runDir + ".moved" }

// readMove reads the record of a run directory. It returns fs.ErrNotExist if there is none.
func readMove(runDir string) (m moveRecord, err error) {
	if err := atomicfile.ReadJSON(moveRecordPath(runDir), &m); err != nil {
		return m, fmt.Errorf("read the record of the location: %w", err)
	}
	return m, nil
}

func (m moveRecord) write(runDir string) error {
	return atomicfile.WriteJSON(moveRecordPath(runDir), m)
}

// done records that all results are at their location.
func (m moveRecord) done(runDir string) error {
	if err := atomicfile.SyncDir(path.Dir(m.Location)); err != nil {
		return err
	}
	m.Moved = true
	return m.write(runDir)
}

// open opens the results at their location. locate checked it when the record was written,
// and open refuses it if its path has a symbolic link now.
func (m moveRecord) open() (*os.Root, error) {
	if err := checkNoLink(m.Location); err != nil {
		return nil, err
	}
	return os.OpenRoot(m.Location)
}

// Move moves the results in a run directory to the bundle's location, without links to dependencies
// and entries that match the run's exclude_patterns. It may be called again at any time: the record
// names the location, so if the run directory is gone, the results are there.
func (s *Store) Move(ctx context.Context, run codalab.RunBundle, runDir string) error {
	err := s.move(ctx, run, runDir)
	var known *transfer.Error
	if err == nil || errors.As(err, &known) || ctx.Err() != nil {
		return err
	}
	// An operator may repair any other failure, and results cannot be made again.
	return failed(err, !errors.Is(err, tarstream.ErrUnsafe) && !errors.Is(err, tarstream.ErrTooLarge))
}

func (s *Store) move(ctx context.Context, run codalab.RunBundle, runDir string) error {
	location, err := s.locate(*run.Location, run.UUID)
	if err != nil {
		return err
	}
	earlier, err := readMove(runDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if earlier.Moved {
		if err := filetree.Remove(runDir); err != nil {
			return err
		}
	}
	root, err := openClosed(runDir)
	if errors.Is(err, fs.ErrNotExist) {
		if earlier.Location != "" {
			return moveOn(earlier, location, runDir)
		}
		return failed(fmt.Errorf("the run directory %s is gone", runDir), false)
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only used for paths
	if err := prepare(ctx, root, run, location); err != nil {
		return err
	}
	names, err := sitepath.List(runDir)
	if err != nil {
		return err
	}
	if earlier.Location != location { // otherwise this may be an earlier try's copy
		if held, err := sitepath.List(location); err != nil || len(held) > 0 {
			return fmt.Errorf("move to %s: %w", location, cmp.Or[error](err, syscall.ENOTEMPTY))
		}
	}
	m := moveRecord{Location: location, Empty: len(names) == 0}
	if err := m.write(runDir); err != nil {
		return err
	}
	err = rename(runDir, location)
	if errors.Is(err, syscall.EXDEV) {
		return copyOver(ctx, root, runDir, m, earlier.Location == location)
	}
	if err != nil {
		return fmt.Errorf("move to %s: %w", location, err)
	}
	return m.done(runDir)
}

// prepare prepares a run directory for its location in the store. It removes entries that are not
// results, opens those that the command closed to its owner, makes this user the owner of those that a
// killed container left to its subordinate ids, and gives the directory the mode of the location. By that
// mode the server, which usually has another account than the bundle, can read it.
func prepare(ctx context.Context, root *os.Root, run codalab.RunBundle, location string) error {
	info, err := os.Lstat(location)
	if err != nil {
		return err
	}
	foreign := false
	open := func(at place, info fs.FileInfo) error {
		foreign = foreign || subids.IsForeign(info)
		return filetree.OpenEntry(at.dir, at.name, info)
	}
	err = exclusionOf(run).clean(ctx, root, open)
	if foreign {
		filetree.OpenUp(root)
		err = exclusionOf(run).clean(ctx, root, open)
	}
	if err != nil {
		return err
	}
	return root.Chmod(".", info.Mode().Perm()|0o700)
}

// rename renames a directory. If the reply to an earlier try was lost, the directory is gone, and
// rename returns nil.
func rename(from, to string) error {
	err := syscall.Rename(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := os.Lstat(from); errors.Is(gone, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

// moveOn moves results from their first location to another one, unless it is the same: the server has
// given the bundle to the bridge again. If there are none at the first location, an earlier try has
// moved them. If they are at neither location, they are lost.
func moveOn(m moveRecord, to, runDir string) error {
	from := m.Location
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
		return failed(fmt.Errorf("they were moved to %s, and are neither there nor at %s", from, to), false)
	}
	m.Location = to
	return m.done(runDir)
}

// copyOver moves results to another file system: it makes a copy next to their location, flushes it,
// renames it to the location and then removes the originals. The location is an empty directory or, if
// there was an earlier try, perhaps its copy.
func copyOver(ctx context.Context, root *os.Root, runDir string, m moveRecord, again bool) error {
	tmp := path.Join(path.Dir(m.Location), "."+path.Base(m.Location)+".moving")
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
		err = rename(tmp, m.Location)
	}
	if again && (errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)) {
		err = filetree.Remove(tmp)
	}
	if err == nil {
		err = m.done(runDir)
	}
	if err != nil {
		_ = filetree.Remove(tmp) // if this fails, the next try does it
		return fmt.Errorf("copy to %s: %w", m.Location, err)
	}
	return filetree.Remove(runDir)
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
