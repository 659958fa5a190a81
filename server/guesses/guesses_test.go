package guesses_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/server/guesses"
)

var start = time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)

// crowd is a number of guessers. Each comes back as soon as it may, or sooner.
type crowd struct {
	*guesses.Guesses
	random   *rand.Rand
	attempts []guesses.Attempt
	// tried has the times of the wrong guesses that were let in.
	tried []time.Time
}

func newCrowd(seed uint64, attempts ...guesses.Attempt) *crowd {
	return &crowd{Guesses: guesses.New(), random: rand.New(rand.NewPCG(seed, 7)), attempts: attempts}
}

// storm lets the guessers try for a time, each every five seconds or so.
func (c *crowd) storm(from time.Time, d time.Duration) (until time.Time) {
	for now := from; now.Before(from.Add(d)); now = now.Add(time.Duration(c.random.IntN(10_000)) * time.Millisecond) {
		for _, i := range c.random.Perm(len(c.attempts)) {
			if c.Try(c.attempts[i], now) == 0 {
				c.tried = append(c.tried, now)
			}
		}
	}
	return from.Add(d)
}

// most returns the largest number of guesses that were let in within a time.
func most(tried []time.Time, within time.Duration) (n int) {
	first := 0
	for last, at := range tried {
		for at.Sub(tried[first]) > within {
			first++
		}
		n = max(n, last-first+1)
	}
	return n
}

const login = "192.0.2.1" // the network of a login node

// everywhere are strangers that try the name alice from other networks, and other names from the login node.
func everywhere(networks, names int) (all []guesses.Attempt) {
	for i := range networks {
		all = append(all, guesses.Attempt{Name: "alice", Network: "198.51.100." + strconv.Itoa(i)})
	}
	for i := range names {
		all = append(all, guesses.Attempt{Name: "other" + strconv.Itoa(i), Network: login})
	}
	return all
}

func TestDeviceIsLetInAtOnceWhateverOthersDo(t *testing.T) {
	t.Parallel()
	alice := guesses.Attempt{Name: "alice", Network: login, Device: "alice's"}
	// All at once: strangers everywhere, familiar ones on her own network, and others' devices.
	others := append(everywhere(40, 40), guesses.Attempt{Name: "alice", Network: login},
		guesses.Attempt{Name: "alice", Network: login, Familiar: true}, guesses.Attempt{Name: "bob", Network: login, Device: "bob's"})
	c, now := newCrowd(1, others...), start
	for i := range 20 {
		now = c.storm(now, time.Minute)
		if wait := c.Try(alice, now); wait != 0 {
			t.Fatalf("sign-in %d has to wait for %s", i, wait)
		}
		c.Right(alice)
	}
}

func TestFamiliarClientIsLetInAtOnceWhateverOthersDo(t *testing.T) {
	t.Parallel()
	alice := guesses.Attempt{Name: "alice", Network: login, Familiar: true}
	others := append(everywhere(40, 40), guesses.Attempt{Name: "alice", Network: "203.0.113.1", Familiar: true},
		guesses.Attempt{Name: "bob", Network: login, Familiar: true})
	c, now := newCrowd(2, others...), start
	for i := range 20 {
		now = c.storm(now, time.Minute)
		if wait := c.Try(alice, now); wait != 0 {
			t.Fatalf("sign-in %d has to wait for %s", i, wait)
		}
		c.Right(alice)
	}
}

func TestStrangerIsLetInAfterOneTurnOfEachOther(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		networks, names int
		within          time.Duration
	}{
		{0, 0, 0}, {1, 0, 2 * time.Minute}, {30, 0, 31 * time.Minute}, {0, 100, 101 * 3 * time.Second}, {10, 300, 301 * 3 * time.Second},
	} {
		t.Run(fmt.Sprint(test.networks, " networks, ", test.names, " names"), func(t *testing.T) {
			t.Parallel()
			alice := guesses.Attempt{Name: "alice", Network: login}
			c := newCrowd(3, everywhere(test.networks, test.names)...)
			now := c.storm(start, 2*time.Minute)
			begun := now
			for wait := c.Try(alice, now); wait > 0; wait = c.Try(alice, now) {
				if now.Sub(begun) > test.within {
					t.Fatalf("not let in after %s", now.Sub(begun))
				}
				now = c.storm(now, wait)
			}
			if took := now.Sub(begun); took > test.within {
				t.Errorf("let in after %s, want %s", took, test.within)
			}
		})
	}
}

func TestGuessesOfANameAreBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attempts []guesses.Attempt
		most     int
	}{
		"one stranger":       {everywhere(1, 0), 75},
		"many strangers":     {everywhere(60, 0), 75},
		"a familiar network": {[]guesses.Attempt{{Name: "alice", Network: login, Familiar: true}}, 71},
		"a device":           {[]guesses.Attempt{{Name: "alice", Network: login, Device: "alice's"}}, 71},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(4, test.attempts...)
			c.storm(start, 3*time.Hour)
			if n := most(c.tried, time.Hour); n > test.most || n < 60 {
				t.Errorf("%d guesses in an hour", n)
			}
		})
	}
}

