package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Bundle is a bundle.
type Bundle struct {
	UUID        string           `db:"uuid"`
	Type        string           `db:"bundle_type"`
	OwnerID     string           `db:"owner_id"`
	Command     *string          `db:"command"`
	State       codalab.State    `db:"state"`
	Frozen      *string          `db:"frozen"`
	IsAnonymous bool             `db:"is_anonymous"`
	Metadata    codalab.Metadata `db:"-"`
	// Partial reports that Metadata has only the keys that a reader has asked for. Such a bundle must not be stored.
	Partial      bool                 `db:"-"`
	Dependencies []codalab.Dependency `db:"-"` // with the parents' names and states
	Created      Time                 `db:"created"`

	// DataSize is the size of the contents, or of a run's working directory. The metadata key data_size repeats it.
	DataSize int64 `db:"data_size"`
	// Contents is the name of the directory with the contents; empty if there are none.
	Contents string `db:"contents"`
	// Entries is the number of files, directories and links of the contents. It is 0 if there are no contents, or
	// if CountEntries has not counted those that an older program has stored.
	Entries int64 `db:"entries"`
	// Worker has the run, or had it at its end; zero if no worker has it.
	Worker Worker `db:"-"`
	// Assigned is the time of the assignment to Worker.
	Assigned Time `db:"assigned"`
	// ChargedTime is the number of seconds that Change adds to the owner's TimeUsed; always 0 in a read
	// bundle.
	ChargedTime int64 `db:"-"`
	// KillMessage is the reason for which the worker must kill the run; empty if it must not.
	KillMessage string `db:"kill_message"`

	// Cost is a run's cost as its worker reported it; nil if no worker did.
	Cost *codalab.Cost `db:"-"`
	// Platform is that of a run's command, as its worker reported it or an import told it; nil if none did, and in a Partial
	// bundle.
	Platform *codalab.Platform `db:"-"`

	// Usage is the series of a run's use over time that Change writes (Store.Usage); empty if it stays as it is, and always
	// empty in a read bundle.
	Usage string `db:"-"`

	// Recorded are the events that Change writes into the bundle's history (Record); always nil in a read bundle.
	Recorded []Event `db:"-"`

	Offer
}

// Extent returns the amount of the contents.
func (b Bundle) Extent() codalab.Extent { return codalab.Extent{Bytes: b.DataSize, Entries: b.Entries} }

// Charge returns the space that the bundle takes of its owner's disk quota.
func (b Bundle) Charge() codalab.Space {
	return b.Extent().Space().Plus(codalab.Space{Entries: 1})
}

// Worker identifies a worker: its user, and an id that is unique for that user.
type Worker struct{ User, ID string }

// bundleRow is a row of the table bundles: a bundle, and its fields that have another form in
// SQL.
type bundleRow struct {
	Bundle
	Name         string `db:"name"`
	MetadataJSON string `db:"metadata"`
	CostJSON     string `db:"cost"`
	PlatformJSON string `db:"platform"`
	// Columns for searches. Public is written with the permissions.
	Public  int     `db:"public"`
	Tags    *string `db:"tags"`
	RunTime *int64  `db:"run_time"`
	// Valued is written by SetValues alone.
	Valued     string `db:"valued"`
	WorkerUser string `db:"worker_user"`
	WorkerID   string `db:"worker_id"`
}

func (r bundleRow) bundle() (Bundle, error) {
	b := r.Bundle
	b.Worker, b.Dependencies = Worker{r.WorkerUser, r.WorkerID}, []codalab.Dependency{}
	var err error
	if b.Metadata, err = decodeMetadata(r.MetadataJSON); err != nil {
		return Bundle{}, fmt.Errorf("decode metadata of bundle %s: %w", r.UUID, err)
	}
	if r.CostJSON != "" {
		if err := json.Unmarshal([]byte(r.CostJSON), &b.Cost); err != nil {
			return Bundle{}, fmt.Errorf("decode cost of bundle %s: %w", r.UUID, err)
		}
	}
	if r.PlatformJSON != "" {
		if err := json.Unmarshal([]byte(r.PlatformJSON), &b.Platform); err != nil {
			return Bundle{}, fmt.Errorf("decode platform of bundle %s: %w", r.UUID, err)
		}
	}
	return b, nil
}

