package sqldb_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// Programs that start together may meet at each migration.
func TestProgramsThatMigrateAtOnceAllOpen(t *testing.T) {
	t.Parallel()
	steps := fstest.MapFS{}
	for i := range 60 {
		text := fmt.Sprintf("-- +goose Up\nCREATE TABLE t%d (id BIGINT PRIMARY KEY);\n", i)
		steps[fmt.Sprintf("%05d_step.sql", i+1)] = &fstest.MapFile{Data: []byte(text)}
	}
	for kind, empty := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			where := empty(t)
			var programs sync.WaitGroup
			for range 8 {
				programs.Go(func() {
					db, err := sqldb.Open(t.Context(), where, steps)
					if err == nil {
						err = db.Close()
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			programs.Wait()
		})
	}
}
