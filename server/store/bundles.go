package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// Bundle is what the service knows of one bundle.
type Bundle struct {
	UUID         string
	Type         string
	OwnerID      string
	Command      *string
	State        codalab.State
	Frozen       *string
	IsAnonymous  bool
	Metadata     codalab.Metadata
	Dependencies []codalab.Dependency // with the parents' names and states
	Created      time.Time

	// DataSize counts against the owner's disk quota; SetDataSize sets it.
	DataSize int64
	// Contents names the directory that holds the contents; empty where there are none.
	Contents string
	// Worker has the run, or had it at its end; zero where none has.
	Worker Worker
	// Assigned is when Worker was given the run.
	Assigned time.Time
	// KillMessage says why the run is to be killed; empty where it is not.
	KillMessage string
}

// Worker names a worker: the user it runs as, and its own id.
type Worker struct{ User, ID string }

// SetDataSize sets the bundle's size, where clients read it too.
func (b *Bundle) SetDataSize(bytes int64) {
	b.DataSize = bytes
	b.Metadata["data_size"] = bytes
}

// bundleRow is a row of the table bundles.
type bundleRow struct {
	UUID        string  `db:"uuid"`
	Type        string  `db:"bundle_type"`
	OwnerID     string  `db:"owner_id"`
	Command     *string `db:"command"`
	State       string  `db:"state"`
	Frozen      *string `db:"frozen"`
	IsAnonymous bool    `db:"is_anonymous"`
	Name        string  `db:"name"`
	DataSize    int64   `db:"data_size"`
	Metadata    string  `db:"metadata"`
	Created     int64   `db:"created"`
	Contents    string  `db:"contents"`
	WorkerUser  string  `db:"worker_user"`
	WorkerID    string  `db:"worker_id"`
	Assigned    int64   `db:"assigned"`
	KillMessage string  `db:"kill_message"`
}

func (r bundleRow) bundle() (Bundle, error) {
	b := Bundle{
		UUID: r.UUID, Type: r.Type, OwnerID: r.OwnerID, Command: r.Command, State: codalab.State(r.State),
		Frozen: r.Frozen, IsAnonymous: r.IsAnonymous, Created: moment(r.Created), DataSize: r.DataSize,
		Contents: r.Contents, Worker: Worker{r.WorkerUser, r.WorkerID}, Assigned: moment(r.Assigned),
		KillMessage: r.KillMessage, Dependencies: []codalab.Dependency{},
	}
	if err := json.Unmarshal([]byte(r.Metadata), &b.Metadata); err != nil {
		return Bundle{}, fmt.Errorf("decode metadata of bundle %s: %w", r.UUID, err)
	}
	return b, nil
}

func (b *Bundle) row() (bundleRow, error) {
	metadata, err := json.Marshal(b.Metadata)
	if err != nil {
		return bundleRow{}, fmt.Errorf("encode metadata of bundle %s: %w", b.UUID, err)
	}
	return bundleRow{
		UUID: b.UUID, Type: b.Type, OwnerID: b.OwnerID, Command: b.Command, State: string(b.State),
		Frozen: b.Frozen, IsAnonymous: b.IsAnonymous, Name: b.Metadata.String("name"), DataSize: b.DataSize,
		Metadata: string(metadata), Created: micros(b.Created), Contents: b.Contents,
		WorkerUser: b.Worker.User, WorkerID: b.Worker.ID, Assigned: micros(b.Assigned), KillMessage: b.KillMessage,
	}, nil
}

// CreateBundle adds a bundle and its dependencies, and shows it at the end of the worksheet,
// unless that is empty. ErrExists if the identifier is taken, ErrNotFound if there is no such
// worksheet.
func (s *Store) CreateBundle(ctx context.Context, b Bundle, worksheetUUID string) error {
	row, err := b.row()
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.NamedExecContext(ctx, `
			INSERT INTO bundles (uuid, bundle_type, owner_id, command, state, frozen, is_anonymous, name, data_size, metadata, created)
			VALUES (:uuid, :bundle_type, :owner_id, :command, :state, :frozen, :is_anonymous, :name, :data_size, :metadata, :created)`, row)
		if sqldb.IsUnique(err) {
			return fmt.Errorf("create bundle %s: %w", b.UUID, ErrExists)
		}
		if err != nil {
			return fmt.Errorf("create bundle %s: %w", b.UUID, err)
		}
		for i, d := range b.Dependencies {
			_, err := tx.ExecContext(ctx, tx.Rebind(`
				INSERT INTO dependencies (child_uuid, child_path, parent_uuid, parent_path, position) VALUES (?, ?, ?, ?, ?)`),
				b.UUID, d.ChildPath, d.ParentUUID, d.ParentPath, i)
			if err != nil {
				return fmt.Errorf("create bundle %s: %w", b.UUID, err)
			}
		}
		if worksheetUUID == "" {
			return nil
		}
		return appendBundle(ctx, tx, worksheetUUID, b.UUID, row.Created)
	})
}

// Bundle returns one bundle; ErrNotFound if there is none.
func (s *Store) Bundle(ctx context.Context, uuid string) (Bundle, error) {
	return getBundle(ctx, s.db, uuid)
}

// queryer is a database or a transaction.
type queryer interface {
	sqlx.QueryerContext
	Rebind(string) string
}

func getBundle(ctx context.Context, q queryer, uuid string) (Bundle, error) {
	var row bundleRow
	if err := sqlx.GetContext(ctx, q, &row, q.Rebind(`SELECT * FROM bundles WHERE uuid = ?`), uuid); err != nil {
		return Bundle{}, rowError(err, "get bundle "+uuid)
	}
	b, err := row.bundle()
	if err != nil || b.Type == codalab.TypeDataset {
		return b, err // a dataset has no dependencies
	}
	found, err := dependencies(ctx, q, []string{uuid})
	if deps, ok := found[uuid]; ok {
		b.Dependencies = deps
	}
	return b, err
}

