package cache

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The model is the protocol of doc.go for one key, as small machines that take
// one step at a time on one file server. The check visits every state that any
// order of their steps and of faults leads to.
//
// The model has no clock: a lease may be late, a sweep due and Settle over at any time, as after a
// jump of the server's clock. The one exception is assumption 6 of docs/contributors/cache.md: a link that its
// client gave up on is done within Settle or never, so Settle does not end before that.

// tokens is a set of contents, which are called 1, 2 and 3. 0 stands for none.
type tokens uint8

const mostTokens = 3

func only(t uint8) tokens { return tokens(1) << t }

func (s tokens) has(t uint8) bool { return s&only(t) != 0 }

// world is a state of the file server and of all actors.
type world struct {
	record  uint8  // the content in the standing record
	known   tokens // contents that were in use at some time: a host may believe that they still are
	first   tokens // contents whose record has its first name
	content tokens // contents on the disk
	retired tokens // contents of the records in retired/
	seen    tokens // of these, the ones with a note
	settled tokens // of these, the ones whose Settle is over
	late    uint8  // the content whose link is under way although its client gave up

	pins  [modelHolders]tokens
	inUse [modelHolders]tokens // contents that Get returned to a holder that is not over
	over  [modelHolders]bool

	actors            [mostActors]actor
	faults, retirings uint8 // that may still happen
}

// actor is one process.
type actor struct {
	next  step
	token uint8  // that it works on
	saw   tokens // pins that an earlier listing showed; only a mover and a wrong protocol keep it
}

// step is the next step of an actor.
type step uint8

const (
	ended step = iota // or crashed
	getPin
	getReadAgain
	getPinLate // of a wrong protocol
	fillBegin
	fillContent
	fillPin
	fillLink
	fillReadBack
	fillDropFirstName
	removeUnlink
	removeProbe
	removeListRetired
	removeListPins
	removeContent
	removeRecord
	movePick
	moveReadAgain
	moveDrop
)

// The holders of the model.
const (
	holderA = iota
	holderB
	modelHolders
	nobody
)

// role is the task of an actor.
type role struct {
	name   string
	holder int
	begins step
	tokens []uint8 // that it may fill with
	sweeps bool    // it removes contents that were never published, not retired ones
}

const mostActors = 6

var (
	getOfA     = role{name: "Get of A", holder: holderA, begins: getPin}
	fillOfB    = role{name: "fill of B", holder: holderB, begins: fillBegin, tokens: []uint8{1, 2}}
	secondFill = role{name: "second fill", holder: nobody, begins: fillBegin, tokens: []uint8{3}}
	trimmer    = role{name: "trimmer", holder: nobody, begins: removeUnlink}
	sweeper    = role{name: "sweeper", holder: nobody, begins: removeUnlink, sweeps: true}
	moverOfA   = role{name: "mover of A", holder: nobody, begins: movePick} // a trimmer, as A has a pin of the key
)

// variant describes a wrong protocol. The zero value is the protocol.
type variant struct {
	rereadsStale    bool // Get does not probe before it reads again
	readsOnce       bool // Get does not read again
	pinsLast        bool // Get pins after it has read again
	dropsPin        bool // Get drops its pin when it begins again
	probesStale     bool // Remove does not probe
	listsBefore     bool // Remove uses pins that it listed before it probed
	publishesAnew   bool // Fill creates the first name once more to publish
	keepsFirstName  bool // Remove does not unlink the first name
	sweepsRetired   bool // the sweeper removes retired contents
	notesFirst      bool // the note is made before the first name is unlinked
	restores        bool // the trimmer links a pinned retired record back
	forgetsStanding bool // the trimmer drops a retired name whose content stands again
	movesAtOnce     bool // the mover drops a pin without one of the current content
}

// model is the begin of a check.
type model struct {
	variant
	roles             []role
	faults, retirings uint8
}

