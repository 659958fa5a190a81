// Package storetest fills a store's SQLite database with many bundles, for benchmarks. It bypasses the
// store and writes one transaction, which takes seconds for 100,000 bundles.
package storetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// The users of a filled database are User(0) to User(Users-1). Those with even numbers are members of
// a group.
const (
	Users = 10
	group = "0x11111111111111111111111111111111"
)

// User is the id of one of the users.
func User(i int) string { return fmt.Sprint("0xu", i) }

// UserName is the name of one of the users.
func UserName(i int) string { return fmt.Sprint("user", i) }

// Fill writes n ended runs of ten users into the data directory dir, which a store has made: six of ten
// are public, and two of ten are shared with a group of which every second user is a member. No store
// may have dir open.
func Fill(ctx context.Context, dir string, n int) error {
	return inTx(ctx, dir, func(f *filler) {
		f.users()
		for i := range n {
			f.bundle(i)
		}
	})
}

// AddContents gives each bundle contents of one entry, of which there is no more than the directory that has them.
func AddContents(ctx context.Context, dir string) error {
	return inTx(ctx, dir, func(f *filler) {
		f.add(`UPDATE bundles SET contents = uuid || '-00000000', valued = uuid || '-00000000', entries = 1`)
		if f.err == nil {
			f.err = f.makeDirectories(filepath.Join(dir, "bundles"))
		}
	})
}

// AddValues gives each bundle ten values in files, one of them /stats.json:acc.
func AddValues(ctx context.Context, dir string) error {
	return inTx(ctx, dir, func(f *filler) {
		for _, path := range []string{"acc", "loss", "test/error", "test/f1", "train/error", "train/f1", "lr", "seed", "epoch", "seconds"} {
			f.add(`INSERT INTO bundle_values (bundle_uuid, path, number, text)
				SELECT uuid, ?, data_size % 9973 / 9973.0, data_size % 9973 / 9973.0 FROM bundles`, "/stats.json:"+path)
		}
	})
}

func (f *filler) makeDirectories(in string) error {
	rows, err := f.tx.QueryContext(f.ctx, `SELECT contents FROM bundles`)
	if err != nil {
		return err //nolint:wrapcheck // inTx does
	}
	defer rows.Close()
	for name := ""; rows.Next(); {
		err := rows.Scan(&name)
		if err == nil {
			err = os.Mkdir(filepath.Join(in, name), 0o700)
		}
		if err != nil {
			return err
		}
	}
	return rows.Err() //nolint:wrapcheck // inTx does
}

// filler writes rows until the first error.
type filler struct {
	ctx context.Context
	tx  *sql.Tx
	err error
}

func inTx(ctx context.Context, dir string, fill func(*filler)) error {
	db, err := sql.Open("sqlite", filepath.Join(dir, "codalab.db"))
	if err != nil {
		return fmt.Errorf("fill database: %w", err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		f := filler{ctx: ctx, tx: tx}
		if fill(&f); f.err == nil {
			err = tx.Commit()
		} else {
			err = errors.Join(f.err, tx.Rollback())
		}
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("fill database: %w", err)
	}
	return nil
}

func (f *filler) add(statement string, args ...any) {
	if f.err == nil {
		_, f.err = f.tx.ExecContext(f.ctx, statement, args...)
	}
}

func (f *filler) users() {
	for i := range Users {
		f.add(`INSERT INTO users (id, name, password, joined, time_quota, disk_quota, parallel_run_quota) VALUES (?, ?, '', 0, 0, 0, 0)`,
			User(i), UserName(i))
	}
	f.add(`INSERT INTO groups (uuid, name, owner_id, user_defined) VALUES (?, 'lab', '0xu0', 1)`, group)
	for i := 0; i < Users; i += 2 {
		f.add(`INSERT INTO group_members (user_id, group_uuid) VALUES (?, ?)`, User(i), group)
	}
	f.add(`INSERT INTO worksheets (uuid, name, owner_id, created, modified) VALUES ('0xw', 'w', '0xu0', 0, 0)`)
}

func (f *filler) bundle(i int) {
	uuid, public := codalab.NewUUID(), 0
	if i%10 < 6 {
		public = 1
	}
	metadata, err := json.Marshal(Metadata(i))
	f.err = errors.Join(f.err, err)
	f.add(`INSERT INTO bundles (uuid, bundle_type, owner_id, command, state, name, data_size, metadata, created, public)
		VALUES (?, 'run', ?, ?, ?, ?, ?, ?, ?, ?)`,
		uuid, User(i/7%Users), fmt.Sprint("python train.py --seed ", i), []string{"ready", "ready", "failed"}[i%3],
		fmt.Sprint("train-model-", i%977), i*7919%100_003, string(metadata), (1_700_000_000+int64(i)*60)*1e6, public)
	switch {
	case public == 1:
		f.add(`INSERT INTO bundle_permissions (bundle_uuid, group_uuid, permission) VALUES (?, ?, 1)`, uuid, store.PublicGroup)
	case i%10 < 8:
		f.add(`INSERT INTO bundle_permissions (bundle_uuid, group_uuid, permission) VALUES (?, ?, 1)`, uuid, group)
	}
	if i%10 != 0 {
		f.add(`INSERT INTO worksheet_items (id, worksheet_uuid, type, bundle_uuid, sort_key) VALUES (?, '0xw', 'bundle', ?, ?)`, i+1, uuid, i)
	}
}

// Metadata is that of a finished run, about 1.3 kB as JSON.
func Metadata(i int) codalab.Metadata {
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
