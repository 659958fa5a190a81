package store

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Change reads a bundle, calls decide to change it, and writes it back, in one transaction. It
// returns the changed bundle. It counts a change of the charge or of the owner in the owners' disk
// use. With such a change or with other contents, the bundle's offer ends. Contents that the bundle no longer
// names are removed a little later. Change does not write dependencies. If decide fails, it writes nothing and returns decide's error. It may call decide several
// times, so decide must only change the bundle.
func (s *Store) Change(ctx context.Context, uuid string, decide func(*Bundle) error) (Bundle, error) {
	return s.changeAnd(ctx, uuid, decide, func(*sqlx.Tx) ([]codalab.Granted, error) { return nil, nil })
}

// changeAnd is Change with something more in its transaction, which changes the permissions of some groups.
func (s *Store) changeAnd(ctx context.Context, uuid string, decide func(*Bundle) error, more func(*sqlx.Tx) ([]codalab.Granted, error)) (Bundle, error) {
	var b Bundle
	had := ""
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		if b, err = getBundle(ctx, tx, uuid); err != nil {
			return err
		}
		had = b.Contents
		w := newWriter()
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
		if some, err = getBundles(ctx, tx, uuids); err != nil {
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
	rows   map[string]bundleRow // of the changed bundles, by uuid
	events []Event
	usage  []usageRow
	used   charges
	// times are the seconds that the users' runs took.
	times map[string]int64
}

func newWriter() *writer {
	return &writer{rows: map[string]bundleRow{}, used: charges{}, times: map[string]int64{}}
}

// change changes a bundle that was read in the same transaction. The change is written by write.
func (w *writer) change(ctx context.Context, tx *sqlx.Tx, b Bundle, decide func(*Bundle) error) (Bundle, error) {
	charge, extent, owner, offer := b.Charge(), b.Extent(), b.OwnerID, b.Offer
	before, err := b.row()
	if err != nil {
		return Bundle{}, err
	}
	if err := decide(&b); err != nil {
		return b, err
	}
	if b.OwnerID != owner || b.Contents != before.Contents || b.Extent() != extent {
		b.Offer = Offer{} // it was for what is gone
	}
	if b.Usage != "" {
		w.usage = append(w.usage, usageRow{b.UUID, b.Usage})
		b.Usage = ""
	}
	row, err := b.row()
	if err != nil || reflect.DeepEqual(row, before) && len(b.Recorded) == 0 {
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
	rows := make([]bundleRow, 0, len(w.rows))
	for _, uuid := range slices.Sorted(maps.Keys(w.rows)) {
		rows = append(rows, w.rows[uuid])
	}
	// All of these bundles are there, so nothing is inserted: the conflicts let one statement change many rows.
	err := insertRows(ctx, tx, `
		INSERT INTO bundles (uuid, bundle_type, created, owner_id, state, frozen, is_anonymous, name, data_size, entries, metadata,
			tags, run_time, contents, offered_to, offered, cost, platform, worker_user, worker_id, assigned, kill_message)
		VALUES (:uuid, :bundle_type, :created, :owner_id, :state, :frozen, CASE WHEN :is_anonymous THEN 1 ELSE 0 END, :name, :data_size, :entries, :metadata,
			:tags, :run_time, :contents, :offered_to, :offered, :cost, :platform, :worker_user, :worker_id, :assigned, :kill_message)
		ON CONFLICT (uuid) DO UPDATE SET owner_id = excluded.owner_id, state = excluded.state, frozen = excluded.frozen,
			is_anonymous = excluded.is_anonymous, name = excluded.name, data_size = excluded.data_size, entries = excluded.entries,
			metadata = excluded.metadata, tags = excluded.tags, run_time = excluded.run_time, contents = excluded.contents,
			offered_to = excluded.offered_to, offered = excluded.offered, cost = excluded.cost, platform = excluded.platform, worker_user = excluded.worker_user,
			worker_id = excluded.worker_id, assigned = excluded.assigned, kill_message = excluded.kill_message`, rows)
	if err != nil {
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
