package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

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
	// FindingSize means that a bundle's data_size, or its number of entries, is not that of its contents.
	FindingSize = "size"
	// FindingDiskUsed means that a user's disk use is not the sum of their bundles' charges.
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
		f, extent := c.compare(row)
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
		if now.Contents != row.Contents || now.Extent() != row.Extent() || now.State != row.State || now.MetadataJSON != row.MetadataJSON {
			row = now
			continue
		}
		var mend func() error
		if f.Kind == FindingSize {
			mend = func() error { return c.setExtent(ctx, row.Bundle, extent) }
		}
		return c.found(*f, mend)
	}
}

// compare returns a bundle's fault, or nil, and the true extent of its contents.
func (c *checker) compare(row bundleRow) (f *Finding, extent codalab.Extent) {
	f = &Finding{Object: row.UUID}
	b, err := row.bundle()
	if err != nil {
		f.Kind, f.Problem = FindingRow, err.Error()
		return f, extent
	}
	if b.Contents != "" {
		if extent, err = c.measure(b); err != nil {
			f.Kind, f.Problem = FindingContents, err.Error()
			return f, extent
		}
	}
	f.Kind = FindingSize
	final := b.State.Final()
	switch {
	case b.Contents != "" && b.Entries == 0:
		f.Problem = fmt.Sprintf("its %d entries are not counted yet; a running server counts them, and so does --repair", extent.Entries)
	case b.Entries != extent.Entries:
		f.Problem = fmt.Sprintf("%d entries are counted, the contents have %d", b.Entries, extent.Entries)
	case final && b.DataSize != extent.Bytes: // before the end, a worker or an uploading client may have reported it
		f.Problem = fmt.Sprintf("data_size is %d, the contents have %d bytes", b.DataSize, extent.Bytes)
	case final && b.Metadata.Int("data_size") != extent.Bytes:
		f.Problem = fmt.Sprintf("data_size in the metadata is %d, the contents have %d bytes", b.Metadata.Int("data_size"), extent.Bytes)
	default:
		return nil, extent
	}
	if !final {
		extent.Bytes = b.DataSize
	}
	return f, extent
}

// measure returns the extent of a bundle's contents.
func (s *Store) measure(b Bundle) (codalab.Extent, error) {
	root, err := s.OpenContents(b)
	if errors.Is(err, ErrNotFound) {
		return codalab.Extent{}, fmt.Errorf("contents %s are missing", filepath.Join("bundles", b.Contents))
	}
	if err != nil {
		return codalab.Extent{}, err
	}
	extent, err := contents.Measure(root, ContentsPath)
	if errors.Is(err, contents.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("contents %s are missing", filepath.Join("bundles", b.Contents, ContentsPath))
	}
	return extent, errors.Join(err, root.Close())
}

// setExtent sets the extent of a bundle that has not changed.
func (s *Store) setExtent(ctx context.Context, old Bundle, extent codalab.Extent) error {
	_, err := s.Change(ctx, old.UUID, func(b *Bundle) error {
		if b.Contents == old.Contents && b.Extent() == old.Extent() && b.State == old.State {
			b.Entries, b.DataSize, b.Metadata["data_size"] = extent.Entries, extent.Bytes, extent.Bytes
		}
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
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
		var extent codalab.Extent
		if row.Contents != "" {
			if extent, err = c.measure(row.Bundle); err != nil {
				continue // checkBundles has reported that
			}
		}
		if extent.Bytes == row.DataSize {
			continue
		}
		problem := fmt.Sprintf("data_size is %d, its upload is over, and the contents have %d bytes", row.DataSize, extent.Bytes)
		err := c.found(Finding{Kind: FindingSize, Object: row.UUID, Problem: problem}, func() error { return c.setExtent(ctx, row.Bundle, extent) })
		if err != nil {
			return err
		}
	}
	return nil
}
