package cachetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// storm is one call of RunStorm or of a rehearsal.
type storm struct {
	*testing.T
	Site
	name     string // of the cache, below the hosts' directories
	options  cache.Options
	contents []content
	rehearsal
	group errgroup.Group
	over  chan struct{} // closed when no new process is to start

	mu    sync.Mutex
	alive map[int]*testenv.Process
	next  int // number of the next process
	wrong []string
	sum   counts // counts of events that the processes do not log
}

// RunStorm runs a storm, and fails the test for every promise that it saw broken.
func RunStorm(t *testing.T, s Site) {
	t.Helper()
	if testing.Short() {
		s.Storm.Processes, s.Storm.Gets = 20, 60
	}
	if text := os.Getenv("CLTEST_STORM"); text != "" {
		if err := s.Storm.parse(text); err != nil {
			t.Fatalf("CLTEST_STORM=%s: want something like 200x5000, or 200x5000@7 with a seed: %v", text, err)
		}
	}
	sum, wrong := runAndJudge(t, s, rehearsal{keys: 30, limit: testenv.WaitLimit})
	t.Log(sum)
	for i, w := range wrong {
		if i == 30 {
			t.Errorf("… and %d more", len(wrong)-i)
			break
		}
		t.Error(w)
	}
}

// parse reads a text such as 200x5000@7.
func (s *Storm) parse(text string) error {
	size, seed, seeded := strings.Cut(text, "@")
	processes, gets, _ := strings.Cut(size, "x")
	var errs [3]error
	s.Processes, errs[0] = strconv.Atoi(processes)
	s.Gets, errs[1] = strconv.ParseInt(gets, 10, 64)
	if seeded {
		s.Seed, errs[2] = strconv.ParseUint(seed, 10, 64)
	}
	return errors.Join(errs[:]...)
}

// rehearsal changes a storm into one that only shows that the tests notice a fault.
type rehearsal struct {
	rehearses bool
	sabotage  sabotage
	keys      int
	limit     time.Duration // for each check after its end
}

// runAndJudge runs a storm and returns its counts and the promises that it saw broken.
func runAndJudge(t *testing.T, site Site, r rehearsal) (counts, []string) {
	t.Helper()
	site.Storm.Processes = cmp.Or(site.Storm.Processes, 60)
	site.Storm.Gets = cmp.Or(site.Storm.Gets, 300)
	site.Storm.Seed = cmp.Or(site.Storm.Seed, 1)
	if site.Logs == "" {
		site.Logs = t.TempDir()
	}
	s := &storm{
		T: t, Site: site, name: strings.ReplaceAll(t.Name(), "/", "-"), options: site.Options,
		contents: contents(site.Storm.Seed, r.keys), rehearsal: r,
		over: make(chan struct{}), alive: map[int]*testenv.Process{}, sum: counts{},
	}
	for _, c := range s.contents { // room for less than half of them, besides retired ones
		s.options.Size += c.size * 2 / 5
		if s.options.Settle > 0 {
			s.options.Size += c.size / 5
		}
	}
	s.options.Grace = cmp.Or(s.options.Grace, 5*s.options.Term)
	s.runProcesses()
	records := s.records()
	s.checkAftermath()
	sum, wrong := judge(records, s.options.Settle)
	maps.Copy(sum, s.sum)
	return sum, append(wrong, s.wrong...)
}

// tally counts an event that no process logs.
func (s *storm) tally(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum[what]++
}

// runProcesses starts the processes, waits until they have done enough, and ends them.
func (s *storm) runProcesses() {
	audit := auditor{dir: filepath.Join(s.server(), s.name)}
	ctx, end := context.WithCancel(s.Context())
	s.group.Go(func() error { audit.watch(ctx); return nil })
	for range s.Storm.Processes {
		s.startProcess()
	}
	if s.sabotage != "" {
		s.awaitSabotage()
	}
	s.await(func(sum counts) bool { return sum.gets() >= s.Storm.Gets*4/5 })
	s.killDoomed()
	s.await(func(sum counts) bool { return sum.gets() >= s.Storm.Gets && s.isEnough(sum) })
	s.mu.Lock()
	close(s.over)
	for _, p := range s.alive {
		_ = p.Input.Close() // it may have ended already
	}
	s.mu.Unlock()
	s.await(func(counts) bool { return s.haveEnded() })
	end()
	_ = s.group.Wait() // failures are in s.wrong
	s.sum["most bytes"], s.sum["quota"], s.sum["audits"] = audit.most, s.options.Size, audit.runs
	var biggest int64
	for _, c := range s.contents {
		biggest = max(biggest, c.size)
	}
	if audit.most > s.options.Size+biggest {
		s.broken("the quota of %d bytes was exceeded by more than one object: %d bytes were on the disk at once", s.options.Size, audit.most)
	}
}

