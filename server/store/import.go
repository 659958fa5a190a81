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
)

// Import writes another server's data into a data directory.
//
// It writes contents first. Until that is complete, the file "importing" keeps all programs except another
// import from opening the directory. Then one transaction writes all rows, and Import removes the file. An
// interrupted import leaves no rows; the next one reuses the copied contents.
//
// It has the lock of the data directory, and is not safe for concurrent use, except for AddContents.
type Import struct {
	store  *Store
	unlock func() error
	id     string // the content of the file "importing"; empty before Begin
}

// OpenImport opens a data directory for an import; see OpenDatabase. It fails with ErrLocked while a server
// uses the directory. The caller closes the Import.
func OpenImport(ctx context.Context, dir, url string) (*Import, error) {
	if err := checkWhole(dir); err != nil {
		return nil, err
	}
	s, err := openDatabase(ctx, dir, url)
	if err != nil {
		return nil, err
	}
	in := &Import{store: s}
	if in.unlock, err = s.Lock(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	id, err := os.ReadFile(in.mark())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("open data directory: %w", err), in.Close())
	}
	in.id = string(id)
	return in, nil
}

func (in *Import) mark() string { return filepath.Join(in.store.dir, importingFile) }

// Close closes the data directory. An import that is not committed can continue later.
func (in *Import) Close() error { return errors.Join(in.unlock(), in.store.Close()) }

// Begin closes the data directory for all programs except imports. It continues an interrupted import.
func (in *Import) Begin() error {
	if in.id != "" {
		return nil
	}
	id := strings.ToLower(rand.Text())
	if err := atomicfile.Write(in.mark(), []byte(id), 0o600); err != nil {
		return fmt.Errorf("begin import: %w", err)
	}
	in.id = id
	return nil
}

// Committed reports whether the begun import has written its rows before it was interrupted. Then Commit
// only opens the directory again.
func (in *Import) Committed(ctx context.Context) (bool, error) {
	if in.id == "" {
		return false, nil
	}
	var found int
	err := in.store.db.GetContext(ctx, &found, in.store.db.Rebind(`SELECT count(*) FROM imports WHERE id = ?`), in.id)
	return found > 0, rowError(err, "read imports")
}

// Taken are the ids and names that the data directory has.
type Taken struct {
	// Users, Groups and Worksheets have ids by id and by name.
	Users, Groups, Worksheets map[string]string
	// Bundles includes deleted bundles.
	Bundles map[string]bool
}

// Taken returns the ids and names that the data directory has.
func (s *Store) Taken(ctx context.Context) (Taken, error) {
	taken := Taken{Bundles: map[string]bool{}}
	for _, kind := range []struct {
		to    *map[string]string
		query string
	}{
		{&taken.Users, `SELECT id, name FROM users`},
		{&taken.Groups, `SELECT uuid AS id, name FROM groups`},
		{&taken.Worksheets, `SELECT uuid AS id, name FROM worksheets`},
	} {
		var rows []struct {
			ID   string `db:"id"`
			Name string `db:"name"`
		}
		if err := s.db.SelectContext(ctx, &rows, kind.query); err != nil {
			return taken, fmt.Errorf("list the ids and names of the data directory: %w", err)
		}
		*kind.to = make(map[string]string, 2*len(rows))
		for _, row := range rows {
			(*kind.to)[row.Name] = row.ID
			(*kind.to)[row.ID] = row.ID
		}
	}
	var uuids []string
	if err := s.db.SelectContext(ctx, &uuids, `SELECT uuid FROM bundles UNION SELECT uuid FROM deleted_bundles`); err != nil {
		return taken, fmt.Errorf("list the ids and names of the data directory: %w", err)
	}
	for _, uuid := range uuids {
		taken.Bundles[uuid] = true
	}
	return taken, nil
}

// Taken returns the ids and names that the data directory has.
func (in *Import) Taken(ctx context.Context) (Taken, error) { return in.store.Taken(ctx) }

// Commit writes all rows in one transaction, and opens the data directory again. write may be called several
// times, and must write the same each time.
func (in *Import) Commit(ctx context.Context, source string, now Time, write func(ImportedRows) error) error {
	if in.id == "" {
		return errors.New("commit import: it was not begun")
	}
	done, err := in.Committed(ctx)
	if err == nil {
		err = atomicfile.SyncDisk(in.store.dir)
	}
	if err == nil && !done {
		err = in.store.db.InTx(ctx, func(tx *sqlx.Tx) error {
			if err := keepDefault(ctx, tx); err != nil {
				return err
			}
			if err := write(ImportedRows{in.store, tx, now}); err != nil {
				return err
			}
			if err := countCharges(ctx, tx, ""); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, tx.Rebind(`INSERT INTO imports (id, source, ended) VALUES (?, ?, ?)`), in.id, source, now)
			return rowError(err, "write import")
		})
	}
	if err == nil {
		err = os.Remove(in.mark())
	}
	if err == nil {
		err = atomicfile.SyncDir(in.store.dir)
	}
	if err != nil {
		return fmt.Errorf("commit import: %w", err)
	}
	in.id = ""
	return nil
}

// ReadTaken is Taken for a directory that may be missing, and that a server or an import may use. It changes
// nothing, except that it applies migrations to an old database.
func ReadTaken(ctx context.Context, dir, url string) (taken Taken, err error) {
	if !Exists(dir) {
		return Taken{}, nil
	}
	if err := checkWhole(dir); err != nil {
		return Taken{}, err
	}
	s, err := openDatabase(ctx, dir, url)
	if err != nil {
		return Taken{}, err
	}
	taken, err = s.Taken(ctx)
	return taken, errors.Join(err, s.Close())
}

// Exists reports whether there is a data directory.
func Exists(dir string) bool {
	found, err := exists(dir, "bundles")
	return err == nil && found
}
