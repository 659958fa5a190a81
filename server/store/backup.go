package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
)

// Backup describes a backup.
type Backup struct {
	Made    time.Time `json:"made"`
	Bundles int       `json:"bundles"`
	// Contents is the number of bundles that have contents.
	Contents int `json:"contents"`
	// Missing are the names of contents that bundles name and that the data directory has lost.
	Missing []string `json:"missing"`
}

// Backup writes a backup to the directory dest, which must not exist. A backup is a data directory of its
// own: a SQLite database, whatever the store's kind, and the contents, as hard links if dest is on the
// same file system. A server may run at the same time. The backup shows the database at one moment, with
// all contents that the database names; contents that were lost before are in Missing.
//
// Backup writes to dest.tmp and renames that at the end. It removes files that an earlier try left there.
// It fails with ErrLocked if another Backup writes there, and with fs.ErrExist if dest exists.
//
// A backup does not have unfinished uploads, nor the files of running commands.
func (s *Store) Backup(ctx context.Context, dest string, now time.Time) (Backup, error) {
	made := Backup{Made: now.UTC().Truncate(time.Second)}
	if _, err := os.Lstat(dest); !errors.Is(err, fs.ErrNotExist) {
		return made, fmt.Errorf("back up to %s: %w", dest, errors.Join(err, fs.ErrExist))
	}
	if subpath.Within(dest, s.dir) {
		return made, fmt.Errorf("back up to %s: it is in the data directory", dest)
	}
	dir := dest + ".tmp"
	unlock, err := claim(dir)
	if err != nil {
		return made, fmt.Errorf("back up to %s: %w", dest, err)
	}
	err = s.backUp(ctx, dir, &made)
	if err == nil {
		err = publish(dir, dest, made)
	}
	if err = errors.Join(err, unlock()); err != nil {
		return made, fmt.Errorf("back up to %s: %w", dest, err)
	}
	return made, nil
}

// claim makes an empty directory, or empties the one that is there, and locks it for this process.
func claim(dir string) (unlock func() error, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%s: %w", dir, ErrLocked)
	}
	var old []os.DirEntry
	if err == nil {
		old, err = os.ReadDir(dir)
	}
	for _, e := range old {
		err = errors.Join(err, filetree.Remove(filepath.Join(dir, e.Name())))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// publish flushes a backup, marks it as complete and gives it its name.
func publish(dir, dest string, made Backup) error {
	mark, err := json.MarshalIndent(made, "", "  ")
	if err == nil {
		err = atomicfile.SyncDisk(dir)
	}
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, backupFile), append(mark, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(dir, dest)
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(dest))
	}
	return err
}

// backUp writes the database and the contents to dir. If bundles and their contents are deleted in the
// meantime, it copies the database again, and links the contents that are new in it.
func (s *Store) backUp(ctx context.Context, dir string, made *Backup) error {
	copied, err := openDatabase(ctx, dir, "")
	if err != nil {
		return err
	}
	const most = 20
	done := false
	for try := 0; err == nil && !done && try < most; try++ {
		done, err = s.backUpOnce(ctx, copied, made)
	}
	switch {
	case err != nil:
	case !done:
		err = errors.New("bundles were deleted too fast; try again")
	default:
		_, err = copied.Sweep(ctx) // of bundles deleted during the backup
	}
	return errors.Join(err, copied.Close())
}

// backUpOnce copies the database, and links the contents that are not linked yet. It returns whether the
// backup is complete. A deletion removes a bundle's row before its contents, so contents that a row still
// names after the linking were linked whole.
func (s *Store) backUpOnce(ctx context.Context, copied *Store, made *Backup) (done bool, err error) {
	err = s.db.Snapshot(ctx, func(from *sqlx.Conn) error {
		return copied.db.InTx(ctx, func(to *sqlx.Tx) error { return copyTables(ctx, from, to) })
	})
	if err != nil {
		return false, err
	}
	names, err := copied.contentsNames(ctx)
	if err != nil {
		return false, err
	}
	made.Contents, made.Missing = len(names), []string{}
	if err := copied.db.GetContext(ctx, &made.Bundles, `SELECT count(*) FROM bundles`); err != nil {
		return false, fmt.Errorf("count bundles: %w", err)
	}
	equals, err := s.equalsIn(ctx, copied)
	if err != nil {
		return false, err
	}
	var linked []string
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		to := filepath.Join(copied.dir, "bundles", name)
		if _, err := os.Lstat(to); err == nil {
			equals.add(name)
			continue // linked after an earlier copy of the database
		}
		linked = append(linked, name)
		err := filetree.Copy(ctx, filepath.Join(s.dir, "bundles", name), to, true)
		if errors.Is(err, fs.ErrNotExist) {
			made.Missing = append(made.Missing, name)
			err = filetree.Remove(to)
		} else if err == nil {
			err = equals.share(ctx, name)
		}
		if err != nil {
			return false, err
		}
	}
	return s.stillNamed(ctx, copied, linked)
}

// stillNamed removes those of the linked contents that no bundle names any more. It returns whether there
// were none.
func (s *Store) stillNamed(ctx context.Context, copied *Store, linked []string) (all bool, err error) {
	names, err := s.contentsNames(ctx)
	if err != nil {
		return false, err
	}
	all = true
	for _, name := range linked {
		if _, ok := slices.BinarySearch(names, name); ok {
			continue
		}
		all = false
		if err := copied.RemoveContents(name); err != nil {
			return false, err
		}
	}
	return all, nil
}

// contentsNames returns the names of the bundles' contents, sorted.
func (s *Store) contentsNames(ctx context.Context) ([]string, error) {
	var names []string
	if err := s.db.SelectContext(ctx, &names, `SELECT contents FROM bundles WHERE contents <> ''`); err != nil {
		return nil, fmt.Errorf("list contents: %w", err)
	}
	slices.Sort(names)
	return names, nil
}
