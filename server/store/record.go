package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Record collects the changes that one user's request makes. It is safe for concurrent use.
type Record struct {
	// UserID and UserName are the user.
	UserID, UserName string
	// At is the time of the request.
	At time.Time

	mu     sync.Mutex
	events []Event
	more   int
}

// maxEvents bounds a Record.
const maxEvents = 100

// Event is one change of an object.
type Event struct {
	Action codalab.Action `json:"action"`
	// Kind is the object's: bundle, worksheet or group.
	Kind string `json:"kind"`
	UUID string `json:"uuid"`
	// Name is empty if the store has not read it.
	Name string `json:"name,omitempty"`
	codalab.EventDetails

	// at is the time of an event of the server itself. Those of a Record have its time.
	at time.Time
}

// String is the event in one line of words.
func (e Event) String() string {
	text := string(e.Action) + " " + e.Kind + " " + e.UUID
	if e.Name != "" {
		text += "(" + e.Name + ")"
	}
	if details := e.Words(); details != "" {
		text += " " + details
	}
	return text
}

// Events returns the changes that are committed, and the number of further ones that the Record has no room for.
func (r *Record) Events() (events []Event, more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events), r.more
}

type recordKey struct{}

// WithRecord returns a context whose changes are added to a Record. Changes of bundles are also written into the bundles'
// histories. A bundle's change under a context without a Record, such as a worker's report, is in no history, unless
// RecordOwn has noted it.
func WithRecord(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, recordKey{}, r)
}

func recordOf(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}

// note adds changes to the context's Record. The caller has committed them.
func note(ctx context.Context, events ...Event) {
	r := recordOf(ctx)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	room := max(0, maxEvents-len(r.events))
	r.events = append(r.events, events[:min(room, len(events))]...)
	r.more += max(0, len(events)-room)
}

// noteUnless is note if err is nil, and returns err.
func noteUnless(ctx context.Context, err error, events ...Event) error {
	if err == nil {
		note(ctx, events...)
	}
	return err
}

// tell passes the committed events of a bundle on: the server's own to s.Own, the others to the context's Record.
func (s *Store) tell(ctx context.Context, events []Event) {
	var own, users []Event
	for _, e := range events {
		if e.Server {
			own = append(own, e)
		} else {
			users = append(users, e)
		}
	}
	note(ctx, users...)
	if len(own) > 0 && s.Own != nil {
		s.Own(own)
	}
}

// Record notes an action of the context's user on a bundle. Change writes it with the bundle.
func (b *Bundle) Record(action codalab.Action, d codalab.EventDetails) {
	b.Recorded = append(b.Recorded, b.event(action, d))
}

// RecordOwn notes an action of the server itself, whoever's request led to it. Change writes it with the bundle.
func (b *Bundle) RecordOwn(at time.Time, action codalab.Action, reason string) {
	e := b.event(action, codalab.EventDetails{Server: true, Reason: reason})
	e.at = at
	b.Recorded = append(b.Recorded, e)
}

func (b *Bundle) event(action codalab.Action, d codalab.EventDetails) Event {
	return Event{Action: action, Kind: "bundle", UUID: b.UUID, Name: b.Metadata.String("name"), EventDetails: d}
}

// mostHistory is the number of entries in a bundle's history. Older ones than these are removed, except the first.
const mostHistory = 1000