func (m model) begin() world {
	w := world{faults: m.faults, retirings: m.retirings}
	for i, r := range m.roles {
		w.actors[i].next = r.begins
		if r.begins == fillBegin {
			w.actors[i].token = r.tokens[0]
		}
	}
	return w
}

// move is one step and the state after it.
type move struct {
	name string
	to   world
}

// moves lists all possible next moves.
func (m model) moves(w world) []move {
	var all []move
	for i, r := range m.roles {
		s := steps{model: m, role: r, i: i, before: w}
		s.list()
		all = append(all, s.all...)
	}
	return append(all, m.befalls(w)...)
}

// befalls lists the moves of no actor: a retiring, the end of a holder, the end of Settle, the
// arrival of a late link.
func (m model) befalls(w world) (all []move) {
	if w.record != 0 && w.retirings > 0 {
		to := w
		to.retired, to.record = to.retired|only(w.record), 0
		to.retirings--
		all = append(all, move{fmt.Sprintf("%d is retired", w.record), to})
	}
	for h := range modelHolders {
		if !w.over[h] && !m.isAtWork(w, h) {
			to := w
			to.over[h], to.pins[h], to.inUse[h] = true, 0, 0
			all = append(all, move{fmt.Sprintf("holder %c is over", 'A'+h), to})
		}
	}
	for t := uint8(1); t <= mostTokens; t++ {
		if w.seen.has(t) && !w.settled.has(t) && w.late != t {
			to := w
			to.settled |= only(t)
			all = append(all, move{fmt.Sprintf("Settle of %d is over", t), to})
		}
	}
	if w.late != 0 {
		to := w
		to.late = 0
		all = append(all, move{"the late link is lost", to})
		if w.record == 0 && (w.first.has(w.late) || w.retired.has(w.late)) {
			to.publish(w.late)
			all = append(all, move{fmt.Sprintf("the late link of %d is done", w.late), to})
		}
	}
	return all
}

// isAtWork reports whether a holder has an unfinished Get or fill.
func (m model) isAtWork(w world, h int) bool {
	for i, r := range m.roles {
		if r.holder == h && w.actors[i].next != ended {
			return true
		}
	}
	return false
}

func (w *world) publish(t uint8) {
	w.record = t
	w.known |= only(t)
}

func (w *world) pinned(t uint8) bool {
	return slices.ContainsFunc(w.pins[:], func(p tokens) bool { return p.has(t) })
}

// broken returns the promise that a state breaks, or "".
func (w *world) broken() string {
	for h, used := range w.inUse {
		if used&^w.content != 0 {
			return fmt.Sprintf("holder %c uses a content that is gone", 'A'+h)
		}
	}
	if w.record != 0 && !w.content.has(w.record) {
		return "the record names a content that is gone"
	}
	return ""
}

// check visits all states, the nearest first. It returns their number, or the broken promise and
// the moves to it.
func (m model) check() (states int, broken string, trace []string) {
	queue := []world{m.begin()}
	parents := []int32{0}
	known := map[world]struct{}{queue[0]: {}}
	for i := 0; i < len(queue); i++ {
		if broken := queue[i].broken(); broken != "" {
			return i, broken, m.trace(queue, parents, int32(i))
		}
		for _, next := range m.moves(queue[i]) {
			if _, there := known[next.to]; !there {
				known[next.to] = struct{}{}
				queue = append(queue, next.to)
				parents = append(parents, int32(i))
			}
		}
	}
	return len(queue), "", nil
}

// trace names the moves that lead to a state.
func (m model) trace(queue []world, parents []int32, at int32) (names []string) {
	for ; at != 0; at = parents[at] {
		moves := m.moves(queue[parents[at]])
		i := slices.IndexFunc(moves, func(next move) bool { return next.to == queue[at] })
		names = append(names, moves[i].name)
	}
	slices.Reverse(names)
	return names
}

