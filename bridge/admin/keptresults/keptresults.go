// Package keptresults lists the results that stay on the shared disk (results = "keep"), and removes
// those that no bundle needs, for `cl-bridge kept`.
package keptresults

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Results are kept results with what is known of their bundle.
type Results struct {
	spool.KeptResults `json:"-"`

	Bundle    string `json:"bundle"`
	Directory string `json:"directory"`
	Bytes     int64  `json:"bytes"`
	Entries   int64  `json:"entries"`
	// Superseded and Removing are those of spool.KeptResults.
	Superseded bool `json:"superseded"`
	Removing   bool `json:"removing"`
	// Deleted is set for a bundle that the server has no more. State and Title are the server's; empty where it
	// was not asked or did not answer.
	Deleted bool          `json:"deleted"`
	State   codalab.State `json:"state,omitempty"`
	Title   string        `json:"name,omitempty"`
	// Outcome is set by [Remove]: "removed", "would be removed", or the reason for which they stay.
	Outcome string `json:"outcome,omitempty"`
}

// List returns the kept results that want accepts.
func List(ctx context.Context, layout spool.Layout, want func(spool.KeptResults) bool) ([]Results, error) {
	disk := spool.Disk{Layout: layout}
	all, err := disk.ListKeptResults()
	if err != nil {
		return nil, err
	}
	found := []Results{}
	for _, k := range all {
		if !want(k) {
			continue
		}
		r := Results{KeptResults: k, Bundle: k.Bundle, Directory: layout.KeptDir(k.Name), Superseded: k.Superseded, Removing: k.Removing}
		if r.Bytes, r.Entries, err = disk.MeasureKeptResults(ctx, k); err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, nil
}

// AskServer asks the server for the bundles of some results, of which it has only the listings.
// It returns the first error that is no answer; what the server does not answer stays empty.
func AskServer(ctx context.Context, cl *client.Client, found []Results) error {
	if _, err := cl.User(ctx); err != nil { // only a server that knows its users may say that a bundle is gone
		return fmt.Errorf("ask the server: %w", err)
	}
	var group errgroup.Group
	group.SetLimit(8)
	for i := range found {
		r := &found[i]
		group.Go(func() error {
			b, err := cl.Bundle(ctx, r.Bundle)
			switch {
			case codalab.IsStatus(err, http.StatusNotFound):
				r.Deleted = true
			case err != nil:
				return fmt.Errorf("ask for bundle %s: %w", r.Bundle, err)
			default:
				r.State, r.Title = b.State, b.Metadata.String("name")
			}
			return nil
		})
	}
	return group.Wait()
}

// Remove removes the results that no bundle needs, and notes the outcome of each. It returns how many were
// left. rows reads the ledger: it is called before and after the results are put aside, because a bundle that
// is claimed between the two calls may need them. With dryRun nothing is removed.
func Remove(layout spool.Layout, found []Results, rows func() ([]plan.Row, error), dryRun bool) (left int, err error) {
	for i := range found {
		removed, err := removeOne(layout, &found[i], rows, dryRun)
		if err != nil {
			return left, err
		}
		if !removed {
			left++
		}
	}
	return left, nil
}

func removeOne(layout spool.Layout, r *Results, rows func() ([]plan.Row, error), dryRun bool) (bool, error) {
	user := ""
	inUse := func() (bool, error) {
		all, err := rows()
		user = userOf(all, r.Bundle)
		return user != "", err
	}
	used, err := inUse()
	switch {
	case err != nil:
		return false, err
	case !used && dryRun:
		r.Outcome = "would be removed"
		return true, nil
	case !used:
		removed, err := (spool.Disk{Layout: layout}).RemoveKeptResults(r.KeptResults, inUse)
		if err != nil {
			return false, err
		}
		if removed {
			r.Outcome = "removed"
			return true, nil
		}
	}
	r.Outcome = "in use: " + user
	return false, nil
}

// userOf returns which unfinished bundle of the bridge needs the kept results of a bundle, and
// why; empty means none. The bridge saves a row before it looks for the dependencies of
// its bundle, so the rows show every user.
func userOf(rows []plan.Row, bundle string) string {
	for _, r := range rows {
		switch {
		case r.Bundle == bundle && r.Phase != plan.Done:
			return "the bundle is " + string(r.Phase)
		case r.Run == nil || r.Phase == plan.Collecting || r.Phase == plan.Finalizing || r.Phase == plan.Done:
			continue
		}
		for _, d := range r.Run.Dependencies {
			if d.ParentUUID == bundle {
				return "bundle " + r.Bundle + " depends on it"
			}
		}
	}
	return ""
}

// Text returns the results for people, with their sum.
func Text(found []Results, dir string) string {
	rows := [][]string{{"BUNDLE", "SERVER", "SIZE", "ENTRIES", "NAME"}}
	var sum int64
	for _, r := range found {
		rows = append(rows, []string{strings.TrimPrefix(r.Name, "."), r.server(), codalab.FormatSize(r.Bytes), termtext.Number(r.Entries), termtext.Line(r.Title)})
		sum += r.Bytes
	}
	return fmt.Sprintf("%s%s in all, in %s\n", termtext.Table(rows), codalab.FormatSize(sum), dir)
}

// server returns what the server has of the bundle.
func (r Results) server() string {
	switch {
	case r.Deleted:
		return "deleted"
	case r.State == "":
		return "?"
	}
	return string(r.State)
}

// RemovedText returns for people what [Remove] did.
func RemovedText(found []Results) string {
	rows := make([][]string, 0, len(found))
	for _, r := range found {
		rows = append(rows, []string{r.Directory, codalab.FormatSize(r.Bytes), r.Outcome})
	}
	return termtext.Table(rows)
}
