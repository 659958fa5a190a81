package codalabimport

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// survey is the result of surveying one snapshot.
type survey struct {
	report   Report
	contents []store.Contents
}

// survey checks everything of a snapshot. It does not measure contents that are in known again.
func (im *Import) survey(ctx context.Context, s snapshot, taken store.Taken, on disk, known map[string]store.Extent) (survey, error) {
	n := &notes{}
	c := newConverter(n, taken, im.CheckHash)
	found := survey{report: Report{Source: im.Source.Name, States: map[string]int{}}}
	r := &found.report
	all, err := c.people(ctx, s)
	if err != nil {
		return found, err
	}
	r.Users, r.Groups, r.Members = len(all.users), len(all.groups), len(all.members)
	err = s.worksheets(ctx, func(rows []worksheetRow) error {
		for _, row := range rows {
			_, items, granted, err := c.worksheet(row)
			if err != nil {
				return err
			}
			r.Worksheets, r.Items, r.Permissions = r.Worksheets+1, r.Items+len(items), r.Permissions+len(granted)
		}
		return nil
	})
	if err != nil {
		return found, err
	}
	total, err := s.countBundles(ctx)
	if err != nil {
		return found, err
	}
	owners := map[string]string{}
	err = s.bundles(ctx, func(rows []bundleRow) error {
		for _, row := range rows {
			b, granted, ok := c.bundle(row)
			if !ok {
				continue
			}
			r.Bundles, r.Permissions = r.Bundles+1, r.Permissions+len(granted)
			r.States[string(b.State)]++
			owners[b.UUID] = b.OwnerID
			if b.Metadata.String("link_url") != "" {
				r.Links++
			} else if path := im.locate(n, row, b, on); path != "" {
				found.contents = append(found.contents, store.Contents{UUID: b.UUID, Path: path})
			}
		}
		im.Progress(StepRead, int64(r.Bundles), total)
		return ctx.Err()
	})
	if err != nil {
		return found, err
	}
	if err := im.measure(ctx, n, found.contents, known); err != nil {
		return found, err
	}
	im.addUp(n, &found, all.users, owners, known)
	r.Problems = n.all()
	return found, nil
}

// locate returns the path of a bundle's contents on the disk; empty if there are none, or if they are not
// complete.
func (im *Import) locate(n *notes, row bundleRow, b store.Bundle, on disk) string {
	if !codalab.State(row.State).Final() {
		return ""
	}
	if path := on.pathOf(b.UUID); path != "" {
		return path
	}
	elsewhere := row.StorageType.String
	if len(row.Locations) > 0 {
		elsewhere = row.Locations[0].StorageType.String
	}
	size := b.Metadata.Int("data_size")
	switch {
	case elsewhere != "" && elsewhere != "disk":
		n.note(ProblemElsewhere, b.UUID, "its contents (data_size %s) are in a store of the type %s; it gets none", codalab.FormatSize(size), elsewhere)
	case b.State != codalab.StateReady || size == 0: // a run may fail before it has results; users may delete contents alone
	case im.AcceptMissing:
		n.note(ProblemMissing, b.UUID, "its contents (data_size %s) are not in the store; it gets none", codalab.FormatSize(size))
	default:
		n.stop(ProblemMissing, b.UUID, "its contents (data_size %s) are not in the store", codalab.FormatSize(size))
	}
	return ""
}

// measure measures contents that are not in known, and adds them there.
func (im *Import) measure(ctx context.Context, n *notes, all []store.Contents, known map[string]store.Extent) error {
	const atOnce = 4
	fresh := slices.DeleteFunc(slices.Clone(all), func(c store.Contents) bool {
		_, ok := known[c.UUID]
		return ok
	})
	meter := newMeter(func(done int64) { im.Progress(StepMeasure, done, int64(len(fresh))) })
	found := make([]store.Extent, len(fresh))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, c := range fresh {
		g.Go(func() (err error) {
			found[i], err = store.MeasureContents(ctx, c.Path)
			if errors.Is(err, fs.ErrPermission) {
				found[i].Unreadable, err = append(found[i].Unreadable, c.Path), nil
			}
			meter.add(1)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, c := range fresh {
		for _, path := range found[i].Unreadable {
			n.stop(ProblemUnreadable, path, "this process may not read it")
		}
		known[c.UUID] = found[i]
	}
	return nil
}

// addUp adds up contents, and compares them with quotas and with the room on the disk.
func (im *Import) addUp(n *notes, found *survey, users []store.User, owners map[string]string, known map[string]store.Extent) {
	r := &found.report
	used := map[string]int64{}
	var need, files int64
	for _, c := range found.contents {
		e := known[c.UUID]
		r.Contents.Bundles++
		r.Contents.Files += e.Files
		r.Contents.Bytes += e.Bytes
		used[owners[c.UUID]] += e.Space().Bytes
		if e.Special > 0 {
			n.note(ProblemSpecial, c.UUID, "its contents have pipes, sockets or devices (%d), which are left out", e.Special)
		}
		if !store.IsImported(im.Dir, c.UUID) {
			need, files = need+e.Bytes, files+int64(e.Files)
		}
	}
	for _, u := range users {
		var full []string
		if used[u.ID] >= u.DiskQuota {
			full = append(full, "disk quota: "+codalab.FormatSize(used[u.ID])+" of "+codalab.FormatSize(u.DiskQuota))
		}
		if u.TimeUsed >= u.TimeQuota {
			full = append(full, "time quota")
		}
		if len(full) > 0 {
			n.note(ProblemUser, u.Name, "has used up the %s", strings.Join(full, " and the "))
		}
	}
	room, err := diskspace.Of(diskspace.Nearest(im.Dir))
	if err != nil || im.Link {
		return // copying reports the error
	}
	if need > room.Free {
		n.stop(ProblemRoom, im.Dir, "contents need %s, and its disk has %s", codalab.FormatSize(need), codalab.FormatSize(room.Free))
	} else if room.Files > 0 && files > room.FreeFiles {
		n.stop(ProblemRoom, im.Dir, "contents need %d files, and its disk has room for %d", files, room.FreeFiles)
	}
}
