package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// pageSize bounds the documents that a search holds in memory.
const pageSize = 1000

// BundlesOfJob returns at most limit bundles that have had a job, also in an earlier attempt: those with a row, else
// those that are forgotten. Slurm uses a job's id again after some millions of jobs.
func (r *Reader) BundlesOfJob(ctx context.Context, job sbatch.JobID, limit int) ([]string, error) {
	var bundles []string
	err := r.db.SelectContext(ctx, &bundles, r.db.Rebind(`
		SELECT bundle FROM rows WHERE job = ?
		UNION SELECT bundle FROM history WHERE job = ?
		ORDER BY bundle LIMIT ?`), int64(job), int64(job), limit)
	if err == nil && len(bundles) == 0 {
		bundles, err = r.forgottenOfJob(ctx, job, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("find bundles of job %s: %w", job, err)
	}
	return bundles, nil
}

// forgottenOfJob reads all packed histories.
func (r *Reader) forgottenOfJob(ctx context.Context, job sbatch.JobID, limit int) ([]string, error) {
	var bundles []string
	for last := ""; ; {
		var page []struct{ Bundle, Entries string }
		err := r.db.SelectContext(ctx, &page, r.db.Rebind(`SELECT bundle, entries FROM forgotten WHERE bundle > ? ORDER BY bundle LIMIT ?`), last, pageSize)
		if err != nil {
			return nil, err
		}
		for _, f := range page {
			entries, err := unpackEntries(f.Entries)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(entries, func(e entry) bool { return e.Job == int64(job) }) {
				bundles = append(bundles, f.Bundle)
			}
		}
		if len(page) < pageSize || len(bundles) >= limit {
			return bundles[:min(len(bundles), limit)], nil
		}
		last = page[len(page)-1].Bundle
	}
}

// RowsNamed returns the rows of bundles with a name, the newest offer first. Histories of forgotten bundles have no
// names.
func (r *Reader) RowsNamed(ctx context.Context, name string) ([]plan.Row, error) {
	var named []plan.Row
	for last := ""; ; {
		var page []struct {
			Bundle string
			document
		}
		err := r.db.SelectContext(ctx, &page, r.db.Rebind(`SELECT bundle, version, format, document FROM rows WHERE bundle > ? ORDER BY bundle LIMIT ?`), last, pageSize)
		if err != nil {
			return nil, fmt.Errorf("find bundles named %s: %w", name, err)
		}
		for _, d := range page {
			row, err := d.row()
			if err != nil {
				return nil, err
			}
			if row.Run != nil && row.Run.Metadata.String("name") == name {
				named = append(named, row)
			}
		}
		if len(page) < pageSize {
			slices.SortStableFunc(named, func(a, b plan.Row) int { return b.OfferedAt.Compare(a.OfferedAt) })
			return named, nil
		}
		last = page[len(page)-1].Bundle
	}
}
