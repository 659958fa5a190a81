package lease_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/lease"
)

func never(lease.Holder) bool { return false }

func nothing(lease.Holder) {}

// bridgeOn returns the holder for a bridge on a host.
func bridgeOn(host string) lease.Holder {
	return lease.Holder{Bridge: "9f02ab", Ledger: "/var/tmp/ledger.db", Host: host, Process: 17}
}

func acquire(t *testing.T, dir, host string) *lease.Lease {
	t.Helper()
	l, err := lease.Acquire(t.Context(), dir, bridgeOn(host), never, nothing)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func renew(t *testing.T, l *lease.Lease) {
	t.Helper()
	if err := l.Renew(t.Context(), "here"); err != nil {
		t.Fatal(err)
	}
}

func TestSecondBridgeIsRefusedWhileTheFirstRenews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "bridge")
		first := acquire(t, dir, "login1")
		ctx, stop := context.WithCancel(t.Context())
		var g sync.WaitGroup
		g.Go(func() {
			for ctx.Err() == nil {
				if err := first.Renew(ctx, "here"); err != nil {
					t.Error(err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(lease.RenewEvery):
				}
			}
		})
		defer g.Wait()
		defer stop()
		began, waited := time.Now(), ""
		_, err := lease.Acquire(t.Context(), dir, bridgeOn("login2"), never, func(h lease.Holder) { waited = h.Host })
		var held *lease.HeldError
		if !errors.As(err, &held) || held.Holder.Host != "login1" || held.Holder.Process != 17 || waited != "login1" {
			t.Fatalf("second bridge: %v after waiting for %q", err, waited)
		}
		for _, want := range []string{"9f02ab", "process 17 on login1", "/var/tmp/ledger.db", dir} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in %q", want, err)
			}
		}
		if took := time.Since(began); took > lease.RenewEvery+5*time.Second {
			t.Errorf("it was refused after %s", took)
		}
	})
}

func TestBridgeThatEndedInOrderIsSucceededAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "bridge")
		if _, err := lease.Read(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("before the first: %v", err)
		}
		first := acquire(t, dir, "login1")
		renew(t, first)
		if s, err := lease.Read(dir); err != nil || s.Ended || s.Holder.Host != "login1" || string(s.Document) != `"here"` {
			t.Errorf("state %+v, %v", s, err)
		}
		if err := first.End("gone"); err != nil {
			t.Fatal(err)
		}
		if s, err := lease.Read(dir); err != nil || !s.Ended || string(s.Document) != `"gone"` {
			t.Errorf("state %+v, %v", s, err)
		}
		began := time.Now()
		renew(t, acquire(t, dir, "login2"))
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited for %s", took)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 {
			t.Errorf("%v, %v: want the files of one term", entries, err)
		}
	})
}

func TestOfBridgesThatStartAtOnceOneGetsTheLease(t *testing.T) {
	t.Parallel()
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bridge")
			const bridges = 6
			var starting, g sync.WaitGroup
			starting.Add(bridges)
			holders := make(chan *lease.Lease, bridges)
			for range bridges {
				g.Go(func() {
					l, err := lease.Acquire(t.Context(), dir, bridgeOn("login"), never, nothing)
					starting.Done()
					var held *lease.HeldError
					switch {
					case err == nil:
						holders <- l
						for range 30 {
							renew(t, l)
							time.Sleep(lease.RenewEvery)
						}
					case !errors.As(err, &held):
						t.Error(err)
					}
				})
			}
			starting.Wait()
			if n := len(holders); n != 1 {
				t.Errorf("%d bridges have the lease", n)
			}
			g.Wait()
		})
	}
}

// A bridge that crashed has not given up its lease. The clock of its host does not matter.
func TestSilentBridgeIsSucceededAndStopsWhenItComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "bridge")
		first := acquire(t, dir, "login1")
		renew(t, first)
		began := time.Now()
		second := acquire(t, dir, "login2")
		if took := time.Since(began); took < 110*time.Second || took > 3*time.Minute {
			t.Errorf("it was succeeded after %s, want two minutes", took)
		}
		err := first.Renew(t.Context(), nil)
		var lost *lease.LostError
		if !errors.As(err, &lost) || lost.Holder.Host != "login2" {
			t.Errorf("the first comes back: %v", err)
		}
		renew(t, second)
		if s, err := lease.Read(dir); err != nil || s.Holder.Host != "login2" || string(s.Document) != `"here"` {
			t.Errorf("state %+v, %v", s, err)
		}
	})
}

