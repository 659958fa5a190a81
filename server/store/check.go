package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
)

// Finding is a fault in the data.
type Finding struct {
	// Kind is one of the Finding… constants.
	Kind string `json:"kind"`
	// Object is the id of a bundle or user, the name of contents, or the name of a table.
	Object  string `json:"object"`
	Problem string `json:"problem"`
	// Mended means that Check has repaired the fault.
	Mended bool `json:"mended"`
}

// The kinds of findings.
const (
	// FindingDatabase means that SQLite finds its file damaged.
	FindingDatabase = "database"
	// FindingRow means that a row cannot be read, or refers to a row that is gone.
	FindingRow = "row"
	// FindingContents means that a bundle's contents are missing or cannot be read.
	FindingContents = "contents"
	// FindingSize means that a bundle's data_size is not the size of its contents.
	FindingSize = "size"
	// FindingDiskUsed means that a user's disk use is not the sum of their bundles' data_size.
	FindingDiskUsed = "disk-used"
	// FindingUnnamed means contents that no bundle names.
	FindingUnnamed = "unnamed"
)

// checker is one check of the data.
type checker struct {
	*Store
	repair bool
	report func(Finding)
}

// Check reports faults in the data. With repair it repairs the faults that it can without losing
// data. It returns served if a server runs; then it does not look for contents that no bundle names,
// because an unfinished upload has such contents. report must not use the store.
func (s *Store) Check(ctx context.Context, repair bool, report func(Finding)) (served bool, err error) {
	c := checker{Store: s, repair: repair, report: report}
	for _, step := range []func(context.Context) error{c.checkFile, c.checkRows, c.checkBundles, c.checkDiskUsed} {
		if err := step(ctx); err != nil {
			return false, err
		}
	}
	unlock, err := s.Lock(ctx)
	if errors.Is(err, ErrLocked) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, errors.Join(c.checkUnnamed(ctx), c.checkUploading(ctx), unlock())
}

// found reports a fault. If it may be repaired, it calls mend, unless mend is nil.
func (c *checker) found(f Finding, mend func() error) error {
	if c.repair && mend != nil {
		if err := mend(); err != nil {
			return fmt.Errorf("mend %s: %w", f.Object, err)
		}
		f.Mended = true
	}
	c.report(f)
	return nil
}

// checkFile lets SQLite check its file.
func (c *checker) checkFile(ctx context.Context) error {
	if c.url != "" {
		return nil
	}
	var said []string
	if err := c.db.SelectContext(ctx, &said, `PRAGMA quick_check`); err != nil {
		return fmt.Errorf("check database: %w", err)
	}
	for _, line := range said {
		if line != "ok" {
			c.report(Finding{Kind: FindingDatabase, Object: databaseFile, Problem: line})
		}
	}
	return nil
}

// checkedAtOnce is the number of bundles that are read at once.
const checkedAtOnce = 500

// checkBundles compares all bundles with their contents.
func (c *checker) checkBundles(ctx context.Context) error {
	last := ""
	for {
		var rows []bundleRow
		err := c.db.SelectContext(ctx, &rows, c.db.Rebind(`SELECT * FROM bundles WHERE uuid > ? ORDER BY uuid LIMIT ?`), last, checkedAtOnce)
		if err != nil {
			return fmt.Errorf("check bundles: %w", err)
		}
		for _, row := range rows {
			if err := c.checkBundle(ctx, row); err != nil {
				return err
			}
		}
		if len(rows) < checkedAtOnce {
			return nil
		}
		last = rows[len(rows)-1].UUID
	}
}

// checkBundle compares a bundle with its contents. If the bundle changes during the comparison, it
// compares again.
func (c *checker) checkBundle(ctx context.Context, row bundleRow) error {
	for {
		f, size := c.compare(row)
		if f == nil {
			return nil
		}
		var now bundleRow
		err := c.db.GetContext(ctx, &now, c.db.Rebind(`SELECT * FROM bundles WHERE uuid = ?`), row.UUID)
		if err := rowError(err, "check bundle "+row.UUID); errors.Is(err, ErrNotFound) {
			return nil // it was deleted
		} else if err != nil {
			return err
		}
		if now.Contents != row.Contents || now.DataSize != row.DataSize || now.State != row.State || now.MetadataJSON != row.MetadataJSON {
			row = now
			continue
		}
		var mend func() error
		if f.Kind == FindingSize {
			mend = func() error { return c.setSize(ctx, row.Bundle, size) }
		}
		return c.found(*f, mend)
	}
}

