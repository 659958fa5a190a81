package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// charged returns the sums of the charges (Bundle.Charge) of a query's bundles.
func charged() (bytes, entries string) {
	return fmt.Sprintf("CAST(coalesce(sum(b.data_size + %d * b.entries), 0) AS BIGINT)", codalab.BlockSize),
		"CAST(coalesce(sum(b.entries), 0) + count(b.uuid) AS BIGINT)"
}

// countCharges counts the disk use of a user, or of all users if the id is empty, from their bundles.
func countCharges(ctx context.Context, tx *sqlx.Tx, id string) error {
	bytes, entries := charged()
	query := `UPDATE users SET disk_used = (SELECT ` + bytes + ` FROM bundles b WHERE b.owner_id = users.id),
		entries_used = (SELECT ` + entries + ` FROM bundles b WHERE b.owner_id = users.id)`
	args := []any{}
	if id != "" {
		query, args = query+` WHERE id = ?`, append(args, id)
	}
	_, err := tx.ExecContext(ctx, tx.Rebind(query), args...)
	return rowError(err, "count disk use")
}

// RunningUse is what an owner's runs that workers have take of the owner's quotas so far.
type RunningUse struct {
	OwnerID string `db:"owner_id"`
	Disk    int64  `db:"disk"` // in bytes
	Time    int64  `db:"time"` // in seconds, of runs on workers of root and of worker accounts
}

// RunningUse returns what the runs on workers use, by owner; nothing for an owner of these who has none.
func (s *Store) RunningUse(ctx context.Context, ownerIDs []string) (map[string]RunningUse, error) {
	bytes, _ := charged()
	found, err := selectIn[RunningUse](ctx, s.db, ownerIDs, `
		SELECT b.owner_id, `+bytes+` AS disk,
			CAST(coalesce(sum(CASE WHEN w.id = '`+RootID+`' OR w.is_worker = 1 THEN b.run_time ELSE 0 END), 0) / 1000000 AS BIGINT) AS time
		FROM bundles b LEFT JOIN users w ON w.id = b.worker_user WHERE b.state IN ('preparing', 'running', 'finalizing', 'worker_offline')
			AND b.state NOT IN ('ready', 'failed', 'killed') AND b.owner_id IN (?) GROUP BY b.owner_id`)
	use := make(map[string]RunningUse, len(found))
	for _, one := range found {
		use[one.OwnerID] = one
	}
	return use, rowError(err, "get the use of running runs")
}

// diskUse is a user's disk use, and the sums of their bundles' charges.
type diskUse struct {
	ID          string `db:"id"`
	Name        string `db:"name"`
	Used        int64  `db:"used"`
	Sum         int64  `db:"total"`
	UsedEntries int64  `db:"used_entries"`
	SumEntries  int64  `db:"total_entries"`
}

// checkDiskUsed compares the users' disk use with their bundles. One statement sees both at one
// moment.
func (c *checker) checkDiskUsed(ctx context.Context) error {
	var all []diskUse
	bytes, entries := charged()
	err := c.db.SelectContext(ctx, &all, `
		SELECT u.id, u.name, u.disk_used AS used, `+bytes+` AS total, u.entries_used AS used_entries, `+entries+` AS total_entries
		FROM users u LEFT JOIN bundles b ON b.owner_id = u.id
		GROUP BY u.id, u.name, u.disk_used, u.entries_used ORDER BY u.name`)
	if err != nil {
		return fmt.Errorf("check disk use: %w", err)
	}
	for _, u := range all {
		problem := ""
		switch {
		case u.Used != u.Sum:
			problem = fmt.Sprintf("user %s has disk_used %d, the bundles have %d bytes", u.Name, u.Used, u.Sum)
		case u.UsedEntries != u.SumEntries:
			problem = fmt.Sprintf("user %s has entries_used %d, the bundles have %d entries", u.Name, u.UsedEntries, u.SumEntries)
		default:
			continue
		}
		err := c.found(Finding{Kind: FindingDiskUsed, Object: u.ID, Problem: problem}, func() error {
			return c.db.InTx(ctx, func(tx *sqlx.Tx) error { return countCharges(ctx, tx, u.ID) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CountEntries counts the entries of contents that a program without this count has stored, and returns the number
// of bundles. It reads directories alone, one bundle after the other. It counts all others before it returns an error
// for contents that it cannot count. The error names one bundle and the number of all, which is large if the disk of
// the contents is not there.
func (s *Store) CountEntries(ctx context.Context) (counted int, err error) {
	var uncounted uncounted
	for last := ""; ; {
		var rows []bundleRow
		err := s.db.SelectContext(ctx, &rows, s.db.Rebind(`
			SELECT * FROM bundles WHERE entries = 0 AND contents <> '' AND uuid > ? ORDER BY uuid LIMIT ?`), last, checkedAtOnce)
		if err != nil {
			return counted, errors.Join(uncounted.err(), rowError(err, "count entries"))
		}
		for _, row := range rows {
			if err := ctx.Err(); err != nil {
				return counted, errors.Join(uncounted.err(), err)
			}
			last = row.UUID
			extent, err := s.measure(row.Bundle)
			if err == nil {
				extent.Bytes = row.DataSize // a fault of that is for Check
				err = s.setExtent(ctx, row.Bundle, extent)
			}
			if err != nil {
				uncounted.add(row.UUID, err)
				continue
			}
			counted++
		}
		if len(rows) < checkedAtOnce {
			return counted, uncounted.err()
		}
	}
}

// uncounted are the bundles whose entries could not be counted.
type uncounted struct {
	n     int
	uuid  string // the first bundle
	first error
}

func (u *uncounted) add(uuid string, err error) {
	if u.n++; u.n == 1 {
		u.uuid, u.first = uuid, err
	}
}

func (u *uncounted) err() error {
	switch u.n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("count entries of bundle %s: %w", u.uuid, u.first)
	}
	return fmt.Errorf("count entries of bundle %s and %d others: %w", u.uuid, u.n-1, u.first)
}
