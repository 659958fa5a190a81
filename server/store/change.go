package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Change reads a bundle, calls decide to change it, and writes it back, in one transaction. It
// returns the changed bundle. It counts a change of the charge or of the owner in the owners' disk
// use. With such a change or with other contents, the bundle's offer ends. Contents that the bundle no longer
// names are removed a little later. Change does not write dependencies. If decide fails, it writes nothing and returns decide's error. It may call decide several
// times, so decide must only change the bundle. It replaces the Cost and the Platform, and does not change them in place.
func (s *Store) Change(ctx context.Context, uuid string, decide func(*Bundle) error) (Bundle, error) {
	return s.changeAnd(ctx, uuid, decide, func(*sqlx.Tx) ([]codalab.Granted, error) { return nil, nil })
}

// changeAnd is Change with something more in its transaction, which changes the permissions of some groups.
func (s *Store) changeAnd(ctx context.Context, uuid string, decide func(*Bundle) error, more func(*sqlx.Tx) ([]codalab.Granted, error)) (Bundle, error) {
	var b Bundle
	had := ""
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		w := newWriter()
		some, err := w.read(ctx, tx, []string{uuid})
		if err != nil {
			return err
		}
		if _, there := some[uuid]; !there {
			return rowError(sql.ErrNoRows, "get bundle "+uuid)
		}
		b = some[uuid]
		had = b.Contents
		if b, err = w.change(ctx, tx, b, decide); err != nil {
			return err
		}
		lowered, err := more(tx)
		if err != nil {
			return err
		}
		var events []Event
		for _, g := range lowered {
			events = append(events, b.event(codalab.ActionShared, codalab.EventDetails{Groups: []codalab.Granted{g}}))
		}
		b.Recorded = append(b.Recorded, events...)
		w.events = append(w.events, events...)
		return w.write(ctx, tx)
	})
	if err == nil {
		s.removeReplaced(had, b)
		s.tell(ctx, b.Recorded)
		b.Recorded = nil
		s.changed(b)
	}
	return b, err
}

// removeReplaced removes the contents that a bundle had, if it has others now.
func (s *Store) removeReplaced(had string, b Bundle) {
	if had != b.Contents {
		s.RemoveLater(had)
	}
}

// changedAtOnce is the number of bundles that one transaction changes or deletes. Writers wait for
// each other, so a larger number would make a new bundle wait for all reports of a worker with thousands of
// runs.
const changedAtOnce = 50

// BundleChange is a change of a bundle, which Decide makes or refuses; see Change.
type BundleChange struct {
	UUID   string
	Decide func(*Bundle) error
}

// ChangeAll is ChangeEach with one change for all bundles.
func (s *Store) ChangeAll(ctx context.Context, uuids []string, decide func(*Bundle) error) (map[string]Bundle, error) {
	changes := make([]BundleChange, 0, len(uuids))
	for _, uuid := range uuids {
		changes = append(changes, BundleChange{uuid, decide})
	}
	return s.ChangeEach(ctx, changes)
}

// ChangeEach is Change for several bundles, some of them in each transaction. It ignores a bundle that does
// not exist, and returns the others by uuid; after an error, the changed ones.
func (s *Store) ChangeEach(ctx context.Context, changes []BundleChange) (map[string]Bundle, error) {
	changed := make(map[string]Bundle, len(changes))
	for part := range slices.Chunk(changes, changedAtOnce) {
		some, err := s.changeSome(ctx, part)
		if err != nil {
			return changed, err
		}
		maps.Copy(changed, some)
	}
	return changed, nil
}

// changeSome is ChangeEach in one transaction.
func (s *Store) changeSome(ctx context.Context, changes []BundleChange) (some map[string]Bundle, err error) {
	uuids := make([]string, 0, len(changes))
	for _, c := range changes {
		uuids = append(uuids, c.UUID)
	}
	had := map[string]string{}
	var w *writer
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		w = newWriter()
		if some, err = w.read(ctx, tx, uuids); err != nil {
			return err
		}
		for uuid, b := range some {
			had[uuid] = b.Contents
		}
		for _, c := range changes {
			b, ok := some[c.UUID]
			if !ok {
				continue
			}
			if b, err = w.change(ctx, tx, b, c.Decide); err != nil {
				return err
			}
			b.Recorded = nil
			some[c.UUID] = b
		}
		return w.write(ctx, tx)
	})
	if err != nil {
		return nil, err
	}
	for uuid, b := range some {
		s.removeReplaced(had[uuid], b)
	}
	s.tell(ctx, w.events)
	s.changed(slices.Collect(maps.Values(some))...)
	return some, nil
}