// writeHistories adds events of bundles to their histories: those of the server, and if the context has a Record, its user's.
func writeHistories(ctx context.Context, tx *sqlx.Tx, events []Event) error {
	rows, uuids, err := historyRows(ctx, events)
	if err != nil || len(rows) == 0 {
		return err
	}
	lasts, err := selectIn[historyRow](ctx, tx, uuids, `
		SELECT bundle_uuid, max(number) AS number FROM bundle_history WHERE bundle_uuid IN (?) GROUP BY bundle_uuid`)
	if err != nil {
		return fmt.Errorf("read histories: %w", err)
	}
	last := map[string]int64{}
	for _, row := range lasts {
		last[row.BundleUUID] = row.Number
	}
	for i, row := range rows {
		last[row.BundleUUID]++
		rows[i].Number = last[row.BundleUUID]
	}
	err = insertRows(ctx, tx, `
		INSERT INTO bundle_history (bundle_uuid, number, at, user_id, user_name, action, details)
		VALUES (:bundle_uuid, :number, :at, :user_id, :user_name, :action, :details)`, rows)
	for uuid, number := range last {
		if err == nil && number > mostHistory {
			_, err = tx.ExecContext(ctx, tx.Rebind(`DELETE FROM bundle_history WHERE bundle_uuid = ? AND number > 1 AND number <= ?`), uuid, number-mostHistory+1)
		}
	}
	return rowError(err, "write histories")
}

// historyRows returns the rows of events in histories, and the uuids of their bundles.
func historyRows(ctx context.Context, events []Event) (rows []historyRow, uuids []string, err error) {
	r := recordOf(ctx)
	for _, e := range events {
		if r == nil && !e.Server {
			continue
		}
		details, err := json.Marshal(e.EventDetails)
		if err != nil {
			return nil, nil, fmt.Errorf("encode history of bundle %s: %w", e.UUID, err)
		}
		row := historyRow{BundleUUID: e.UUID, Action: e.Action, Details: string(details)}
		if e.Server {
			row.At = Time{e.at}
		} else {
			row.At, row.UserID, row.UserName = Time{r.At}, r.UserID, r.UserName
		}
		rows, uuids = append(rows, row), append(uuids, e.UUID)
	}
	return rows, uuids, nil
}

// historyRow is a row of the table bundle_history.
type historyRow struct {
	BundleUUID string         `db:"bundle_uuid"`
	Number     int64          `db:"number"`
	At         Time           `db:"at"`
	UserID     string         `db:"user_id"`
	UserName   string         `db:"user_name"`
	Action     codalab.Action `db:"action"`
	Details    string         `db:"details"`
}

// History returns what users and the server did with a bundle, the oldest first. A bundle from before there were histories, or from
// another server, lacks the beginning.
func (s *Store) History(ctx context.Context, uuid string) ([]codalab.BundleEvent, error) {
	var rows []historyRow
	err := s.db.SelectContext(ctx, &rows, s.db.Rebind(`
		SELECT at, user_id, user_name, action, details FROM bundle_history WHERE bundle_uuid = ? ORDER BY number`), uuid)
	events := []codalab.BundleEvent{}
	for _, row := range rows {
		e := codalab.BundleEvent{Time: row.At.Unix(), User: codalab.Named{ID: row.UserID, Name: row.UserName}, Action: row.Action}
		if err := json.Unmarshal([]byte(row.Details), &e.EventDetails); err != nil {
			return nil, fmt.Errorf("decode history of bundle %s: %w", uuid, err)
		}
		events = append(events, e)
	}
	return events, rowError(err, "read history of bundle "+uuid)
}

// describeUser returns a user's id and name; only the id if the user is gone.
func describeUser(ctx context.Context, q queryer, id string) (*codalab.Named, error) {
	return describe(ctx, q, `SELECT name FROM users WHERE id = ?`, id)
}

func describeGroup(ctx context.Context, q queryer, uuid string) (*codalab.Named, error) {
	return describe(ctx, q, `SELECT name FROM groups WHERE uuid = ?`, uuid)
}

// nameOf returns the name of an object that is shared; empty if it is gone.
func (k Shared) nameOf(ctx context.Context, q queryer, uuid string) (string, error) {
	found, err := describe(ctx, q, `SELECT name FROM `+string(k)+`s WHERE uuid = ?`, uuid)
	return found.Name, err
}

func describe(ctx context.Context, q queryer, query, id string) (*codalab.Named, error) {
	var names []string
	err := q.SelectContext(ctx, &names, q.Rebind(query), id)
	return &codalab.Named{ID: id, Name: strings.Join(names, "")}, rowError(err, "get name of "+id)
}
