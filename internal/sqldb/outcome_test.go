package sqldb

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// After a crash the server uses the IDs of transactions again that had not reached its
// log.
func TestTransactionThatTheServerLostInACrashIsAborted(t *testing.T) {
	t.Parallel()
	db, err := connectPostgres(t.Context(), testenv.Postgres(t), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	var number int64
	if err := db.GetContext(t.Context(), &number, `SELECT txid_current()`); err != nil {
		t.Fatal(err)
	}
	for lost, want := range map[int64]string{number: committed, number + 1_000_000: aborted} {
		if got := db.outcome(t.Context(), lost); got != want {
			t.Errorf("transaction %d of %d: %q, want %q", lost, number, got, want)
		}
	}
}
