// Package ledgertest says what the bridge expects of its ledger, as tests. Each
// kind of ledger passes the same ones, a test double too:
//
//	func TestLedger(t *testing.T) {
//		ledgertest.Run(t, func(tb testing.TB) ledgertest.Site { … })
//	}
//
// What is expected:
//
//   - A row comes back as it was saved, after a restart too.
//   - A save that is not of the version that the ledger has writes nothing, of
//     no row, and fails with ledger.ErrConflict. Of several who save the same
//     version one succeeds, in one process and in several.
//   - What Save returned for is there, however the process or the connection
//     ends after that, and nothing is ever there by halves.
//   - Who takes the ledger is from then on the only one who writes it.
//   - The generation never falls, and is raised by who took the ledger alone.
//   - The history has an entry for each save that changed phase, reason or
//     attempt, outlives its row, and is bounded.
package ledgertest

import (
	"context"
	"io"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Ledger is what is tested. One that has a method Close() error is closed in
// the end.
type Ledger interface {
	Take(ctx context.Context) error
	Rows(ctx context.Context) ([]plan.Row, error)
	Save(ctx context.Context, rows []plan.Row) error
	Delete(ctx context.Context, r plan.Row) error
	Generation(ctx context.Context) (int64, error)
}

// Historian is a Ledger that keeps histories. The tests of those are left out
// for one that does not.
type Historian interface {
	History(ctx context.Context, bundle string) ([]ledger.Entry, error)
}

// Raiser is a Ledger whose generation can be raised. The tests of that are left
// out for one that has no need of it.
type Raiser interface {
	Raise(ctx context.Context, generation int64) error
}

// Site is a place with one ledger, which is empty at first.
type Site struct {
	// Open opens the ledger: beside those that are open already, or after they
	// were closed.
	Open func(tb testing.TB) Ledger
	// Process starts another process, which opens the same ledger and calls
	// Work. Where it is nil the tests that need it are left out.
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