// writer writes the changes of bundles in a transaction, all of them by a few statements.
type writer struct {
	had    map[string]readRow   // the rows as they were read, by uuid
	rows   map[string]bundleRow // of the changed bundles, by uuid
	events []Event
	usage  []usageRow
	used   charges
	// times are the seconds that the users' runs took.
	times map[string]int64
}

func newWriter() *writer {
	return &writer{had: map[string]readRow{}, rows: map[string]bundleRow{}, used: charges{}, times: map[string]int64{}}
}

// read reads the bundles that the transaction may change.
func (w *writer) read(ctx context.Context, tx *sqlx.Tx, uuids []string) (map[string]Bundle, error) {
	rows, err := selectIn[bundleRow](ctx, tx, uuids, `SELECT * FROM bundles WHERE uuid IN (?)`)
	some, err := withDependencies(ctx, tx, uuids, rows, err)
	for _, row := range rows {
		w.had[row.UUID] = readRow{row, some[row.UUID].Cost, some[row.UUID].Platform}
	}
	return some, err
}

// change changes a bundle that read has read, or that was changed since. The change is written by write.
func (w *writer) change(ctx context.Context, tx *sqlx.Tx, b Bundle, decide func(*Bundle) error) (Bundle, error) {
	charge, extent, contents, owner, offer := b.Charge(), b.Extent(), b.Contents, b.OwnerID, b.Offer
	had := w.had[b.UUID]
	before, ok := w.rows[b.UUID]
	if !ok {
		before = had.bundleRow
	}
	if err := decide(&b); err != nil {
		return b, err
	}
	if b.OwnerID != owner || b.Contents != contents || b.Extent() != extent {
		b.Offer = Offer{} // it was for what is gone
	}
	if b.Usage != "" {
		w.usage = append(w.usage, usageRow{b.UUID, b.Usage})
		b.Usage = ""
	}
	row, err := b.rowAfter(had)
	if err != nil || changedColumns(&before, &row) == 0 && len(b.Recorded) == 0 {
		return b, err
	}
	giving, err := givingEvent(ctx, tx, ownership{owner, offer}, ownership{b.OwnerID, b.Offer})
	if err != nil {
		return b, err
	}
	if giving.Action != "" {
		b.Record(giving.Action, giving.EventDetails)
	}
	w.rows[b.UUID] = row
	w.events = append(w.events, b.Recorded...)
	w.times[owner] += b.ChargedTime
	b.ChargedTime = 0
	w.used.add(owner, codalab.Space{}.Minus(charge))
	w.used.add(b.OwnerID, b.Charge())
	return b, nil
}

// write writes the changes.
func (w *writer) write(ctx context.Context, tx *sqlx.Tx) error {
	if err := w.writeRows(ctx, tx); err != nil {
		return fmt.Errorf("change bundles: %w", err)
	}
	if err := writeHistories(ctx, tx, w.events); err != nil {
		return err
	}
	if err := writeUsage(ctx, tx, w.usage); err != nil {
		return err
	}
	for _, user := range slices.Sorted(maps.Keys(w.times)) {
		if w.times[user] == 0 {
			continue
		}
		_, err := tx.ExecContext(ctx, tx.Rebind(`
			UPDATE users SET time_used = CASE WHEN time_used + ? > ? THEN ? ELSE time_used + ? END WHERE id = ?`),
			w.times[user], mostUsed, mostUsed, w.times[user], user)
		if err != nil {
			return fmt.Errorf("count the time of runs of user %s: %w", user, err)
		}
	}
	return w.used.write(ctx, tx)
}

// charges are changes of users' disk use, by user.
type charges map[string]codalab.Space

func (c charges) add(user string, more codalab.Space) { c[user] = c[user].Plus(more) }

// write adds them to the users' disk use, whose numbers stay between 0 and mostUsed.
func (c charges) write(ctx context.Context, tx *sqlx.Tx) error {
	for _, user := range slices.Sorted(maps.Keys(c)) {
		if err := addCharge(ctx, tx, user, c[user]); err != nil {
			return err
		}
	}
	return nil
}