// row returns the bundle's row.
func (b *Bundle) row() (bundleRow, error) { return b.rowAfter(readRow{}) }

// readRow is a row as it was read, with its texts and what they say.
type readRow struct {
	bundleRow
	cost     *codalab.Cost
	platform *codalab.Platform
}

// rowAfter returns the row of a bundle that was read from a row, and changed since. It shares no memory with the bundle that a
// change of the bundle's fields writes to. It takes over the texts of a cost and a platform that are still the ones that were read.
func (b *Bundle) rowAfter(was readRow) (bundleRow, error) {
	tags := tagsColumn(b.Metadata)
	r := bundleRow{
		Bundle: *b, Name: b.Metadata.String("name"), Tags: &tags, RunTime: timeColumn(b.Metadata),
		Public: was.Public, Valued: was.Valued, WorkerUser: b.Worker.User, WorkerID: b.Worker.ID,
	}
	r.Metadata, r.Dependencies, r.Recorded, r.Cost, r.Platform = nil, nil, nil, nil, nil
	var err error
	if r.MetadataJSON, err = encodeMetadata(b.Metadata); err != nil {
		return bundleRow{}, fmt.Errorf("encode metadata of bundle %s: %w", b.UUID, err)
	}
	if r.CostJSON, err = textAfter(b.Cost, was.cost, was.CostJSON); err != nil {
		return bundleRow{}, fmt.Errorf("encode cost of bundle %s: %w", b.UUID, err)
	}
	if r.PlatformJSON, err = textAfter(b.Platform, was.platform, was.PlatformJSON); err != nil {
		return bundleRow{}, fmt.Errorf("encode platform of bundle %s: %w", b.UUID, err)
	}
	return r, nil
}

// textAfter returns the text of a value in a row: that of the value that was read, if it is still this one.
func textAfter[T any](value, was *T, text string) (string, error) {
	switch value {
	case nil:
		return "", nil
	case was:
		return text, nil
	}
	encoded, err := json.Marshal(value)
	return string(encoded), err
}

// Bundle returns one bundle; ErrNotFound if it does not exist.
func (s *Store) Bundle(ctx context.Context, uuid string) (Bundle, error) {
	return getBundle(ctx, s.db, uuid)
}

// queryer is a database, which reads again when the connection broke, or a transaction.
type queryer interface {
	GetContext(ctx context.Context, dest any, query string, args ...any) error
	SelectContext(ctx context.Context, dest any, query string, args ...any) error
	Rebind(query string) string
}

