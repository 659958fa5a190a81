package turns_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/cl-slurm/cl-slurm/internal/turns"
)

// desk requests places and records the parties that get them.
type desk struct {
	*turns.Turns

	got     []string
	tickets map[string]*turns.Ticket
}

func newDesk(places int) *desk {
	return &desk{Turns: turns.New(places), tickets: map[string]*turns.Ticket{}}
}

// ask asks for a place under a name of the form OWNER or OWNER/BUNDLE and a number.
func (d *desk) ask(owner, bundle string, n int) {
	name := fmt.Sprint(owner, bundle, n)
	d.tickets[name] = d.Ask(turns.Party{Owner: owner, Bundle: bundle}, func() { d.got = append(d.got, name) })
}

func (d *desk) want(t *testing.T, names ...string) {
	t.Helper()
	if !slices.Equal(d.got, names) {
		t.Errorf("places went to %v, want %v", d.got, names)
	}
	d.got = nil
}

// TestOneWishIsNotBehindAThousand: 1,000 wishes of one owner are ahead of one of another's.
func TestOneWishIsNotBehindAThousand(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	for i := range 1000 {
		d.ask("ann", "", i)
	}
	d.ask("ben", "", 0)
	d.tickets["ann0"].Leave()
	d.tickets["ann1"].Leave()
	d.tickets["ben0"].Leave()
	d.want(t, "ann0", "ann1", "ben0", "ann2")
}

// An operator changes the number while places are taken.
func TestNumberOfPlacesChangesWhileSomeAreTaken(t *testing.T) {
	t.Parallel()
	d := newDesk(2)
	for _, owner := range []string{"ann", "ben", "cem"} {
		d.ask(owner, "", 0)
	}
	d.want(t, "ann0", "ben0")
	d.SetPlaces(3)
	d.want(t, "cem0")
	d.SetPlaces(1)
	d.ask("dan", "", 0)
	d.tickets["ann0"].Leave()
	d.tickets["ben0"].Leave()
	d.want(t)
	d.tickets["cem0"].Leave()
	d.want(t, "dan0")
	if d.Places() != 1 || d.Taken() != 1 {
		t.Errorf("%d of %d places are taken", d.Taken(), d.Places())
	}
}

// TestOneOwnerLeavesPlacesFree: others find a place at once, however long the first owner keeps theirs.
func TestOneOwnerLeavesPlacesFree(t *testing.T) {
	t.Parallel()
	for places, most := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 8: 4, 2048: 1024} {
		d := newDesk(places)
		for i := range places + 1 {
			d.ask("ann", "", i)
		}
		if len(d.got) != most {
			t.Errorf("one owner got %d of %d places, want %d", len(d.got), places, most)
		}
		d.got = nil
		d.ask("ben", "", 0)
		if places > 1 {
			d.want(t, "ben0")
		}
	}
}

func TestOwnerWithTheFewestPlacesIsNext(t *testing.T) {
	t.Parallel()
	d := newDesk(4)
	for i := range 3 {
		d.ask("ann", "", i)
		d.ask("ben", "", i)
	}
	d.want(t, "ann0", "ben0", "ann1") // ben may not have the last free place as well
	d.ask("cy", "", 0)
	d.want(t, "cy0")
	d.tickets["ann0"].Leave()
	d.tickets["ann1"].Leave()
	d.want(t, "ann2") // ann has none now, and ben one
}

// TestWhoComesAgainAndAgainOvertakesNobody: an owner who asks again after each grant has not waited
// longer than one who waits all the time.
func TestWhoComesAgainAndAgainOvertakesNobody(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	d.ask("ben", "", 0)
	d.ask("cy", "", 0)
	for i := range 3 {
		d.ask("ann", "", i)
	}
	for i := range 4 {
		for _, name := range []string{"ben", "cy"} {
			d.ask(name, "", i+1)
			d.tickets[fmt.Sprint(name, i)].Leave()
			if k := d.tickets[fmt.Sprint("ann", i)]; k != nil && name == "cy" {
				k.Leave()
			}
		}
	}
	d.want(t, "ben0", "cy0", "ann0", "ben1", "cy1", "ann1", "ben2", "cy2", "ann2", "ben3", "cy3", "ben4")
}

