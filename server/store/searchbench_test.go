package store_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/keywords"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// BenchmarkSearch searches 100,000 runs of ten users: six of ten are public, and two of ten are
// shared with a group that every second user is a member of.
func BenchmarkSearch(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "data")
	s, err := store.Open(b.Context(), dir)
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
	fillBulk(b, filepath.Join(dir, "codalab.db"), 100_000)
	if s, err = store.Open(b.Context(), dir); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, search := range []string{
		"nosuchword", "abc", "model-97", "name=train-model-7", "name=train-model-7%", "state=failed", "state=killed",
		".mine", ".mine .limit=1000", ".mine .last", ".mine state=killed", "owner=user3 .last", "tags=exp7", "tags=exp7,exp9,nosuch",
		"tags=exp7%", ".count", ".count state=failed", ".count .mine", ".count tags=all", ".count .shared", "size=.sort-", "name=.sort",
		"created=.sort", "time=.sort-", "time=.sum", "size=.sum", ".after=2023-12-01 .limit=100", ".last .offset=50000", ".floating",
		"host_worksheet=0xw", "dependency=0x1",
		"command=nosuch", "exitcode=1", "exitcode=.sort-", ".mine exitcode=.sort-", "description=nosuch%", ".mine description=nosuch%", "=nosuch",
	} {
		q, err := keywords.Parse(strings.Fields(search))
		if err != nil {
			b.Fatal(err)
		}
		for _, user := range []string{"0xu4", "0xu9", store.RootID} {
			b.Run(search+"/"+user, func(b *testing.B) {
				for b.Loop() {
					if q.Aggregate() {
						_, err = s.MeasureBundles(b.Context(), store.User{ID: user}, q)
					} else {
						_, err = s.SearchBundles(b.Context(), store.User{ID: user}, q)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// fillBulk writes bundles past the store, in one transaction.
func fillBulk(b *testing.B, path string, n int) {
	b.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	add := func(statement string, args ...any) {
		b.Helper()
		if _, err := tx.ExecContext(b.Context(), statement, args...); err != nil {
			b.Fatal(err)
		}
	}
	const group = "0x11111111111111111111111111111111"
	for i := range 10 {
		add(`INSERT INTO users (id, name, password, joined, time_quota, disk_quota, parallel_run_quota) VALUES (?, ?, '', 0, 0, 0, 0)`,
			fmt.Sprint("0xu", i), fmt.Sprint("user", i))
	}
	add(`INSERT INTO groups (uuid, name, owner_id, user_defined) VALUES (?, 'lab', '0xu0', 1)`, group)
	for i := 0; i < 10; i += 2 {
		add(`INSERT INTO group_members (user_id, group_uuid) VALUES (?, ?)`, fmt.Sprint("0xu", i), group)
	}
	add(`INSERT INTO worksheets (uuid, name, owner_id, created, modified) VALUES ('0xw', 'w', '0xu0', 0, 0)`)
	for i := range n {
		uuid, public := codalab.NewUUID(), 0
		if i%10 < 6 {
			public = 1
		}
		metadata, err := json.Marshal(bulkMetadata(i))
		if err != nil {
			b.Fatal(err)
		}
		add(`INSERT INTO bundles (uuid, bundle_type, owner_id, command, state, name, data_size, metadata, created, public)
			VALUES (?, 'run', ?, ?, ?, ?, ?, ?, ?, ?)`,
			uuid, fmt.Sprint("0xu", i/7%10), fmt.Sprint("python train.py --seed ", i), []string{"ready", "ready", "failed"}[i%3],
			fmt.Sprint("train-model-", i%977), i*7919%100_003, string(metadata), (1_700_000_000+int64(i)*60)*1e6, public)
		switch {
		case public == 1:
			add(`INSERT INTO bundle_permissions (bundle_uuid, group_uuid, permission) VALUES (?, ?, 1)`, uuid, store.PublicGroup)
		case i%10 < 8:
			add(`INSERT INTO bundle_permissions (bundle_uuid, group_uuid, permission) VALUES (?, ?, 1)`, uuid, group)
		}
		if i%10 != 0 {
			add(`INSERT INTO worksheet_items (id, worksheet_uuid, type, bundle_uuid, sort_key) VALUES (?, '0xw', 'bundle', ?, ?)`, i+1, uuid, i)
		}
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
}

// bulkMetadata is that of a finished run, about 1.3 kB as JSON.
func bulkMetadata(i int) codalab.Metadata {
	m := codalab.Metadata{}
	for _, k := range codalab.MetadataKeys(codalab.TypeRun) {
		m[k.Key] = k.Default
	}
	for key, value := range map[string]any{
		"name": fmt.Sprint("train-model-", i%977), "description": strings.Repeat("a long description ", 20),
		"tags": []string{fmt.Sprint("exp", i%500), "all"}, "time": float64(i*7919%100_003) / 10, "exitcode": i % 3,
		"created": 1_700_000_000 + i*60, "run_status": "Finished",
	} {
		m[key] = value
	}
	return m
}

// BenchmarkChange writes what a check-in of a running bundle changes.
func BenchmarkChange(b *testing.B) {
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "data"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.AddUser(b.Context(), store.User{ID: "0xme", Name: "me"}); err != nil {
		b.Fatal(err)
	}
	var uuids []string
	for i := range 1000 {
		one := bundle("x")
		one.Metadata, one.Created = bulkMetadata(i), store.Time{Time: now.Add(time.Duration(i) * time.Second)}
		if err := s.CreateBundle(b.Context(), one, ""); err != nil {
			b.Fatal(err)
		}
		uuids = append(uuids, one.UUID)
	}
	size := int64(0)
	b.ResetTimer()
	for b.Loop() {
		size++
		_, err := s.ChangeAll(b.Context(), uuids, func(b *store.Bundle) error {
			b.SetDataSize(size)
			b.Metadata["time"], b.Metadata["run_status"] = float64(size), fmt.Sprint("at ", size)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(uuids)), "µs/bundle")
}
