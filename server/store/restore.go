package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// Restore makes a data directory from a backup. The directory must be missing or empty. Its database is SQLite,
// or, unless url is empty, an empty database in PostgreSQL. Files are hard links to the backup's if both are on
// one file system, since no server changes them. No program can open the directory before Restore is done. After
// a failure the caller removes the directory and the rows in the database.
func Restore(ctx context.Context, backup, dir, url string) error {
	err := restore(ctx, backup, dir, url)
	if err != nil {
		return fmt.Errorf("restore %s to %s: %w", backup, dir, err)
	}
	return nil
}

func restore(ctx context.Context, backup, dir, url string) error {
	if whole, err := exists(backup, backupFile); err != nil {
		return err
	} else if !whole {
		return fmt.Errorf("%s is no complete backup: it has no %s", backup, backupFile)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err != nil {
		return err
	} else if len(entries) > 0 {
		return errors.New("the directory is not empty")
	}
	if err := atomicfile.Write(filepath.Join(dir, restoringFile), nil, 0o600); err != nil {
		return err
	}
	err := filetree.Copy(ctx, filepath.Join(backup, databaseFile), filepath.Join(dir, databaseFile), false)
	if err == nil { // no server changes contents
		err = filetree.Copy(ctx, filepath.Join(backup, "bundles"), filepath.Join(dir, "bundles"), true)
	}
	if err == nil && url != "" {
		err = restoreDatabase(ctx, dir, url)
	}
	if err == nil {
		err = atomicfile.SyncDisk(dir)
	}
	if err == nil {
		err = os.Remove(filepath.Join(dir, restoringFile))
	}
	if err == nil {
		err = atomicfile.SyncDir(dir)
	}
	return err
}

// restoreDatabase moves the restored rows from the SQLite database of dir into PostgreSQL. One transaction
// does that and gives the database the directory's id.
func restoreDatabase(ctx context.Context, dir, url string) error {
	from, err := openDatabase(ctx, dir, "") // also brings an old backup up to date
	if err != nil {
		return err
	}
	steps, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return errors.Join(err, from.Close())
	}
	db, err := sqldb.Open(ctx, url, steps)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	to := &Store{db: db, dir: dir, url: url}
	err = from.moveTo(ctx, to)
	if err := errors.Join(err, from.Close(), to.Close()); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, databaseFile))
}

func (s *Store) moveTo(ctx context.Context, to *Store) error {
	id, err := to.newID()
	if err != nil {
		return err
	}
	return s.db.Snapshot(ctx, func(rows *sqlx.Conn) error {
		return to.db.InTx(ctx, func(tx *sqlx.Tx) error {
			var used bool
			err := tx.GetContext(ctx, &used, `SELECT EXISTS (SELECT 1 FROM users) OR EXISTS (SELECT 1 FROM data_directory)`)
			if err != nil {
				return fmt.Errorf("read database %s: %w", sqldb.Name(to.url), err)
			}
			if used {
				return fmt.Errorf("the database %s is not empty", sqldb.Name(to.url))
			}
			if err := copyTables(ctx, rows, tx); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, tx.Rebind(`INSERT INTO data_directory (id) VALUES (?)`), id)
			return rowError(err, "write id of database")
		})
	})
}