func TestBundlesOfAnOwnerTakeTurns(t *testing.T) {
	t.Parallel()
	d := newDesk(3)
	for i := range 100 {
		d.ask("ann", "/large", i)
	}
	d.ask("ann", "/small", 0)
	d.want(t, "ann/large0", "ann/large1")
	d.tickets["ann/large0"].Leave()
	d.want(t, "ann/small0")
}

// TestWishOfSeveralHasTheFirstTurn: ben joins ann's last wish, and it is fulfilled in ben's turn.
func TestWishOfSeveralHasTheFirstTurn(t *testing.T) {
	t.Parallel()
	d, ben := newDesk(1), turns.Party{Owner: "ben"}
	for i := range 9 {
		d.ask("ann", "", i)
	}
	d.tickets["ann8"].Join(ben)
	d.tickets["ann8"].Join(ben)
	d.tickets["ann7"].Join(ben)
	d.tickets["ann7"].Quit(ben)
	d.tickets["ann0"].Leave()
	d.tickets["ann1"].Leave()
	d.want(t, "ann0", "ann1", "ann8")
	d.tickets["ann8"].Join(turns.Party{Owner: "cy"}) // too late to count
	d.tickets["ann8"].Leave()
	d.tickets["ann8"].Leave()
	d.want(t, "ann2")
	if n := d.Taken(); n != 1 {
		t.Errorf("%d places are taken", n)
	}
}

func TestWaiterWhoseContextEndsTakesNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := turns.New(1)
		leave, err := all.Take(t.Context(), turns.Party{Owner: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := all.Take(ctx, turns.Party{Owner: "ben"})
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		leave()
		if n := all.Taken(); n != 0 {
			t.Errorf("%d places are taken", n)
		}
		if _, err := all.Take(t.Context(), turns.Party{Owner: "cy"}); err != nil {
			t.Error(err)
		}
	})
}

// TestNobodyWaitsForLongInAnyOrder plays random lives: while an owner waits with no more places than
// another has, that other one gets one more at most.
func TestNobodyWaitsForLongInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		l := life{T: t, random: rand.New(rand.NewPCG(seed, 1))}
		places := 1 + l.random.IntN(6)
		l.turns = turns.New(places)
		for range 300 {
			if l.random.IntN(2) == 0 || len(l.holding) == 0 {
				l.ask(l.random.IntN(len(l.held)))
			} else {
				l.leave(l.random.IntN(len(l.holding)))
			}
		}
		if taken := l.turns.Taken(); taken != len(l.holding) || taken > places || t.Failed() {
			t.Fatalf("seed %d: %d of %d places are taken, %d are held", seed, taken, places, len(l.holding))
		}
	}
}

// life is a random life of four owners.
type life struct {
	*testing.T

	random        *rand.Rand
	turns         *turns.Turns
	held, waiting [4]int
	passed        [4][4]int // how often the first was passed over by the second
	holding       []*wish
}

type wish struct {
	owner  int
	ticket *turns.Ticket
}

func (l *life) ask(o int) {
	if l.waiting[o] == 0 {
		l.passed[o] = [4]int{}
	}
	l.waiting[o]++
	w := &wish{owner: o}
	w.ticket = l.turns.Ask(turns.Party{Owner: strconv.Itoa(o)}, func() { l.grant(w) })
}

func (l *life) leave(i int) {
	w := l.holding[i]
	l.holding = slices.Delete(l.holding, i, i+1)
	l.held[w.owner]--
	w.ticket.Leave()
}

func (l *life) grant(w *wish) {
	o := w.owner
	for other := range l.held {
		if other == o || l.waiting[other] == 0 || l.held[other] > l.held[o] {
			continue
		}
		if l.passed[other][o]++; l.passed[other][o] > 1 {
			l.Errorf("owner %d got a second place before owner %d", o, other)
		}
	}
	l.waiting[o]--
	l.held[o]++
	l.passed[o] = [4]int{}
	l.holding = append(l.holding, w)
}
