package ledgertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Job is what another process does with the ledger.
type Job string

// The jobs.
const (
	// win tries to save each pair of rows that has version 1, and prints those
	// that it has won.
	win Job = "win"
	// rounds saves round after round until it is killed, and prints the number
	// of each when it is saved.
	rounds Job = "rounds"
)

// Work is what a process that Site.Process has started does; it opened l and
// prints to out. It returns when the job is done, or never.
func Work(ctx context.Context, l Ledger, job Job, out io.Writer) error {
	switch job {
	case win:
		return winPairs(ctx, l, fmt.Sprintf("writer %d", rand.Uint64()), func(pair int) { //nolint:gosec // no secret
			fmt.Fprintln(out, pair) //nolint:errcheck // the reader counts the lines
		})
	case rounds:
		for {
			n, err := round(ctx, l)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(out, n); err != nil {
				return fmt.Errorf("print round: %w", err)
			}
		}
	}
	return fmt.Errorf("there is no job %q", job)
}

// pairs of rows are saved together.
const pairs = 60

func pair(i int) []plan.Row {
	return []plan.Row{Row(fmt.Sprintf("0x%03da", i)), Row(fmt.Sprintf("0x%03db", i))}
}

// makePairs fills a ledger with pairs of version 1.
func makePairs(t *testing.T, l Ledger) {
	t.Helper()
	for i := range pairs {
		save(t, l, pair(i)...)
	}
}

// winPairs saves each pair, in whichever order, as if nobody had since it was
// made.
func winPairs(ctx context.Context, l Ledger, name string, won func(int)) error {
	for _, i := range rand.Perm(pairs) { //nolint:gosec // no secret
		rows := pair(i)
		if rand.IntN(2) == 0 { //nolint:gosec // no secret
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
func checkPairs(t *testing.T, l Ledger, wins map[int]int) {
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

func (on trial) concurrentWriters() {
	t, s := on.T, on.Site
	const writers = 6
	shared := open(t, s)
	makePairs(t, shared)
	var mu sync.Mutex
	wins := map[int]int{}
	var wg sync.WaitGroup
	for w := range writers {
		l := shared
		if w%2 == 0 {
			l = open(t, s)
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

func (on trial) concurrentProcesses() {
	t, s := on.T, on.Site
	if s.Process == nil {
		t.Skip("no other process can open this ledger")
	}
	l := open(t, s)
	makePairs(t, l)
	var processes []Process
	for range 3 {
		processes = append(processes, s.Process(t, win))
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

// lines are those that end.
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

// inRound is how many rows one round saves.
const inRound = 5

// round saves the next round: it gives every row the round's number, in all
// that a ledger keeps.
func round(ctx context.Context, l Ledger) (int, error) {
	for {
		rows, err := l.Rows(ctx)
		if err != nil {
			return 0, fmt.Errorf("read rows: %w", err)
		}
		if len(rows) == 0 {
			for i := range inRound {
				rows = append(rows, Row(fmt.Sprintf("0x%d", i)))
				rows[i].Attempt = 0
			}
		}
		n := rows[0].Attempt + 1
		for i := range rows {
			rows[i].Attempt, rows[i].Generation, rows[i].Reason = n, int64(n), fmt.Sprintf("round %d", n)
		}
		// What a killed process had under way may come in between.
		if err = l.Save(ctx, rows); !errors.Is(err, ledger.ErrConflict) {
			return n, err
		}
	}
}

// checkRounds makes sure that there were exactly n rounds, all of them whole.
func checkRounds(t *testing.T, l Ledger, n int) {
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
		if r.Attempt != n || r.Version != int64(n) || last.N != int64(n) || last.Attempt != n || last.Version != int64(n) {
			t.Errorf("after %d rounds row %s is of round %d, version %d; the last entry is %+v", n, r.Bundle, r.Attempt, r.Version, last)
		}
	}
	if g, err := l.Generation(t.Context()); err != nil || g != int64(n) {
		t.Errorf("generation %d, %v after %d rounds", g, err, n)
	}
}

func (on trial) killedWriter() {
	t, s := on.T, on.Site
	if s.Process == nil {
		t.Skip("no other process can open this ledger")
	}
	last := 0
	for _, life := range []int{1, 7, 23, 40, 3} {
		p := s.Process(t, rounds)
		seen := 0
		for line := range lines(p) {
			if _, err := fmt.Sscan(line, &last); err != nil {
				t.Fatalf("the process printed %q", line)
			}
			if seen++; seen == life {
				p.Kill() // what it prints before it ends is read on
			}
		}
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		l := open(t, s)
		n, err := round(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		// The killed one may have saved one more than it could say.
		if n != last+1 && n != last+2 {
			t.Errorf("the next round after %d is %d", last, n)
		}
		checkRounds(t, l, n)
		last = n
	}
}

func (on trial) brokenConnections() {
	t, s := on.T, on.Site
	if s.Break == nil {
		t.Skip("this ledger has no connections")
	}
	Broken(t, s, 25)
}

// Broken breaks the connections so many times while rows are saved, and makes
// sure that each save happened once.
func Broken(t *testing.T, s Site, times int) {
	t.Helper()
	const each = 6
	l := open(t, s)
	saved := make(chan struct{}, times*each)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			if _, more := <-saved; !more {
				return
			}
			if n%each == 0 {
				s.Break(t) // while the next one is saved
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