// isEnough reports whether the storm has tested all promises. A rehearsal need not.
func (s *storm) isEnough(sum counts) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rehearses || sum.enough() && s.sum["killed"] > 0
}

// haveEnded reports whether all processes have ended.
func (s *storm) haveEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.alive) == 0
}

// await waits until the storm has come so far. It waits as long as the processes make progress,
// however slow the machine is. It ends them when none has logged anything or ended for
// testenv.WaitLimit.
func (s *storm) await(far func(counts) bool) {
	var last int
	for moved := time.Now(); s.Context().Err() == nil; {
		began := time.Now()
		records := s.records()
		s.mu.Lock()
		now := len(records) - len(s.alive)
		s.mu.Unlock()
		sum, _ := judge(records, s.options.Settle)
		switch {
		case far(sum):
			return
		case now != last:
			last, moved = now, began
		case time.Since(moved) > testenv.WaitLimit:
			s.dump()
			return
		}
		_ = pause.For(s.Context(), max(20*time.Millisecond, 10*time.Since(began))) // use at most a tenth of a processor
	}
}

// awaitSabotage waits until the sabotage has begun.
func (s *storm) awaitSabotage() {
	for s.Context().Err() == nil {
		records, err := readJournal(s.Logs, 1)
		if err != nil || slices.ContainsFunc(records, func(r record) bool { return r.Did == didSabotage }) {
			return
		}
		_ = pause.For(s.Context(), 10*time.Millisecond)
	}
}

// broken records a broken promise.
func (s *storm) broken(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// dump ends processes that hang, and makes them print their goroutines.
func (s *storm) dump() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, p := range s.alive {
		s.wrong = append(s.wrong, fmt.Sprintf("process %d hangs: nothing happened in the storm for %s", n, testenv.WaitLimit))
		p.Signal(syscall.SIGQUIT)
		p.Signal(syscall.SIGCONT)
	}
}

// fate draws the fate of a process: a fifth are killed, some are stopped.
func (s *storm) fate(n int) fate {
	rng := rand.New(rand.NewPCG(s.Storm.Seed, uint64(n)<<32))
	f := fate{Op: rng.IntN(4), Fill: rng.IntN(2) == 0, After: time.Duration(rng.ExpFloat64() * float64(8*time.Millisecond))}
	switch {
	case n%5 == 0:
		f.Signal = syscall.SIGKILL
	case n%10 == 1:
		f.Signal = syscall.SIGSTOP
	}
	return f
}

// startProcess starts the next process, unless the storm is over.
func (s *storm) startProcess() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.over:
		return
	default:
	}
	s.next++
	n, host := s.next, s.next%len(s.Hosts)
	o := s.options
	o.Host = hostName(host)
	work := workerOrders{
		Process: n, Dir: filepath.Join(s.Hosts[host], s.name), Options: o, Logs: s.Logs, Remote: s.Through != nil, Seed: s.Storm.Seed, Keys: len(s.contents),
		Faulty: s.Faulty, Think: time.Duration(s.Storm.Processes) * 4 * time.Millisecond, Fate: s.fate(n),
	}
	if n == 1 && s.sabotage != "" {
		work.Sabotage, work.Fate = s.sabotage, fate{}
	}
	order := orders{Worker: &work}.variable(s)
	var p *testenv.Process
	switch {
	case s.Through != nil:
		p = testenv.AgainThrough(s, s.Through(host), s.Program, order)
	case s.As == nil:
		p = testenv.Again(s, order)
	default:
		p = testenv.AgainAs(s, s.Program, s.As(host), order)
	}
	s.alive[n] = p
	s.sum["processes"]++
	s.group.Go(func() error { s.follow(n, p, work); return nil })
}

// killDoomed kills the processes that should be killed and still run.
func (s *storm) killDoomed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, p := range s.alive {
		if s.fate(n).Signal == syscall.SIGKILL {
			p.Kill()
		}
	}
}

// records returns the records that all processes have written so far.
func (s *storm) records() []record {
	s.mu.Lock()
	processes := s.next
	s.mu.Unlock()
	var all []record
	for n := range processes {
		more, err := readJournal(s.Logs, n+1)
		if err != nil {
			s.broken("%v", err)
		}
		all = append(all, more...)
	}
	return all
}
