package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// Files of a data directory.
const (
	databaseFile  = "codalab.db"
	idFile        = "database-id"
	restoringFile = "restoring"
	importingFile = "importing"
	backupFile    = "backup.json"
	secretsFile   = "secrets-key"
)

// SecretsKeyPath returns the path of the file for the key of users' secrets, if it has no other place. A backup does not
// have the file.
func (s *Store) SecretsKeyPath() string { return filepath.Join(s.dir, secretsFile) }

// exists reports whether the directory has a file of this name.
func exists(dir, name string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, name))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err == nil, nil
	}
	return false, fmt.Errorf("open data directory: %w", err)
}

// checkComplete refuses a backup, an unfinished restore and an unfinished import.
func checkComplete(dir string) error {
	if err := checkWhole(dir); err != nil {
		return err
	}
	return refuseWith(dir, map[string]string{
		importingFile: "an import into it is unfinished; run the same cl-server import again",
	})
}

// checkWhole refuses a backup and an unfinished restore.
func checkWhole(dir string) error {
	return refuseWith(dir, map[string]string{
		backupFile:    "it is a backup; cl-server restore makes a data directory from it",
		restoringFile: "it is an unfinished restore; remove it and restore again",
	})
}

// refuseWith refuses a directory that has one of these files.
func refuseWith(dir string, problems map[string]string) error {
	for name, problem := range problems {
		if found, err := exists(dir, name); err != nil {
			return err
		} else if found {
			return fmt.Errorf("open data directory %s: %s", dir, problem)
		}
	}
	return nil
}

// checkKind fails for a directory whose database is of the other kind.
func checkKind(dir, url string) error {
	other, problem := databaseFile, "its database is "+databaseFile+"; leave out --database"
	if url == "" {
		other = idFile
	} else if !sqldb.IsURL(url) {
		return errors.New("open database: the URL does not begin with postgres://")
	}
	found, err := exists(dir, other)
	if err != nil || !found {
		return err
	}
	if url == "" {
		_, name, err := readID(dir)
		if err != nil {
			return err
		}
		problem = "its database is in PostgreSQL, last seen at " + name + "; name it with --database"
	}
	return fmt.Errorf("open data directory %s: %w: %s", dir, ErrWrongDatabase, problem)
}

// readID returns the id of the directory's database in PostgreSQL, and its URL without the
// password when both were first opened; empty if it has none.
func readID(dir string) (id, name string, err error) {
	data, err := os.ReadFile(filepath.Join(dir, idFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("open data directory: %w", err)
	}
	id, name, _ = strings.Cut(strings.TrimSpace(string(data)), " ")
	return id, name, nil
}

// checkPair refuses a database of another data directory. It gives an id to a new directory and a
// new database. The directory gets it first, so that after a crash the database is still new.
func (s *Store) checkPair(ctx context.Context) error {
	id, _, err := readID(s.dir)
	if err != nil {
		return err
	}
	stored, err := s.storedID(ctx)
	if err != nil {
		return err
	}
	if stored == "" {
		if id == "" {
			id, err = s.newID()
		}
		if err == nil {
			stored, err = s.adopt(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	if stored != id {
		return fmt.Errorf("open data directory %s with database %s: %w: the database is another directory's", s.dir, sqldb.Name(s.url), ErrWrongDatabase)
	}
	return nil
}

// newID gives the directory an id, and returns it. If two programs call it, both return the same
// id.
func (s *Store) newID() (string, error) {
	path := filepath.Join(s.dir, idFile)
	temporary, err := atomicfile.Temporary(path, []byte(strings.ToLower(rand.Text())+" "+sqldb.Name(s.url)+"\n"), 0o600)
	if err != nil {
		return "", fmt.Errorf("open data directory: %w", err)
	}
	err = os.Link(temporary, path)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err := errors.Join(err, os.Remove(temporary), atomicfile.SyncDir(s.dir)); err != nil {
		return "", fmt.Errorf("open data directory: %w", err)
	}
	id, _, err := readID(s.dir)
	return id, err
}

func (s *Store) storedID(ctx context.Context) (string, error) {
	var id string
	err := rowError(s.db.GetContext(ctx, &id, `SELECT id FROM data_directory`), "read id of database "+sqldb.Name(s.url))
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return id, err
}

// adopt writes the directory's id into a database without one, and returns the database's id. It
// fails for a new database if the directory has contents already.
func (s *Store) adopt(ctx context.Context, id string) (stored string, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "bundles"))
	if err != nil {
		return "", fmt.Errorf("open data directory: %w", err)
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("open data directory %s with database %s: %w: the database is new, and the directory has contents of bundles",
			s.dir, sqldb.Name(s.url), ErrWrongDatabase)
	}
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var ids []string
		if err := tx.SelectContext(ctx, &ids, `SELECT id FROM data_directory`); err != nil {
			return fmt.Errorf("write id of database: %w", err)
		}
		if len(ids) > 0 { // another program was first
			stored = ids[0]
			return nil
		}
		stored = id
		_, err := tx.ExecContext(ctx, tx.Rebind(`INSERT INTO data_directory (id) VALUES (?)`), id)
		return rowError(err, "write id of database")
	})
	return stored, err
}
