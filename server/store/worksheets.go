package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// Worksheet is a named list of bundles and texts.
type Worksheet struct {
	UUID        string  `db:"uuid"`
	Name        string  `db:"name"`
	OwnerID     string  `db:"owner_id"`
	Title       *string `db:"title"`
	Frozen      *string `db:"frozen"`
	IsAnonymous bool    `db:"is_anonymous"`
	TagsJSON    string  `db:"tags"`
	Created     Time    `db:"created"`
	Modified    Time    `db:"modified"` // also the last change of an item

	Offer
}

// SetTags sets the worksheet's tags.
func (w *Worksheet) SetTags(tags []string) error {
	text, err := json.Marshal(append([]string{}, tags...))
	if err != nil {
		return fmt.Errorf("encode tags: %w", err)
	}
	w.TagsJSON = string(text)
	return nil
}

// Tags returns the worksheet's tags.
func (w Worksheet) Tags() []string {
	tags := []string{}
	if json.Unmarshal([]byte(w.TagsJSON), &tags) != nil {
		return []string{}
	}
	return tags
}

// AddWorksheets adds worksheets that readers may read, all or none; ErrExists if a name is taken, or
// differs from another one by case alone, and ErrTooMany if an owner would have more than MostWorksheets
// (codalab/rest/worksheets.py: new_worksheet).
func (s *Store) AddWorksheets(ctx context.Context, readers DefaultPermission, list ...Worksheet) error {
	var events []Event
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		events = nil
		for _, w := range list {
			if err := addWorksheet(ctx, tx, w, readers); err != nil {
				return err
			}
			if err := checkOwned(ctx, tx, "worksheets", w.OwnerID, MostWorksheets); err != nil {
				return err
			}
			created, err := w.createdIn(ctx, tx)
			if err != nil {
				return err
			}
			events = append(events, created)
		}
		return nil
	})
	return noteUnless(ctx, err, events...)
}

// createdIn is the event of a worksheet that the transaction has made.
func (w Worksheet) createdIn(ctx context.Context, tx *sqlx.Tx) (Event, error) {
	from, err := readInherited(ctx, tx, w.UUID)
	return w.event(codalab.ActionCreated, codalab.EventDetails{Groups: from.granted}), err
}

func (w Worksheet) event(action codalab.Action, d codalab.EventDetails) Event {
	return Event{Action: action, Kind: "worksheet", UUID: w.UUID, Name: w.Name, EventDetails: d}
}

func addWorksheet(ctx context.Context, tx *sqlx.Tx, w Worksheet, readers DefaultPermission) error {
	if err := checkFolded(ctx, tx, "worksheets", "uuid", w.Name, w.UUID); err != nil {
		return fmt.Errorf("add worksheet %s: %w", w.Name, err)
	}
	return insertWorksheet(ctx, tx, w, readers)
}

func insertWorksheet(ctx context.Context, tx *sqlx.Tx, w Worksheet, readers DefaultPermission) error {
	if w.TagsJSON == "" {
		w.TagsJSON = "[]"
	}
	_, err := tx.NamedExecContext(ctx, `
		INSERT INTO worksheets (uuid, name, owner_id, title, tags, created, modified)
		VALUES (:uuid, :name, :owner_id, :title, :tags, :created, :modified)`, w)
	if sqldb.IsUnique(err) {
		return fmt.Errorf("add worksheet %s: %w", w.Name, ErrExists)
	}
	if err != nil {
		return rowError(err, "add worksheet "+w.Name)
	}
	return grantDefault(ctx, tx, w, readers)
}

// Worksheet returns the worksheet with this uuid.
func (s *Store) Worksheet(ctx context.Context, uuid string) (Worksheet, error) {
	var w Worksheet
	err := s.db.GetContext(ctx, &w, s.db.Rebind(`SELECT * FROM worksheets WHERE uuid = ?`), uuid)
	return w, rowError(err, "get worksheet "+uuid)
}

// WorksheetNamed returns the worksheet with this name.
func (s *Store) WorksheetNamed(ctx context.Context, name string) (Worksheet, error) {
	var w Worksheet
	err := s.db.GetContext(ctx, &w, s.db.Rebind(`SELECT * FROM worksheets WHERE name = ?`), name)
	return w, rowError(err, "get worksheet "+name)
}