// TestModelKeepsWhatIsInUse checks the protocol. With CLTEST_MODEL=1 in the environment it checks
// more actors and faults, in minutes and gigabytes.
func TestModelKeepsWhatIsInUse(t *testing.T) {
	t.Parallel()
	models := map[string]model{
		"two Gets of one holder":         {roles: []role{getOfA, getOfA, fillOfB, trimmer}, faults: 2, retirings: 2},
		"a sweep beside stopped fillers": {roles: []role{getOfA, fillOfB, secondFill, sweeper}, faults: 1, retirings: 1},
		"a pin that moves":               {roles: []role{getOfA, getOfA, fillOfB, moverOfA, trimmer}, faults: 1, retirings: 2},
		"a sweep beside a trim":          {roles: []role{getOfA, secondFill, trimmer, sweeper}, faults: 2, retirings: 2},
	}
	if os.Getenv("CLTEST_MODEL") != "" {
		models = map[string]model{
			"all, one fault":         {roles: []role{getOfA, getOfA, fillOfB, secondFill, trimmer, sweeper}, faults: 1, retirings: 1},
			"two fillers, trim":      {roles: []role{getOfA, getOfA, fillOfB, secondFill, trimmer}, faults: 2, retirings: 2},
			"two trims":              {roles: []role{getOfA, getOfA, fillOfB, trimmer, trimmer}, faults: 2, retirings: 2},
			"a pin that moves":       {roles: []role{getOfA, getOfA, fillOfB, moverOfA, trimmer}, faults: 2, retirings: 2},
			"filler, trim and sweep": {roles: []role{getOfA, getOfA, fillOfB, trimmer, sweeper}, faults: 2, retirings: 2},
		}
	}
	for name, m := range models {
		if testing.Short() {
			m.faults--
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, broken, trace := m.check()
			if broken != "" {
				t.Fatalf("%s:\n\t%s", broken, strings.Join(trace, "\n\t"))
			}
			t.Logf("%d states", states)
		})
	}
}

// TestModelCatchesWrongProtocols: the check can fail.
func TestModelCatchesWrongProtocols(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]struct {
		variant
		roles []role // nil: as of the first model
	}{
		"Get reads again without a probe":                 {variant: variant{rereadsStale: true}},
		"Get reads once":                                  {variant: variant{readsOnce: true}},
		"Get pins last":                                   {variant: variant{pinsLast: true}},
		"Get drops its pin":                               {variant: variant{dropsPin: true}},
		"Remove does not probe":                           {variant: variant{probesStale: true}, roles: []role{getOfA, secondFill, trimmer, sweeper}},
		"Remove does not list the pins again":             {variant: variant{listsBefore: true}},
		"Remove keeps the first name":                     {variant: variant{keepsFirstName: true}},
		"Remove drops a retired name of what stands":      {variant: variant{forgetsStanding: true}, roles: []role{secondFill, trimmer, sweeper}},
		"the sweep takes what is retired":                 {variant: variant{sweepsRetired: true}, roles: []role{getOfA, secondFill, trimmer, sweeper}},
		"Settle begins before the first name is unlinked": {variant: variant{notesFirst: true}, roles: []role{getOfA, secondFill, trimmer}},
		"Fill publishes by creating its record anew":      {variant: variant{publishesAnew: true}, roles: []role{getOfA, secondFill, sweeper}},
		"a pin is dropped before another is made":         {variant: variant{movesAtOnce: true}, roles: []role{getOfA, secondFill, moverOfA, trimmer}},
		"the trimmer restores":                            {variant: variant{restores: true}, roles: []role{getOfA, secondFill, trimmer, trimmer}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := model{variant: wrong.variant, roles: wrong.roles, faults: 2, retirings: 2}
			if m.roles == nil {
				m.roles = []role{getOfA, getOfA, fillOfB, trimmer}
			}
			states, broken, trace := m.check()
			if broken == "" {
				t.Fatalf("it passes, in %d states", states)
			}
			t.Logf("%s:\n\t%s", broken, strings.Join(trace, "\n\t"))
		})
	}
}
