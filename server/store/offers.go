package store

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
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
	// Type, DataSize and Entries are those of a bundle.
	Type     string `db:"bundle_type"`
	DataSize int64  `db:"data_size"`
	Entries  int64  `db:"entries"`
	Offer
}

// Charge returns what the object takes of its receiver's disk quota: nothing if it is a worksheet.
func (o Offered) Charge() codalab.Space {
	if o.Kind != SharedBundle {
		return codalab.Space{}
	}
	return Bundle{DataSize: o.DataSize, Entries: o.Entries}.Charge()
}

// Offers returns the objects that others offer to a user, or the user to others, whose offers were made after a
// time; the oldest first.
func (s *Store) Offers(ctx context.Context, userID string, after time.Time) ([]Offered, error) {
	const which = `offered_to <> '' AND (offered_to = ? OR owner_id = ?) AND offered > ?`
	args := []any{userID, userID, Time{after}}
	var all []Offered
	err := s.db.SelectContext(ctx, &all, s.db.Rebind(`
		SELECT 'bundle' AS kind, uuid, name, owner_id, bundle_type, data_size, entries, offered_to, offered FROM bundles WHERE `+which+`
		UNION ALL
		SELECT 'worksheet' AS kind, uuid, name, owner_id, '' AS bundle_type, 0 AS data_size, 0 AS entries, offered_to, offered FROM worksheets WHERE `+which+`
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
	return s.changeAnd(ctx, uuid, decide, func(tx *sqlx.Tx) ([]codalab.Granted, error) {
		lowered, err := SharedBundle.onlyRead(ctx, tx, uuid)
		if err != nil {
			return nil, err
		}
		_, err = tx.ExecContext(ctx, tx.Rebind(`UPDATE bundles SET public = ? WHERE uuid = ? AND public > ?`), PermissionRead, uuid, PermissionRead)
		return lowered, rowError(err, "accept bundle "+uuid)
	})
}

// AcceptWorksheet is ChangeWorksheet for a worksheet that its new owner accepts. Groups that could change it can
// only read it from then on. It fails with ErrTooMany if the owner would have more than MostWorksheets.
func (s *Store) AcceptWorksheet(ctx context.Context, uuid string, decide func(*Worksheet) error) (w Worksheet, err error) {
	var events []Event
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		var changed Event
		if w, changed, err = changeWorksheet(ctx, tx, uuid, decide); err != nil {
			return err
		}
		if err := checkOwned(ctx, tx, "worksheets", w.OwnerID, MostWorksheets); err != nil {
			return err
		}
		lowered, err := SharedWorksheet.onlyRead(ctx, tx, uuid)
		events = []Event{changed}
		for _, g := range lowered {
			events = append(events, w.event(codalab.ActionShared, codalab.EventDetails{Groups: []codalab.Granted{g}}))
		}
		return err
	})
	return w, noteUnless(ctx, err, events...)
}

// onlyRead makes the permissions of groups on an object permissions to read it. It returns what the groups may do now
// that could do more.
func (k Shared) onlyRead(ctx context.Context, tx *sqlx.Tx, uuid string) (lowered []codalab.Granted, err error) {
	var groups []codalab.Named
	err = tx.SelectContext(ctx, &groups, tx.Rebind(`
		SELECT g.uuid AS id, g.name FROM `+k.table()+` p JOIN groups g ON g.uuid = p.group_uuid WHERE p.`+k.column()+` = ? AND p.permission > ? ORDER BY g.name`),
		uuid, PermissionRead)
	if err != nil {
		return nil, rowError(err, "accept "+string(k)+" "+uuid)
	}
	for _, g := range groups {
		lowered = append(lowered, codalab.Granted{Group: g, Permission: codalab.PermissionSpec(PermissionRead)})
	}
	_, err = tx.ExecContext(ctx, tx.Rebind(`UPDATE `+k.table()+` SET permission = ? WHERE `+k.column()+` = ? AND permission > ?`),
		PermissionRead, uuid, PermissionRead)
	return lowered, rowError(err, "accept "+string(k)+" "+uuid)
}

// ownership is an object's owner and the owner's offer.
type ownership struct {
	owner string
	offer Offer
}

// givingEvent is the event of an object whose owner or offer has changed. It has no action if neither has.
func givingEvent(ctx context.Context, tx *sqlx.Tx, was, is ownership) (e Event, err error) {
	switch {
	case is.owner != was.owner:
		e.Action = codalab.ActionGave
		if e.Before, err = describeUser(ctx, tx, was.owner); err == nil {
			e.Owner, err = describeUser(ctx, tx, is.owner)
		}
	case is.offer.To != "" && is.offer != was.offer:
		e.Action = codalab.ActionOffered
		e.Owner, err = describeUser(ctx, tx, is.offer.To)
	case is.offer.To == "" && was.offer.To != "":
		e.Action = codalab.ActionUnoffered
		e.Owner, err = describeUser(ctx, tx, was.offer.To)
	}
	return e, err
}

// endOffers ends the offers of objects of a kind to a user.
func (k Shared) endOffers(ctx context.Context, tx *sqlx.Tx, userID string) error {
	_, err := tx.ExecContext(ctx, tx.Rebind(`
		UPDATE `+string(k)+`s SET offered_to = '', offered = 0 WHERE offered_to <> '' AND offered_to = ?`), userID)
	return rowError(err, "end the offers to user "+userID)
}
