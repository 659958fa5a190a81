package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// usageRow is a row of the table bundle_usage.
type usageRow struct {
	UUID   string `db:"bundle_uuid"`
	Series string `db:"series"`
}

// Usage returns the series of the use of these runs (Bundle.Usage), by uuid, as far as there are any.
func (s *Store) Usage(ctx context.Context, uuids []string) (map[string]string, error) {
	rows, err := selectIn[usageRow](ctx, s.db, uuids, `SELECT bundle_uuid, series FROM bundle_usage WHERE bundle_uuid IN (?)`)
	found := make(map[string]string, len(rows))
	for _, row := range rows {
		found[row.UUID] = row.Series
	}
	return found, rowError(err, "read usage")
}

func writeUsage(ctx context.Context, tx *sqlx.Tx, rows []usageRow) error {
	err := insertRows(ctx, tx, `
		INSERT INTO bundle_usage (bundle_uuid, series) VALUES (:bundle_uuid, :series)
		ON CONFLICT (bundle_uuid) DO UPDATE SET series = excluded.series`, rows)
	if err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	return nil
}