func TestBridgeOnTheSameLockedLedgerWaitsForNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "bridge")
		renew(t, acquire(t, dir, "login1"))
		began := time.Now()
		_, err := lease.Acquire(t.Context(), dir, bridgeOn("login1"), func(h lease.Holder) bool { return h.Bridge == "9f02ab" }, nothing)
		if took := time.Since(began); err != nil || took != 0 {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// A new holder removes the record of the previous one, perhaps while another bridge reads it.
func TestLeaseThatChangesHandsIsReadAllTheTime(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "bridge")
	acquire(t, dir, "login1")
	changed := make(chan error)
	go func() {
		var err error
		for range 50 {
			_, failed := lease.Acquire(t.Context(), dir, bridgeOn("login2"), func(lease.Holder) bool { return true }, nothing)
			err = errors.Join(err, failed)
		}
		changed <- err
	}()
	for {
		select {
		case err := <-changed:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
		if _, err := lease.Read(dir); err != nil {
			t.Error(err)
		}
	}
}

// A process may stop for an hour between its look at the holder and its claim of the next term.
func TestBridgeThatClaimsAnOldTermIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "bridge")
	over := func(lease.Holder) bool { return true }
	acquire(t, dir, "login1")
	acquireOthers := func(lease.Holder) bool {
		for _, host := range []string{"login2", "login3"} {
			if _, err := lease.Acquire(t.Context(), dir, bridgeOn(host), over, nothing); err != nil {
				t.Error(err)
			}
		}
		return true
	}
	_, err := lease.Acquire(t.Context(), dir, bridgeOn("late"), acquireOthers, nothing)
	var held *lease.HeldError
	if !errors.As(err, &held) || held.Holder.Host != "login3" {
		t.Errorf("the late bridge: %v", err)
	}
}

// Sites remove files from scratch disks that have not changed for weeks.
func TestRecordThatASitePurgedIsWrittenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "bridge")
		first := acquire(t, dir, "login1")
		renew(t, first)
		if err := os.Remove(filepath.Join(dir, "lease-1.json")); err != nil {
			t.Fatal(err)
		}
		renew(t, first)
		if s, err := lease.Read(dir); err != nil || s.Holder.Host != "login1" {
			t.Errorf("state %+v, %v", s, err)
		}
		if err := os.Remove(filepath.Join(dir, "lease-1.json")); err != nil {
			t.Fatal(err)
		}
		second := acquire(t, dir, "login2") // it cannot see the first holder
		var lost *lease.LostError
		if err := first.Renew(t.Context(), nil); !errors.As(err, &lost) {
			t.Errorf("the first renews: %v", err)
		}
		renew(t, second)
	})
}

// Bridges start, crash and are suspended at random. After a bridge has renewed its lease, no bridge of an
// earlier term ever renews again.
func TestLeaseNeverGoesBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bridge")
			var mu sync.Mutex
			last, next, renewals := 0, 0, 0 // by order of acquisition
			var g sync.WaitGroup
			for host := range uint64(4) {
				random := rand.New(rand.NewPCG(seed, host))
				pause := func(most int) { time.Sleep(time.Duration(random.IntN(most)) * time.Second) }
				g.Go(func() {
					for range 3 {
						pause(200)
						l, err := lease.Acquire(t.Context(), dir, bridgeOn("login"), never, nothing)
						var held *lease.HeldError
						if errors.As(err, &held) {
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						next++
						mine := next
						mu.Unlock()
						for range random.IntN(15) {
							mu.Lock() // one thing at a time, so that the order is known
							err := l.Renew(t.Context(), nil)
							if err == nil {
								renewals++
								if mine < last {
									t.Errorf("seed %d: holder %d renewed after holder %d", seed, mine, last)
								}
								last = mine
							}
							mu.Unlock()
							if err != nil {
								break
							}
							if random.IntN(20) == 0 {
								pause(400) // suspended
							}
							time.Sleep(lease.RenewEvery)
						}
						if random.IntN(2) == 0 {
							_ = l.End(nil)
						}
					}
				})
			}
			g.Wait()
			if renewals < 10 {
				t.Errorf("seed %d: only %d renewals", seed, renewals)
			}
		})
	}
}
