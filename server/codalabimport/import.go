package codalabimport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// ErrStopped means that the report has problems that stop the import.
var ErrStopped = errors.New("nothing was imported: see the problems")

// Step is a step of an import.
type Step string

// The steps of an import. Their progress counts bundles, and bytes for StepCopy.
const (
	StepRead    Step = "Read"
	StepMeasure Step = "Measured"
	StepCopy    Step = "Copied"
	StepWrite   Step = "Wrote"
)

// Import is one import. All fields are needed except the booleans.
type Import struct {
	Source *Source
	// Stores are directories with contents; see the flag --store.
	Stores []string
	// Dir is the data directory, and Database the URL of its database in PostgreSQL; see store.OpenDatabase.
	Dir, Database string
	// Link makes hard links of files in place of copies.
	Link bool
	// AcceptMissing imports ready bundles whose contents are missing, without contents.
	AcceptMissing bool
	// ContentsOnly ends the import when contents are copied. Another Run goes on.
	ContentsOnly bool
	// CheckHash fails for the hash of a password that the server cannot use.
	CheckHash func(string) error
	// Progress receives the progress of a step, from several goroutines, one at a time.
	Progress func(step Step, done, total int64)
	Now      time.Time
}

// Survey reports the changes that Run would make, and changes nothing.
func (im *Import) Survey(ctx context.Context) (Report, error) {
	taken, err := store.ReadTaken(ctx, im.Dir, im.Database)
	if err != nil {
		return Report{}, err
	}
	found, err := im.surveyNow(ctx, taken, map[string]store.Extent{})
	return found.report, err
}

// surveyNow surveys a new snapshot.
func (im *Import) surveyNow(ctx context.Context, taken store.Taken, known map[string]store.Extent) (found survey, err error) {
	on, err := openDisk(im.Stores)
	if err != nil {
		return found, err
	}
	err = im.Source.atOneMoment(ctx, func(s snapshot) error {
		found, err = im.survey(ctx, s, taken, on, known)
		return err
	})
	return found, err
}

// Run imports everything. It fails with ErrStopped if the report has problems that stop the import, and with
// store.ErrLocked while a server uses the data directory. After any other failure, another Run continues the import.
func (im *Import) Run(ctx context.Context) (report Report, err error) {
	var to *store.Import // not yet, if that would make the directory
	if store.Exists(im.Dir) {
		if to, err = store.OpenImport(ctx, im.Dir, im.Database); err != nil {
			return report, err
		}
	}
	defer func() {
		if to != nil {
			err = errors.Join(err, to.Close())
		}
	}()
	taken := store.Taken{}
	if to != nil {
		if done, err := im.finish(ctx, to); done || err != nil {
			return Report{Source: im.Source.Name, States: map[string]int{}, Problems: []Problem{}, Imported: done && err == nil}, err
		}
		if taken, err = to.Taken(ctx); err != nil {
			return report, err
		}
	}
	known := map[string]store.Extent{}
	found, err := im.surveyNow(ctx, taken, known)
	if err != nil {
		return found.report, err
	}
	if len(found.report.Stops()) > 0 {
		return found.report, ErrStopped
	}
	if to == nil {
		if to, err = store.OpenImport(ctx, im.Dir, im.Database); err != nil {
			return found.report, err
		}
	}
	return im.into(ctx, to, found, known)
}

// finish makes a data directory usable if its import was interrupted after it had written everything.
func (im *Import) finish(ctx context.Context, to *store.Import) (done bool, err error) {
	if done, err = to.Committed(ctx); done {
		err = to.Commit(ctx, "", store.Time{}, nil)
	}
	return done, err
}