func getBundle(ctx context.Context, q queryer, uuid string) (Bundle, error) {
	var row bundleRow
	if err := q.GetContext(ctx, &row, q.Rebind(`SELECT * FROM bundles WHERE uuid = ?`), uuid); err != nil {
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

// inOneStatement is the largest number of uuids in one SQL statement.
const inOneStatement = 500

// Bundles returns those of these bundles that exist, by uuid. If keys of metadata are named, the bundles are Partial and have
// no others; a list of thousands takes half the time without the metadata that nobody shows.
func (s *Store) Bundles(ctx context.Context, uuids []string, keys ...string) (map[string]Bundle, error) {
	if len(keys) == 0 {
		return getBundles(ctx, s.db, uuids)
	}
	query, args := s.dialect().partialBundles(keys)
	rows, err := selectIn[bundleRow](ctx, s.db, uuids, query, args...)
	for i := range rows {
		rows[i].Partial = true
		if !strings.HasPrefix(rows[i].MetadataJSON, "{") {
			rows[i].MetadataJSON = "{" + strings.TrimSuffix(rows[i].MetadataJSON, ",") + "}"
		}
	}
	found, err := withDependencies(ctx, s.db, uuids, rows, err)
	for uuid, b := range found {
		b.Metadata = b.Metadata.Only(keys...)
		found[uuid] = b
	}
	return found, err
}

// partialBundles returns the query for bundles with some keys of their metadata, each as a JSON member and a comma, and
// the arguments behind the uuids. The metadata that the database cannot read come as a whole.
func (d jsonDialect) partialBundles(keys []string) (query string, args []any) {
	var members []string
	for _, key := range keys {
		members = append(members, `coalesce(CAST(? AS TEXT) || `+strings.ReplaceAll(d.raw, "@", "metadata")+` || ',', '')`)
		args = append(args, strconv.Quote(key)+":", d.key(key))
	}
	metadata := strings.Join(members, " || ")
	if d.legible != "" {
		metadata = `CASE WHEN ` + strings.ReplaceAll(d.legible, "@", "metadata") + ` THEN ` + metadata + ` ELSE metadata END`
	}
	return `WITH named AS (SELECT * FROM bundles WHERE uuid IN (?))
		SELECT uuid, bundle_type, owner_id, command, state, frozen, is_anonymous, created, data_size, contents, entries, cost, worker_user, worker_id,
			offered_to, offered, ` + metadata + ` AS metadata FROM named`, args
}

func getBundles(ctx context.Context, q queryer, uuids []string) (map[string]Bundle, error) {
	rows, err := selectIn[bundleRow](ctx, q, uuids, `SELECT * FROM bundles WHERE uuid IN (?)`)
	return withDependencies(ctx, q, uuids, rows, err)
}

// withDependencies returns the bundles in rows, by uuid, or the error of reading the rows.
func withDependencies(ctx context.Context, q queryer, uuids []string, rows []bundleRow, err error) (map[string]Bundle, error) {
	if err != nil {
		return nil, fmt.Errorf("get bundles: %w", err)
	}
	deps, err := dependencies(ctx, q, uuids)
	if err != nil {
		return nil, err
	}
	found := make(map[string]Bundle, len(rows))
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
	return found, nil
}

// Heads returns the existing ones of these bundles with the fields that decide permissions: UUID, Type, OwnerID,
// State and Worker.
func (s *Store) Heads(ctx context.Context, uuids []string) ([]Bundle, error) {
	rows, err := selectIn[bundleRow](ctx, s.db, uuids, `SELECT uuid, bundle_type, owner_id, state, worker_user, worker_id FROM bundles WHERE uuid IN (?)`)
	heads := make([]Bundle, len(rows))
	for i, row := range rows {
		heads[i] = row.Bundle
		heads[i].Worker = Worker{row.WorkerUser, row.WorkerID}
	}
	return heads, rowError(err, "get owners of bundles")
}

// dependencies returns the dependencies of these bundles, by child and in order.
func dependencies(ctx context.Context, q queryer, uuids []string) (map[string][]codalab.Dependency, error) {
	rows, err := selectIn[dependencyRow](ctx, q, uuids, `
		SELECT d.child_uuid, d.child_path, d.parent_uuid, d.parent_path, coalesce(p.name, '') AS parent_name, coalesce(p.state, '') AS parent_state
		FROM dependencies d LEFT JOIN bundles p ON p.uuid = d.parent_uuid
		WHERE d.child_uuid IN (?) ORDER BY d.child_uuid, d.position`)
	found := map[string][]codalab.Dependency{}
	for _, row := range rows {
		found[row.ChildUUID] = append(found[row.ChildUUID], codalab.Dependency(row))
	}
	return found, rowError(err, "get dependencies")
}

// dependencyRow is a codalab.Dependency in SQL.
type dependencyRow struct {
	ChildUUID   string        `db:"child_uuid"`
	ChildPath   string        `db:"child_path"`
	ParentUUID  string        `db:"parent_uuid"`
	ParentPath  string        `db:"parent_path"`
	ParentName  string        `db:"parent_name"`
	ParentState codalab.State `db:"parent_state"`
}
