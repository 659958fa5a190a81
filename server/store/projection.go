package store

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// manyTags stands in the column tags for tags that the index of searches cannot hold: they are
// long, or have line feeds.
const manyTags = "*"

// tagsColumn returns a bundle's tags as the column tags has them.
func tagsColumn(m codalab.Metadata) string {
	const longest = 500 // an index of PostgreSQL holds rows of 2.7 kB
	tags := m.Strings("tags")
	if len(tags) == 0 {
		return ""
	}
	text := strings.Join(tags, "\n")
	if len(text) > longest || strings.Count(text, "\n") != len(tags)-1 {
		return manyTags
	}
	return "\n" + text + "\n"
}

// timeColumn returns a run's time in microseconds; nil if the metadata have none.
func timeColumn(m codalab.Metadata) *int64 {
	us := m.Float("time") * 1e6
	if !m.Has("time") || !(math.Abs(us) < 1<<62) {
		return nil
	}
	n := int64(us)
	return &n
}

// fillColumns fills the columns of bundles that a program without these columns has written.
func (s *Store) fillColumns(ctx context.Context) error {
	for {
		var uuids []string
		err := s.db.SelectContext(ctx, &uuids, s.db.Rebind(`SELECT uuid FROM bundles WHERE tags IS NULL LIMIT ?`), inOneStatement)
		if err != nil || len(uuids) == 0 {
			return rowError(err, "prepare bundles for searches")
		}
		if err := s.db.InTx(ctx, func(tx *sqlx.Tx) error { return fillColumns(ctx, tx, uuids) }); err != nil {
			return err
		}
	}
}

func fillColumns(ctx context.Context, tx *sqlx.Tx, uuids []string) error {
	found, err := getBundles(ctx, tx, uuids)
	if err != nil {
		return err
	}
	for _, b := range found {
		_, err := tx.ExecContext(ctx, tx.Rebind(`UPDATE bundles SET tags = ?, run_time = ? WHERE uuid = ?`),
			tagsColumn(b.Metadata), timeColumn(b.Metadata), b.UUID)
		if err != nil {
			return fmt.Errorf("prepare bundle %s for searches: %w", b.UUID, err)
		}
	}
	return nil
}