// compare returns a bundle's fault, or nil, and the true size of its contents.
func (c *checker) compare(row bundleRow) (f *Finding, size int64) {
	f = &Finding{Object: row.UUID}
	b, err := row.bundle()
	if err != nil {
		f.Kind, f.Problem = FindingRow, err.Error()
		return f, 0
	}
	if b.Contents != "" {
		if size, err = c.measure(b); err != nil {
			f.Kind, f.Problem = FindingContents, err.Error()
			return f, 0
		}
	}
	// Before the end, the size may come from the last report of a worker or an uploading client.
	if !b.State.Final() || (b.DataSize == size && b.Metadata.Int("data_size") == size) {
		return nil, 0
	}
	f.Kind, f.Problem = FindingSize, fmt.Sprintf("data_size is %d, the contents have %d bytes", b.DataSize, size)
	if b.DataSize == size {
		f.Problem = fmt.Sprintf("data_size in the metadata is %d, the contents have %d bytes", b.Metadata.Int("data_size"), size)
	}
	return f, size
}

// measure returns the size of a bundle's contents.
func (s *Store) measure(b Bundle) (int64, error) {
	root, err := s.OpenContents(b)
	if errors.Is(err, ErrNotFound) {
		return 0, fmt.Errorf("contents %s are missing", filepath.Join("bundles", b.Contents))
	}
	if err != nil {
		return 0, err
	}
	size, err := contents.Size(root, ContentsPath)
	if errors.Is(err, contents.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("contents %s are missing", filepath.Join("bundles", b.Contents, ContentsPath))
	}
	return size, errors.Join(err, root.Close())
}

// setSize sets the size of a bundle that has not changed.
func (s *Store) setSize(ctx context.Context, old Bundle, size int64) error {
	_, err := s.Change(ctx, old.UUID, func(b *Bundle) error {
		if b.Contents == old.Contents && b.DataSize == old.DataSize && b.State == old.State {
			b.DataSize, b.Metadata["data_size"] = size, size
		}
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// diskUse is a user's disk use, and the sum of their bundles' data_size.
type diskUse struct {
	ID   string `db:"id"`
	Name string `db:"name"`
	Used int64  `db:"used"`
	Sum  int64  `db:"total"`
}

// checkDiskUsed compares the users' disk use with their bundles. One statement sees both at one
// moment.
func (c *checker) checkDiskUsed(ctx context.Context) error {
	var wrong []diskUse
	err := c.db.SelectContext(ctx, &wrong, `
		SELECT u.id, u.name, u.disk_used AS used, CAST(coalesce(sum(b.data_size), 0) AS BIGINT) AS total
		FROM users u LEFT JOIN bundles b ON b.owner_id = u.id
		GROUP BY u.id, u.name, u.disk_used HAVING u.disk_used <> coalesce(sum(b.data_size), 0) ORDER BY u.name`)
	if err != nil {
		return fmt.Errorf("check disk use: %w", err)
	}
	for _, u := range wrong {
		problem := fmt.Sprintf("user %s has disk_used %d, the bundles have %d bytes", u.Name, u.Used, u.Sum)
		err := c.found(Finding{Kind: FindingDiskUsed, Object: u.ID, Problem: problem}, func() error { return c.countDiskUsed(ctx, u.ID) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) countDiskUsed(ctx context.Context, user string) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, tx.Rebind(`
			UPDATE users SET disk_used = (SELECT coalesce(sum(data_size), 0) FROM bundles WHERE owner_id = users.id) WHERE id = ?`), user)
		return rowError(err, "count disk use")
	})
}

// checkUnnamed finds contents that no bundle names. There must be no concurrent upload.
func (c *checker) checkUnnamed(ctx context.Context) error {
	names, err := c.unnamed(ctx)
	if err == nil && len(names) > 0 && c.repair {
		err = c.checkUsed(ctx)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		err := c.found(Finding{Kind: FindingUnnamed, Object: name, Problem: "no bundle names these contents"}, func() error { return c.RemoveContents(name) })
		if err != nil {
			return err
		}
	}
	return nil
}

// checkUploading finds bundles that count an upload that a crash has cut off.
func (c *checker) checkUploading(ctx context.Context) error {
	var rows []bundleRow
	err := c.db.SelectContext(ctx, &rows, c.db.Rebind(`SELECT * FROM bundles WHERE state = ? ORDER BY uuid`), codalab.StateUploading)
	if err != nil {
		return fmt.Errorf("check uploads: %w", err)
	}
	for _, row := range rows {
		var size int64
		if row.Contents != "" {
			if size, err = c.measure(row.Bundle); err != nil {
				continue // checkBundles has reported that
			}
		}
		if size == row.DataSize {
			continue
		}
		problem := fmt.Sprintf("data_size is %d, its upload is over, and the contents have %d bytes", row.DataSize, size)
		err := c.found(Finding{Kind: FindingSize, Object: row.UUID, Problem: problem}, func() error { return c.setSize(ctx, row.Bundle, size) })
		if err != nil {
			return err
		}
	}
	return nil
}
