package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// No quota counts worksheets and groups, so their number is bounded for each user, and that of items for each worksheet.
// The largest worksheets that people make have some thousand items. A page of a tenth of MostItems takes seconds already.
const (
	MostWorksheets = 20_000
	MostGroups     = 2_000
	MostItems      = 100_000
)

// checkOwned fails with ErrTooMany if a user owns more than most rows of a table.
func checkOwned(ctx context.Context, tx *sqlx.Tx, table, ownerID string, most int) error {
	var owned int
	err := tx.GetContext(ctx, &owned, tx.Rebind(`SELECT count(*) FROM `+table+` WHERE owner_id = ?`), ownerID)
	if err == nil && owned > most {
		err = ErrTooMany
	}
	if err != nil {
		return fmt.Errorf("add to the %s of user %s: %w", table, ownerID, err)
	}
	return nil
}
