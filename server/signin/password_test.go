package signin

import (
	"strconv"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func newGuesses() *guesses { return &guesses{failed: map[string]*rate.Limiter{}} }

func TestTenFailedSignInsWithANameFromAnAddressAreRefused(t *testing.T) {
	t.Parallel()
	g, now := newGuesses(), time.Unix(1e9, 0)
	for i := range 10 {
		if wait := g.wait("alice", "192.0.2.1", now); wait != 0 {
			t.Fatalf("after %d failures: %s", i, wait)
		}
		g.fail("alice", "192.0.2.1", now)
	}
	if wait := g.wait("alice", "192.0.2.1", now); wait <= 0 || wait > 30*time.Second {
		t.Errorf("after ten failures: %s", wait)
	}
	if wait := g.wait("alice", "192.0.2.2", now); wait != 0 {
		t.Errorf("from another address: %s", wait) // anybody could keep alice from signing in
	}
	if wait := g.wait("bob", "192.0.2.1", now); wait != 0 {
		t.Errorf("with another name: %s", wait)
	}
	if wait := g.wait("alice", "192.0.2.1", now.Add(30*time.Second)); wait != 0 {
		t.Errorf("30 s later: %s", wait)
	}
}

func TestGuessesFromOneAddressAndOfOneNameAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	address, name := newGuesses(), newGuesses()
	for i := range 200 {
		address.fail("user"+strconv.Itoa(i), "192.0.2.1", now)
		name.fail("alice", "192.0.2."+strconv.Itoa(i), now)
	}
	if address.wait("new", "192.0.2.1", now) == 0 || name.wait("alice", "198.51.100.1", now) == 0 {
		t.Error("200 failed sign-ins from one address, or with one name, refuse nothing")
	}
}

func TestKeysOfOldFailuresAreForgotten(t *testing.T) {
	t.Parallel()
	g, now := newGuesses(), time.Unix(1e9, 0)
	for i := range 40_000 { // three keys each, but for those of the name
		g.fail("alice", strconv.Itoa(i), now)
	}
	before := len(g.failed)
	g.fail("bob", "192.0.2.1", now.Add(24*time.Hour))
	g.forget(now.Add(48 * time.Hour))
	if before < 80_000 || len(g.failed) != 0 {
		t.Errorf("%d keys, and %d two days later", before, len(g.failed))
	}
}

func TestPasswordFitsItsHashOnly(t *testing.T) {
	t.Parallel()
	cost := PasswordCost{Passes: 1, KiB: 8}
	hashed := HashPassword("secret", cost)
	if err := CheckPasswordHash(hashed); err != nil {
		t.Error(err)
	}
	if fits, outdated := passwordFits("secret", hashed, cost); !fits || outdated {
		t.Errorf("fits %v, outdated %v", fits, outdated)
	}
	if fits, outdated := passwordFits("secret", hashed, PasswordCost{Passes: 2, KiB: 8}); !fits || !outdated {
		t.Errorf("at another cost: fits %v, outdated %v", fits, outdated)
	}
	for _, other := range []string{"", "Secret", "secret "} {
		if fits, _ := passwordFits(other, hashed, cost); fits {
			t.Errorf("%q fits", other)
		}
	}
	for _, bad := range []string{"", "secret", "$argon2id$v=19$m=8$x$y"} {
		if CheckPasswordHash(bad) == nil {
			t.Errorf("%q is taken for a hash", bad)
		}
		if fits, _ := passwordFits("secret", bad, cost); fits {
			t.Errorf("a password fits %q", bad)
		}
	}
}