// Guessers who come late to their appointments, all at once, make no more guesses.
func TestLateAppointmentsAreBoundedToo(t *testing.T) {
	t.Parallel()
	c := newCrowd(5)
	for i := range 50 {
		c.attempts = append(c.attempts, guesses.Attempt{Name: "alice", Network: "198.51.100." + strconv.Itoa(i)})
	}
	for minute := range 300 {
		if minute%5 == 4 {
			c.storm(start.Add(time.Duration(minute)*time.Minute), time.Second)
		}
	}
	if n := most(c.tried, time.Hour); n > 75 {
		t.Errorf("%d guesses in an hour", n)
	}
}

func TestRightPasswordsCostNothing(t *testing.T) {
	t.Parallel()
	g := guesses.New()
	a := guesses.Attempt{Name: "alice", Network: login}
	for i := range 1000 {
		if wait := g.Try(a, start); wait != 0 {
			t.Fatalf("sign-in %d has to wait for %s", i, wait)
		}
		g.Right(a)
	}
}

func TestClockThatWasSetBackLocksNobodyOut(t *testing.T) {
	t.Parallel()
	for _, a := range []guesses.Attempt{{Name: "alice", Network: login}, {Name: "alice", Network: login, Familiar: true}} {
		c := newCrowd(6, a)
		c.storm(start, 10*time.Minute)
		back := start.Add(-365 * 24 * time.Hour)
		if wait := c.Try(a, back); wait > time.Minute {
			t.Errorf("after a year back: %s", wait)
		}
		c.tried = nil
		c.storm(back, 3*time.Hour)
		if n := most(c.tried, time.Hour); n > 75 || n < 60 {
			t.Errorf("%d guesses in an hour", n)
		}
	}
}

func TestMemoryIsBoundedAndKnownClientsPassAllTheSame(t *testing.T) {
	t.Parallel()
	g := guesses.New()
	refused := 0
	for i := range 60_000 { // two gates each
		if g.Try(guesses.Attempt{Name: "n" + strconv.Itoa(i), Network: "w" + strconv.Itoa(i)}, start) != 0 {
			refused++
		}
	}
	if refused < 9_000 || refused > 11_000 {
		t.Errorf("%d of 60,000 strangers were refused", refused)
	}
	for _, known := range []guesses.Attempt{{Name: "alice", Network: login, Familiar: true}, {Name: "alice", Device: "d"}} {
		if wait := g.Try(known, start); wait != 0 {
			t.Errorf("%+v has to wait for %s", known, wait)
		}
	}
	if wait := g.Try(guesses.Attempt{Name: "bob", Network: login}, start.Add(2*time.Minute)); wait != 0 {
		t.Errorf("a stranger, two minutes later: %s", wait)
	}
}

// Each refused try of a new name makes an appointment, which nobody keeps.
func TestAppointmentsThatNobodyKeepsLockNobodyOut(t *testing.T) {
	t.Parallel()
	g := guesses.New()
	for hour := range 100 { // a network has 1,200 appointments in an hour
		for i := range 1_300 {
			g.Try(guesses.Attempt{Name: "n" + strconv.Itoa(hour) + "-" + strconv.Itoa(i), Network: "attacker"}, start.Add(time.Duration(hour)*time.Hour))
		}
	}
	if wait := g.Try(guesses.Attempt{Name: "bob", Network: login}, start.Add(102*time.Hour)); wait != 0 {
		t.Errorf("a stranger, two hours later: %s", wait)
	}
}

func TestMailsToAnAddressAreBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		networks, recipients, most int
	}{"one address": {40, 1, 9}, "one network": {1, 200, 140}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(7)
			for network := range test.networks {
				for recipient := range test.recipients {
					c.attempts = append(c.attempts, guesses.Attempt{Mail: true, Name: strconv.Itoa(recipient), Network: strconv.Itoa(network)})
				}
			}
			c.storm(start, 3*time.Hour)
			if n := most(c.tried, 2*time.Hour); n > test.most || n < 3 {
				t.Errorf("%d mails in two hours", n)
			}
		})
	}
}

// A name may be a part of a large request, which a gate must not keep.
//
//nolint:paralleltest // it measures the memory of the process
func TestGatesKeepNoRequests(t *testing.T) {
	heap := func() int {
		runtime.GC()
		runtime.GC() // of what finalizers held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	const parties, large = 300, 64 << 10
	g, before := guesses.New(), heap()
	for i := range parties {
		request := "name" + strconv.Itoa(1000+i) + strings.Repeat("x", large)
		g.Try(guesses.Attempt{Name: request[:8], Network: login}, start)
		g.Try(guesses.Attempt{Name: "alice", Network: request[:8]}, start)
		g.Try(guesses.Attempt{Name: request[:8], Network: login, Mail: true}, start)
	}
	if grown := heap() - before; grown > parties*large/8 {
		t.Errorf("%d bytes for %d parties", grown, 3*parties)
	}
	runtime.KeepAlive(g)
}