// WorksheetsByPrefix returns up to two worksheets that a user may read, with uuids that begin with
// prefix.
func (s *Store) WorksheetsByPrefix(ctx context.Context, prefix string, u User) ([]Worksheet, error) {
	readable, args := SharedWorksheet.readable(u)
	var list []Worksheet
	err := s.db.SelectContext(ctx, &list, s.db.Rebind(`
		SELECT * FROM worksheets WHERE uuid >= ? AND uuid < ? AND `+readable+` ORDER BY uuid LIMIT 2`),
		append([]any{prefix, prefix + "g"}, args...)...)
	return list, rowError(err, "find worksheet "+prefix)
}

// WorksheetsByUUID returns those of these worksheets that exist, by uuid.
func (s *Store) WorksheetsByUUID(ctx context.Context, uuids []string) (map[string]Worksheet, error) {
	list, err := selectIn[Worksheet](ctx, s.db, uuids, `SELECT * FROM worksheets WHERE uuid IN (?)`)
	found := make(map[string]Worksheet, len(list))
	for _, w := range list {
		found[w.UUID] = w
	}
	return found, rowError(err, "get worksheets")
}

// ChangeWorksheet reads a worksheet, calls decide to change it, and writes it back, in one
// transaction. It returns the changed worksheet. With a change of the owner its offer ends. It fails with
// ErrExists if another worksheet has the new name, or one that differs from it by case alone.
func (s *Store) ChangeWorksheet(ctx context.Context, uuid string, decide func(*Worksheet) error) (Worksheet, error) {
	var w Worksheet
	var changed Event
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		w, changed, err = changeWorksheet(ctx, tx, uuid, decide)
		return err
	})
	return w, noteUnless(ctx, err, changed)
}

func changeWorksheet(ctx context.Context, tx *sqlx.Tx, uuid string, decide func(*Worksheet) error) (w Worksheet, changed Event, err error) {
	if err := tx.GetContext(ctx, &w, tx.Rebind(`SELECT * FROM worksheets WHERE uuid = ?`), uuid); err != nil {
		return w, changed, rowError(err, "change worksheet "+uuid)
	}
	before := w
	if err := decide(&w); err != nil {
		return w, changed, err
	}
	if w.OwnerID != before.OwnerID {
		w.Offer = Offer{}
	}
	if w.Name != before.Name {
		if err := checkFolded(ctx, tx, "worksheets", "uuid", w.Name, w.UUID); err != nil {
			return w, changed, fmt.Errorf("change worksheet %s: %w", uuid, err)
		}
	}
	if changed, err = w.changedFrom(ctx, tx, before); err != nil {
		return w, changed, err
	}
	_, err = tx.NamedExecContext(ctx, `
		UPDATE worksheets SET name = :name, owner_id = :owner_id, title = :title, frozen = :frozen,
			is_anonymous = CASE WHEN :is_anonymous THEN 1 ELSE 0 END, tags = :tags, modified = :modified,
			offered_to = :offered_to, offered = :offered
		WHERE uuid = :uuid`, w)
	if sqldb.IsUnique(err) {
		return w, changed, fmt.Errorf("change worksheet %s: %w", uuid, ErrExists)
	}
	return w, changed, rowError(err, "change worksheet "+uuid)
}

// changedFrom is the event of a worksheet's change.
func (w Worksheet) changedFrom(ctx context.Context, tx *sqlx.Tx, before Worksheet) (Event, error) {
	giving, err := givingEvent(ctx, tx, ownership{before.OwnerID, before.Offer}, ownership{w.OwnerID, w.Offer})
	return w.event(cmp.Or(giving.Action, codalab.ActionEdited), giving.EventDetails), err
}

// DeleteWorksheet deletes a worksheet, its items, and the items of other worksheets that show it.
func (s *Store) DeleteWorksheet(ctx context.Context, uuid string) error {
	gone := Event{Action: codalab.ActionDeleted, Kind: "worksheet", UUID: uuid}
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		if gone.Name, err = SharedWorksheet.nameOf(ctx, tx, uuid); err != nil {
			return err
		}
		for _, statement := range []string{
			`DELETE FROM worksheet_items WHERE subworksheet_uuid = ?`, `DELETE FROM worksheets WHERE uuid = ?`,
		} {
			if _, err := tx.ExecContext(ctx, tx.Rebind(statement), uuid); err != nil {
				return fmt.Errorf("delete worksheet %s: %w", uuid, err)
			}
		}
		return nil
	})
	return noteUnless(ctx, err, gone)
}
