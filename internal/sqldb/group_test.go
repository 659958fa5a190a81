package sqldb

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/jmoiron/sqlx"
)

func openIn(t *testing.T) *DB {
	t.Helper()
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), fstest.MapFS{
		"00001_step.sql": {Data: []byte("-- +goose Up\nCREATE TABLE n (id BIGINT PRIMARY KEY);\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// together runs transactions that all wait while another one writes, and returns the rows that there are
// after them, the transaction in which each ran last, and which of them failed.
func together(t *testing.T, fns ...func(tx *sqlx.Tx) error) (rows []int, in []*sqlx.Tx, failed []int) {
	t.Helper()
	in = make([]*sqlx.Tx, len(fns))
	errs := make([]error, len(fns))
	synctest.Test(t, func(t *testing.T) {
		db := openIn(t)
		free, ended := make(chan struct{}), make(chan struct{})
		go func() {
			if err := db.InTx(t.Context(), func(*sqlx.Tx) error { <-free; return nil }); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		for i, fn := range fns {
			go func() {
				defer func() { ended <- struct{}{} }()
				errs[i] = errOops // for a panic
				defer func() { _ = recover() }()
				errs[i] = db.InTx(t.Context(), func(tx *sqlx.Tx) error {
					in[i] = tx
					return fn(tx)
				})
			}()
			synctest.Wait() // it waits, too
		}
		close(free)
		for range fns {
			<-ended
		}
		if err := errors.Join(db.SelectContext(t.Context(), &rows, `SELECT id FROM n ORDER BY id`), db.Close()); err != nil {
			t.Error(err)
		}
	})
	for i, err := range errs {
		if err != nil {
			failed = append(failed, i)
		}
		if err != nil && !errors.Is(err, errOops) && !IsUnique(err) {
			t.Error(err)
		}
	}
	return rows, in, failed
}

var errOops = errors.New("oops")

// insert returns a function that inserts a row, and then calls the functions in then.
func insert(id int, then ...func(tx *sqlx.Tx) error) func(tx *sqlx.Tx) error {
	return func(tx *sqlx.Tx) error {
		if _, err := tx.Exec(`INSERT INTO n VALUES (?)`, id); err != nil {
			return err
		}
		for _, f := range then {
			if err := f(tx); err != nil {
				return err
			}
		}
		return nil
	}
}

func fail(*sqlx.Tx) error { return errOops }

func TestWaitingTransactionsAreCommittedTogether(t *testing.T) {
	t.Parallel()
	rows, in, failed := together(t, insert(1), insert(2), insert(3))
	if !slices.Equal(rows, []int{1, 2, 3}) || in[0] != in[1] || in[1] != in[2] || failed != nil {
		t.Errorf("rows %v, in transactions %v, failed %v", rows, in, failed)
	}
}

func TestFailureInAGroupConcernsItsOwnCallOnly(t *testing.T) {
	t.Parallel()
	rows, in, failed := together(t, insert(1), insert(2, fail), insert(1), insert(3))
	if !slices.Equal(rows, []int{1, 3}) || in[0] != in[3] || in[1] == in[0] || !slices.Equal(failed, []int{1, 2}) {
		t.Errorf("rows %v, in transactions %v, failed %v", rows, in, failed)
	}
}

// Some errors end SQLite's whole transaction.
func TestGroupWhoseTransactionEndsRunsOneByOne(t *testing.T) {
	t.Parallel()
	end := func(tx *sqlx.Tx) error {
		_, err := tx.Exec(`INSERT OR ROLLBACK INTO n VALUES (2)`)
		return err
	}
	rows, _, failed := together(t, insert(1), insert(2, end), insert(3), insert(4))
	if !slices.Equal(rows, []int{1, 3, 4}) || !slices.Equal(failed, []int{1}) {
		t.Errorf("rows %v, failed %v", rows, failed)
	}
}

func TestPanicInAGroupIsItsCallers(t *testing.T) {
	t.Parallel()
	panics := 0
	rows, _, failed := together(t, insert(1), insert(2, func(*sqlx.Tx) error {
		panics++
		panic("oops")
	}), insert(3))
	if !slices.Equal(rows, []int{1, 3}) || panics != 2 || !slices.Equal(failed, []int{1}) {
		t.Errorf("rows %v after %d panics, failed %v", rows, panics, failed)
	}
}

func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	var fns []func(*sqlx.Tx) error
	for i := range 2 * maxGroup {
		fns = append(fns, insert(i))
	}
	rows, in, _ := together(t, fns...)
	most := map[*sqlx.Tx]int{}
	for _, tx := range in {
		if most[tx]++; most[tx] > maxGroup {
			t.Fatalf("%d calls in one transaction", most[tx])
		}
	}
	if len(rows) != len(fns) || len(most) != 2 {
		t.Errorf("%d rows, in %d transactions", len(rows), len(most))
	}
}

// TestCallWhoseContextEndsInAGroupIsToldTheTruth checks that InTx's result matches the database.
func TestCallWhoseContextEndsInAGroupIsToldTheTruth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := openIn(t)
		free, inGroup, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
		ended := make([]chan error, 3)
		start := func(i int, ctx context.Context, fn func(*sqlx.Tx) error) {
			ended[i] = make(chan error, 1)
			go func() { ended[i] <- db.InTx(ctx, fn) }()
			synctest.Wait()
		}
		holding := make(chan error, 1)
		go func() { holding <- db.InTx(t.Context(), func(*sqlx.Tx) error { <-free; return nil }) }()
		synctest.Wait()
		during, stopDuring := context.WithCancel(t.Context())
		before, stopBefore := context.WithCancel(t.Context())
		start(0, t.Context(), insert(1, func(*sqlx.Tx) error { close(inGroup); <-goOn; return nil }))
		start(1, during, insert(2))
		start(2, before, insert(3))
		stopBefore() // while it waits
		synctest.Wait()
		close(free)
		<-inGroup
		stopDuring() // while its group runs, and before its turn there
		synctest.Wait()
		select {
		case err := <-ended[1]:
			t.Errorf("the call ended with %v while a group had it", err)
			ended[1] <- err
		default:
		}
		close(goOn)
		var rows []int
		for i, c := range ended {
			if err := <-c; (err == nil) != (i == 0) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if err := errors.Join(<-holding, db.SelectContext(t.Context(), &rows, `SELECT id FROM n ORDER BY id`), db.Close()); err != nil {
			t.Error(err)
		}
		if !slices.Equal(rows, []int{1}) {
			t.Errorf("rows %v", rows)
		}
	})
}

// A test's FailNow ends the goroutine; nobody may wait for it.
func TestGroupGoesOnWhenACallEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	rows, _, _ := together(t, insert(1), insert(2, func(*sqlx.Tx) error {
		runtime.Goexit()
		return nil
	}), insert(3))
	if !slices.Equal(rows, []int{3}) { // the first one led the group in that goroutine
		t.Errorf("rows %v", rows)
	}
}
