// Package ledgertest is the suite of tests that every ledger of the bridge passes, test doubles
// included:
//
//	func TestLedger(t *testing.T) {
//		ledgertest.Run(t, func(tb testing.TB) ledgertest.Site { … })
//	}
//
// The suite checks that:
//
//   - A row comes back as it was saved, also after a restart.
//   - A save of another version than the ledger's writes no row, and fails with
//     ledger.ErrConflict. If several writers save the same version one succeeds, in one process
//     and in several.
//   - Saved rows survive any end of the process or the connection, and no save is ever there in
//     part.
//   - The last writer that took the ledger is the only one.
//   - The generation never falls, and only the writer raises it.
//   - The history has an entry for each save that changed phase, reason or attempt, outlives its
//     row, and is bounded.
package ledgertest

import (
	"context"
	"io"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Ledger is the ledger under test. If it has a method Close() error the suite closes it.
type Ledger interface {
	Take(ctx context.Context) error
	Rows(ctx context.Context) ([]plan.Row, error)
	Save(ctx context.Context, rows []plan.Row) error
	Delete(ctx context.Context, r plan.Row) error
	Generation(ctx context.Context) (int64, error)
}

// Historian is a Ledger that keeps histories. Other ledgers skip their tests.
type Historian interface {
	History(ctx context.Context, bundle string) ([]ledger.Entry, error)
}

// Raiser is a Ledger whose generation can be raised. Other ledgers skip its tests.
type Raiser interface {
	Raise(ctx context.Context, generation int64) error
}

// Site is a place with one ledger, which is empty at first.
type Site struct {
	// Open opens the ledger, beside other open ones or after they were closed.
	Open func(tb testing.TB) Ledger
	// Process starts another process, which opens the same ledger and calls
	// Work. If it is nil the tests that need it are skipped.
	Process func(tb testing.TB, job Job) Process
	// Break breaks the connections of all who have the ledger open. Where it is
	// nil there are none that could break.
	Break func(tb testing.TB)
	// Unbounded is set for a ledger that keeps whole histories.
	Unbounded bool
}

// Process is another process. Reading returns what Work prints, up to its end.
type Process interface {
	io.Reader
	// Kill ends it at once, as a failing machine does.
	Kill()
	// Wait waits for the end, once everything was read.
	Wait() error
}

// Run runs all tests, each on a site of its own.
func Run(t *testing.T, newSite func(tb testing.TB) Site) {
	t.Helper()
	for name, test := range map[string]func(trial){
		"RowsComeBackAsTheyWereAfterARestart": trial.rowsComeBack,
		"StaleSaveWritesNothing":              trial.staleSave,
		"StaleDeleteRemovesNothing":           trial.staleDelete,
		"TextOfOtherProgramsIsTaken":          trial.strangeText,
		"TakenLedgerIsWrittenByItsTakerAlone": trial.taken,
		"GenerationNeverFalls":                trial.generation,
		"GenerationIsRaisedByTheTaker":        trial.raised,
		"HistoryTellsWhatChanged":             trial.history,
		"HistoryOutlivesItsRow":               trial.historyOutlives,
		"HistoryIsBounded":                    trial.historyBounded,
		"EachRowIsWonByOneOfManyWriters":      trial.concurrentWriters,
		"EachRowIsWonByOneOfManyProcesses":    trial.concurrentProcesses,
		"KilledWriterLeavesWholeSaves":        trial.killedWriter,
		"BrokenConnectionsLoseNothing":        trial.brokenConnections,
		"ThousandsOfRowsComeAndGo":            trial.cycle,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(trial{T: t, Site: newSite(t)})
		})
	}
}

// trial is one test of one site.
type trial struct {
	*testing.T
	Site
}
