package ledger_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// The variables that make this program another process of the suite, and its jobs.
const (
	job, place = "CLTEST_LEDGER_JOB", "CLTEST_LEDGER"
	// win tries to save each pair of rows that has version 1, and prints the pairs that it saved.
	win = "win"
	// rounds saves round after round until it is killed, and prints the number of each saved round.
	rounds = "rounds"
)

func TestMain(m *testing.M) {
	if os.Getenv(job) == "" {
		os.Exit(m.Run())
	}
	if err := work(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// work does the job of another process. It returns when the job is done, or never.
func work(ctx context.Context) error {
	l, err := ledger.Open(ctx, os.Getenv(place))
	if err != nil {
		return err
	}
	if os.Getenv(job) == win {
		err := winPairs(ctx, l, fmt.Sprintf("writer %d", rand.Uint64()), func(pair int) { fmt.Println(pair) })
		return errors.Join(err, l.Close())
	}
	for {
		n, err := round(ctx, l)
		if err != nil {
			return err
		}
		fmt.Println(n)
	}
}

func another(t *testing.T, where, what string) *testenv.Process {
	t.Helper()
	return testenv.Again(t, place+"="+where, job+"="+what)
}

// pairs is the number of pairs of rows that are saved together.
const pairs = 60

func pair(i int) []plan.Row {
	return []plan.Row{fullRow(fmt.Sprintf("0x%03da", i)), fullRow(fmt.Sprintf("0x%03db", i))}
}

// makePairs fills a ledger with pairs of version 1.
func makePairs(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	for i := range pairs {
		save(t, l, pair(i)...)
	}
}

// winPairs saves each pair, in either order, as version 1.
func winPairs(ctx context.Context, l *ledger.Ledger, name string, won func(int)) error {
	for _, i := range rand.Perm(pairs) {
		rows := pair(i)
		if rand.IntN(2) == 0 {
			slices.Reverse(rows)
		}
		for j := range rows {
			rows[j].Version, rows[j].Reason = 1, name
		}
		switch err := l.Save(ctx, rows); {
		case err == nil:
			won(i)
		case !errors.Is(err, ledger.ErrConflict):
			return fmt.Errorf("save pair %d: %w", i, err)
		}
	}
	return nil
}

// checkPairs makes sure that each pair was won once, as a whole.
func checkPairs(t *testing.T, l *ledger.Ledger, wins map[int]int) {
	t.Helper()
	rows := read(t, l)
	if len(rows) != 2*pairs {
		t.Fatalf("%d rows", len(rows))
	}
	for i := range pairs {
		a, b := rows[2*i], rows[2*i+1]
		if wins[i] != 1 || a.Version != 2 || b.Version != 2 || a.Reason != b.Reason {
			t.Errorf("pair %d was won %d times; versions %d and %d, %q and %q", i, wins[i], a.Version, b.Version, a.Reason, b.Reason)
		}
		if n := len(entries(t, l, a.Bundle)); n != 2 {
			t.Errorf("%s has %d entries", a.Bundle, n)
		}
	}
}

func concurrentWriters(t *testing.T, where string) {
	const writers = 6
	shared := open(t, where)
	makePairs(t, shared)
	var mu sync.Mutex
	wins := map[int]int{}
	var wg sync.WaitGroup
	for w := range writers {
		l := shared
		if w%2 == 0 {
			l = open(t, where)
		}
		wg.Go(func() {
			err := winPairs(t.Context(), l, fmt.Sprintf("writer %d", w), func(i int) {
				mu.Lock()
				wins[i]++
				mu.Unlock()
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	checkPairs(t, shared, wins)
}

func concurrentProcesses(t *testing.T, where string) {
	l := open(t, where)
	makePairs(t, l)
	var processes []*testenv.Process
	for range 3 {
		processes = append(processes, another(t, where, win))
	}
	wins := map[int]int{}
	for _, p := range processes {
		for line := range lines(p) {
			var i int
			if _, err := fmt.Sscan(line, &i); err != nil {
				t.Errorf("a process printed %q", line)
			}
			wins[i]++
		}
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	checkPairs(t, l, wins)
}

// lines returns the complete lines.
func lines(r io.Reader) func(yield func(string) bool) {
	in := bufio.NewReader(r)
	return func(yield func(string) bool) {
		for {
			line, err := in.ReadString('\n')
			if err != nil || !yield(strings.TrimSuffix(line, "\n")) {
				return
			}
		}
	}
}

// inRound is the number of rows that one round saves.
const inRound = 5

// round saves the next round: it sets every stored field of every row to the round's number.
func round(ctx context.Context, l *ledger.Ledger) (int, error) {
	for {
		rows, err := l.Rows(ctx)
		if err != nil {
			return 0, fmt.Errorf("read rows: %w", err)
		}
		if len(rows) == 0 {
			for i := range inRound {
				rows = append(rows, fullRow(fmt.Sprintf("0x%d", i)))
				rows[i].Attempt.Number = 0
			}
		}
		n := rows[0].Attempt.Number + 1
		for i := range rows {
			rows[i].Attempt.Number, rows[i].Generation, rows[i].Reason = n, int64(n), fmt.Sprintf("round %d", n)
		}
		// The last save of a killed process may come in between.
		if err = l.Save(ctx, rows); !errors.Is(err, ledger.ErrConflict) {
			return n, err
		}
	}
}

// checkRounds makes sure that there were exactly n rounds, all of them whole.
func checkRounds(t *testing.T, l *ledger.Ledger, n int) {
	t.Helper()
	rows := read(t, l)
	if len(rows) != inRound {
		t.Fatalf("%d rows after %d rounds", len(rows), n)
	}
	for _, r := range rows {
		all := entries(t, l, r.Bundle)
		if len(all) == 0 {
			t.Fatalf("%s has no history after %d rounds", r.Bundle, n)
		}
		last := all[len(all)-1]
		if r.Attempt.Number != n || r.Version != int64(n) || last.N != int64(n) || last.Attempt != n || last.Version != int64(n) {
			t.Errorf("after %d rounds row %s is of round %d, version %d; the last entry is %+v", n, r.Bundle, r.Attempt.Number, r.Version, last)
		}
	}
	if g, err := l.Generation(t.Context()); err != nil || g != int64(n) {
		t.Errorf("generation %d, %v after %d rounds", g, err, n)
	}
}

func killedWriter(t *testing.T, where string) {
	last := 0
	for _, life := range []int{1, 7, 23, 40, 3} {
		p := another(t, where, rounds)
		seen := 0
		for line := range lines(p) {
			if _, err := fmt.Sscan(line, &last); err != nil {
				t.Fatalf("the process printed %q", line)
			}
			if seen++; seen == life {
				p.Kill() // the test still reads its last output
			}
		}
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		l := open(t, where)
		n, err := round(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		// The killed process may have saved one round that it did not print.
		if n != last+1 && n != last+2 {
			t.Errorf("the next round after %d is %d", last, n)
		}
		checkRounds(t, l, n)
		last = n
	}
}

func brokenConnections(t *testing.T, where string) {
	if !sqldb.IsURL(where) {
		t.Skip("this ledger has no connections")
	}
	broken(t, where, 25, func() { testenv.Disconnect(t, where) })
}

func TestCrashOfTheServerLosesNothing(t *testing.T) {
	t.Parallel()
	server := testenv.PostgresServer(t)
	broken(t, server.URL, 3, func() { server.Restart(t) })
}

// broken breaks the connections so many times while rows are saved, and checks that each save happened once.
func broken(t *testing.T, where string, times int, disconnect func()) {
	t.Helper()
	const each = 6
	l := open(t, where)
	saved := make(chan struct{}, times*each)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			if _, more := <-saved; !more {
				return
			}
			if n%each == 0 {
				disconnect() // while the next one is saved
			}
		}
	})
	done := 0
	for range times * each {
		if _, err := round(t.Context(), l); err != nil {
			t.Error(err)
			break
		}
		done++
		saved <- struct{}{}
	}
	close(saved)
	wg.Wait()
	checkRounds(t, l, done)
}