// into imports the survey's objects, and those that are new since then.
func (im *Import) into(ctx context.Context, to *store.Import, found survey, known map[string]store.Extent) (Report, error) {
	if err := to.Begin(); err != nil {
		return found.report, err
	}
	copied := map[string]codalab.Extent{}
	if err := im.copy(ctx, to, found.contents, known, copied); err != nil || im.ContentsOnly {
		return found.report, err
	}
	on, err := openDisk(im.Stores)
	if err != nil {
		return found.report, err
	}
	taken, err := to.Taken(ctx)
	if err != nil {
		return found.report, err
	}
	err = im.Source.atOneMoment(ctx, func(s snapshot) error {
		if found, err = im.survey(ctx, s, taken, on, known); err != nil {
			return err
		}
		if len(found.report.Stops()) > 0 {
			return ErrStopped
		}
		if err := im.copy(ctx, to, found.contents, known, copied); err != nil {
			return err
		}
		return to.Commit(ctx, im.Source.Name, store.Time{Time: im.Now}, func(rows store.ImportedRows) error {
			return im.write(ctx, s, rows, copied, found.report.Bundles)
		})
	})
	found.report.Imported = err == nil
	return found.report, err
}

// copy copies contents that are not in copied, some at a time, and adds their extents there.
func (im *Import) copy(ctx context.Context, to *store.Import, all []store.Contents, known map[string]store.Extent, copied map[string]codalab.Extent) error {
	const mostBundles, mostBytes = 256, 1 << 30 // each time is a flush of the disk
	var some []store.Contents
	var bytes, total int64
	for _, c := range all {
		if _, ok := copied[c.UUID]; !ok {
			total += known[c.UUID].Bytes
		}
	}
	meter := newMeter(func(done int64) { im.Progress(StepCopy, done, total) })
	add := func() error {
		found, err := to.AddContents(ctx, some, im.Link, meter.add)
		if err != nil {
			return err
		}
		for i, c := range some {
			copied[c.UUID] = found[i]
		}
		some, bytes = nil, 0
		return nil
	}
	for _, c := range all {
		if _, ok := copied[c.UUID]; ok {
			continue
		}
		some, bytes = append(some, c), bytes+known[c.UUID].Bytes
		if len(some) >= mostBundles || bytes >= mostBytes {
			if err := add(); err != nil {
				return err
			}
		}
	}
	if len(some) == 0 {
		return nil
	}
	return add()
}

// write writes all rows of a snapshot.
func (im *Import) write(ctx context.Context, s snapshot, to store.ImportedRows, copied map[string]codalab.Extent, total int) error {
	c := newConverter(nil, store.Taken{}, im.CheckHash)
	all, err := c.people(ctx, s)
	if err == nil {
		err = to.Users(ctx, all.users)
	}
	if err == nil {
		err = to.Groups(ctx, all.groups, all.members)
	}
	if err == nil {
		err = s.worksheets(ctx, func(rows []worksheetRow) error { return c.writeWorksheets(ctx, to, rows) })
	}
	if err != nil {
		return err
	}
	done := 0
	return s.bundles(ctx, func(rows []bundleRow) error {
		if err := c.writeBundles(ctx, to, rows, copied); err != nil {
			return err
		}
		done += len(rows)
		im.Progress(StepWrite, int64(done), int64(total))
		return nil
	})
}

func (c *converter) writeWorksheets(ctx context.Context, to store.ImportedRows, rows []worksheetRow) error {
	var worksheets []store.Worksheet
	var items []store.Item
	var granted []store.Permission
	for _, row := range rows {
		w, some, p, err := c.worksheet(row)
		if err != nil {
			return fmt.Errorf("import worksheet %s: %w", row.UUID, err)
		}
		worksheets, items, granted = append(worksheets, w), append(items, some...), append(granted, p...)
	}
	return to.Worksheets(ctx, worksheets, items, granted)
}

func (c *converter) writeBundles(ctx context.Context, to store.ImportedRows, rows []bundleRow, copied map[string]codalab.Extent) error {
	var bundles []store.Bundle
	var granted []store.Permission
	for _, row := range rows {
		b, p, ok := c.bundle(row)
		if !ok {
			continue
		}
		extent, has := copied[b.UUID]
		if has {
			b.Contents, b.Entries = store.ImportedContents(b.UUID), extent.Entries
		}
		if has || b.Metadata.Has("data_size") {
			b.DataSize, b.Metadata["data_size"] = extent.Bytes, extent.Bytes
		}
		bundles, granted = append(bundles, b), append(granted, p...)
	}
	return to.Bundles(ctx, bundles, granted)
}