// Bundles returns those of these bundles that exist, by identifier.
func (s *Store) Bundles(ctx context.Context, uuids []string) (map[string]Bundle, error) {
	found := make(map[string]Bundle, len(uuids))
	for part := range chunks(uuids) {
		query, args, err := sqlx.In(`SELECT * FROM bundles WHERE uuid IN (?)`, part)
		if err != nil {
			return nil, fmt.Errorf("get bundles: %w", err)
		}
		var rows []bundleRow
		if err := s.db.SelectContext(ctx, &rows, s.db.Rebind(query), args...); err != nil {
			return nil, fmt.Errorf("get bundles: %w", err)
		}
		deps, err := dependencies(ctx, s.db, part)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			b, err := row.bundle()
			if err != nil {
				return nil, err
			}
			if d, ok := deps[b.UUID]; ok {
				b.Dependencies = d
			}
			found[b.UUID] = b
		}
	}
	return found, nil
}

// chunks splits a list into parts that one statement takes.
func chunks(uuids []string) func(yield func([]string) bool) {
	const most = 500
	return func(yield func([]string) bool) {
		for len(uuids) > 0 {
			n := min(most, len(uuids))
			if !yield(uuids[:n]) {
				return
			}
			uuids = uuids[n:]
		}
	}
}

// dependencies returns the dependencies of these bundles by child, in their order.
func dependencies(ctx context.Context, q queryer, uuids []string) (map[string][]codalab.Dependency, error) {
	query, args, err := sqlx.In(`
		SELECT d.child_uuid, d.child_path, d.parent_uuid, d.parent_path, coalesce(p.name, ''), coalesce(p.state, '')
		FROM dependencies d LEFT JOIN bundles p ON p.uuid = d.parent_uuid
		WHERE d.child_uuid IN (?) ORDER BY d.child_uuid, d.position`, uuids)
	if err != nil {
		return nil, fmt.Errorf("get dependencies: %w", err)
	}
	rows, err := q.QueryxContext(ctx, q.Rebind(query), args...)
	if err != nil {
		return nil, fmt.Errorf("get dependencies: %w", err)
	}
	defer rows.Close() //nolint:errcheck // its errors come by rows.Err
	found := map[string][]codalab.Dependency{}
	for rows.Next() {
		var d codalab.Dependency
		if err := rows.Scan(&d.ChildUUID, &d.ChildPath, &d.ParentUUID, &d.ParentPath, &d.ParentName, &d.ParentState); err != nil {
			return nil, fmt.Errorf("get dependencies: %w", err)
		}
		found[d.ChildUUID] = append(found[d.ChildUUID], d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("get dependencies: %w", err)
	}
	return found, nil
}

// Change reads a bundle, lets decide change it, and writes it back, in one transaction; it
// returns the bundle as it is then. The owner's disk use follows DataSize. Dependencies cannot
// be changed. When decide fails nothing is written, and its error is returned as it is; decide
// may run again, and must have no effect but on the bundle.
func (s *Store) Change(ctx context.Context, uuid string, decide func(*Bundle) error) (Bundle, error) {
	var b Bundle
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		b, err = change(ctx, tx, uuid, decide)
		return err
	})
	return b, err
}

// ChangeAll is Change for several bundles in one transaction. A bundle that does not exist is
// passed over; the others are returned by identifier.
func (s *Store) ChangeAll(ctx context.Context, uuids []string, decide func(*Bundle) error) (map[string]Bundle, error) {
	changed := map[string]Bundle{}
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		clear(changed)
		found := map[string]Bundle{}
		for _, uuid := range uuids {
			b, err := change(ctx, tx, uuid, decide)
			if err == nil {
				found[uuid] = b
			} else if !isNotFound(err) {
				return err
			}
		}
		maps.Copy(changed, found)
		return nil
	})
	return changed, err
}

func change(ctx context.Context, tx *sqlx.Tx, uuid string, decide func(*Bundle) error) (Bundle, error) {
	b, err := getBundle(ctx, tx, uuid)
	if err != nil {
		return Bundle{}, err
	}
	size := b.DataSize
	before, err := b.row()
	if err != nil {
		return Bundle{}, err
	}
	if err := decide(&b); err != nil {
		return b, err
	}
	row, err := b.row()
	if err != nil || row.equal(before) {
		return b, err
	}
	_, err = tx.NamedExecContext(ctx, `
		UPDATE bundles SET state = :state, frozen = :frozen, is_anonymous = :is_anonymous, name = :name,
			data_size = :data_size, metadata = :metadata, contents = :contents,
			worker_user = :worker_user, worker_id = :worker_id, assigned = :assigned, kill_message = :kill_message
		WHERE uuid = :uuid`, row)
	if err == nil && b.DataSize != size {
		_, err = tx.ExecContext(ctx, tx.Rebind(`
			UPDATE users SET disk_used = CASE WHEN disk_used + ? > 0 THEN disk_used + ? ELSE 0 END WHERE id = ?`),
			b.DataSize-size, b.DataSize-size, b.OwnerID)
	}
	return b, rowError(err, "change bundle "+uuid)
}

// equal says whether writing r over other would change nothing.
func (r bundleRow) equal(other bundleRow) bool {
	same := (r.Frozen == nil) == (other.Frozen == nil) && (r.Frozen == nil || *r.Frozen == *other.Frozen)
	r.Frozen, other.Frozen, r.Command, other.Command = nil, nil, nil, nil
	return same && r == other
}
