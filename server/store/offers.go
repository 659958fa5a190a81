package store

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"
)

// Offer is an owner's offer of a bundle or worksheet to another user. It is a part of the object's row, so that
// it ends with the object. It says nothing of its end by time: package plan does.
type Offer struct {
	// To is the id of the user to whom the object is offered; empty without an offer.
	To string `db:"offered_to"`
	// Made is the time of the offer.
	Made Time `db:"offered"`
}

// Offered is an object with an open offer.
type Offered struct {
	Kind    Shared `db:"kind"`
	UUID    string `db:"uuid"`
	Name    string `db:"name"`
	OwnerID string `db:"owner_id"`
	// Type and DataSize are those of a bundle.
	Type     string `db:"bundle_type"`
	DataSize int64  `db:"data_size"`
	Offer
}

// Offers returns the objects that others offer to a user, or the user to others, whose offers were made after a
// time; the oldest first.
func (s *Store) Offers(ctx context.Context, userID string, after time.Time) ([]Offered, error) {
	const which = `offered_to <> '' AND (offered_to = ? OR owner_id = ?) AND offered > ?`
	args := []any{userID, userID, Time{after}}
	var all []Offered
	err := s.db.SelectContext(ctx, &all, s.db.Rebind(`
		SELECT 'bundle' AS kind, uuid, name, owner_id, bundle_type, data_size, offered_to, offered FROM bundles WHERE `+which+`
		UNION ALL
		SELECT 'worksheet' AS kind, uuid, name, owner_id, '' AS bundle_type, 0 AS data_size, offered_to, offered FROM worksheets WHERE `+which+`
		ORDER BY offered, uuid`), append(args, args...)...)
	return all, rowError(err, "list offers of user "+userID)
}

// CountOffers returns the number of offers that were made after a time: of one user to another, and of all users
// to that other.
func (s *Store) CountOffers(ctx context.Context, from, to string, after time.Time) (ofOne, ofAll int, err error) {
	var n struct {
		One int `db:"of_one"`
		All int `db:"of_all"`
	}
	const offers = ` SELECT owner_id FROM bundles WHERE offered_to <> '' AND offered_to = ? AND offered > ?
		UNION ALL SELECT owner_id FROM worksheets WHERE offered_to <> '' AND offered_to = ? AND offered > ?`
	err = s.db.GetContext(ctx, &n, s.db.Rebind(`
		SELECT count(*) AS of_all, coalesce(sum(CASE WHEN owner_id = ? THEN 1 ELSE 0 END), 0) AS of_one FROM (`+offers+`) open_offers`),
		from, to, Time{after}, to, Time{after})
	return n.One, n.All, rowError(err, "count offers to user "+to)
}

// AcceptBundle is Change for a bundle that its new owner accepts. Groups that could change it can only read it
// from then on.
func (s *Store) AcceptBundle(ctx context.Context, uuid string, decide func(*Bundle) error) (Bundle, error) {
	return s.changeAnd(ctx, uuid, decide, func(tx *sqlx.Tx) error {
		if err := SharedBundle.onlyRead(ctx, tx, uuid); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, tx.Rebind(`UPDATE bundles SET public = ? WHERE uuid = ? AND public > ?`), PermissionRead, uuid, PermissionRead)
		return rowError(err, "accept bundle "+uuid)
	})
}

// AcceptWorksheet is ChangeWorksheet for a worksheet that its new owner accepts. Groups that could change it can
// only read it from then on. It fails with ErrTooMany if the owner would have more than MostWorksheets.
func (s *Store) AcceptWorksheet(ctx context.Context, uuid string, decide func(*Worksheet) error) (w Worksheet, err error) {
	var changed Event
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		if w, changed, err = changeWorksheet(ctx, tx, uuid, decide); err != nil {
			return err
		}
		if err := checkOwned(ctx, tx, "worksheets", w.OwnerID, MostWorksheets); err != nil {
			return err
		}
		return SharedWorksheet.onlyRead(ctx, tx, uuid)
	})
	return w, noteUnless(ctx, err, changed)
}

// onlyRead makes the permissions of groups on an object permissions to read it.
func (k Shared) onlyRead(ctx context.Context, tx *sqlx.Tx, uuid string) error {
	_, err := tx.ExecContext(ctx, tx.Rebind(`UPDATE `+k.table()+` SET permission = ? WHERE `+k.column()+` = ? AND permission > ?`),
		PermissionRead, uuid, PermissionRead)
	return rowError(err, "accept "+string(k)+" "+uuid)
}

// endOffers ends the offers of objects of a kind to a user.
func (k Shared) endOffers(ctx context.Context, tx *sqlx.Tx, userID string) error {
	_, err := tx.ExecContext(ctx, tx.Rebind(`
		UPDATE `+string(k)+`s SET offered_to = '', offered = 0 WHERE offered_to <> '' AND offered_to = ?`), userID)
	return rowError(err, "end the offers to user "+userID)
}
