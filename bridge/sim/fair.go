package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// crowd is how many people share how much.
type crowd struct {
	site *slurmtest.Site
	// bundles are made within a time beside those of every seed. Of so many bundles one takes long.
	bundles int
	within  time.Duration
	long    uint64
	owners  uint64
	// flying is half of the most jobs of a queue, where it has a bound.
	flying int
	pace   bridge.Pace
	atOnce func(plan.Kind) int
	// requests is how many requests to Slurm in a minute are too many.
	requests int
}

// newCrowd is the seed's crowd. In a few seeds bundles wait for one another: there are a few more than
// in the others, and much less of what they share.
func (w *world) newCrowd(large bool) crowd {
	switch {
	case large:
		return crowd{site: largeSite, bundles: 2000, within: 5 * time.Minute, long: 20, owners: 5, flying: 100, requests: 300}
	case w.dice.below(ofQueues, 24) > 0:
		return crowd{site: slurmSite, owners: 2, flying: 2, requests: 60}
	}
	return crowd{
		site: slurmSite, bundles: 5, within: 30 * time.Second, long: 3, owners: 2, flying: 2, requests: 60,
		pace:   bridge.Pace{PerSecond: 1. / 15, Burst: 1 + int(w.dice.below(ofQueues, 2))}, //nolint:gosec // below 2
		atOnce: func(k plan.Kind) int { return min(bridge.AtOnce(k), 3) },
	}
}

// seat is an effect's place, or its wait for one.
type seat struct {
	life    *life
	kind    plan.Kind
	bundle  string
	wants   wants
	asked   time.Duration
	leave   func()
	granted bool           // it has its place
	ended   bool           // it has given it back
	passed  map[string]int // how often others got a place meanwhile, by owner
}

// queue notes that an effect asks for a place.
func (l *life) queue(e plan.Effect) *seat {
	s := &seat{life: l, kind: e.Kind, bundle: e.Row.Bundle, wants: l.w.wantsOf(e.Row), asked: l.w.now, passed: map[string]int{}}
	l.seats = append(l.seats, s)
	return s
}

// competes reports whether two effects want the same places.
func (s *seat) competes(other *seat) bool {
	return s.kind == other.kind && (s.kind != plan.Collect || s.wants.long == other.wants.long)
}

// held is how many places each owner has of those that an effect wants.
func (s *seat) held() map[string]int {
	held := map[string]int{}
	for _, other := range s.life.seats {
		if other.granted && !other.ended && other.competes(s) {
			held[other.wants.owner]++
		}
	}
	return held
}

// grant notes that the effect has its place, and checks that no other owner was passed over: while an
// owner waits, each other one who has as many places or more gets one more at most.
func (s *seat) grant() {
	w, held, owner := s.life.w, s.held(), s.wants.owner
	s.granted = true
	waits := map[string]*seat{} // the first of each owner
	for _, other := range s.life.seats {
		if !other.granted && other.competes(s) && waits[other.wants.owner] == nil && other.wants.owner != owner {
			waits[other.wants.owner] = other
		}
	}
	for _, other := range waits {
		if held[other.wants.owner] > held[owner] {
			continue
		}
		if other.passed[owner]++; other.passed[owner] > 1 {
			w.violate(Starved, "%s of %s waits, and owner %s got another place", other.kind, other.bundle, owner)
		}
	}
	const lasts = 20 * time.Second
	if bound := time.Duration(len(w.server.bundles)) * lasts; s.kind == plan.Collect && !s.wants.long && w.now-s.asked > bound {
		w.violate(Starved, "the small results of %s waited %s", s.bundle, w.now-s.asked)
	}
}

// checkLeftOut checks that no other owner has all places.
func (s *seat) checkLeftOut() {
	held := s.held()
	for owner, n := range held {
		if !s.granted && len(held) == 1 && n > 1 && owner != s.wants.owner {
			s.life.w.violate(Starved, "%s of %s waits, and owner %s has all %d places", s.kind, s.bundle, owner, n)
		}
	}
}

// end gives the place back.
func (s *seat) end() {
	s.ended = true
	s.leave()
	s.life.seats = slices.DeleteFunc(s.life.seats, func(other *seat) bool { return other == s })
}

// lane is the bundles of an owner in a queue.
type lane struct{ queue, owner string }

// turns are the submissions of an owner since a lane last had its turn, and the other lanes of that owner
// that could have had them.
type turns struct {
	n     int
	lanes map[string]bool // by queue
}

// checkTurns checks that a save of rows that go to Slurm leaves nobody out: until a lane has its turn,
// each other lane of an owner that could go has one at most. An owner's own bundles of a higher
// priority may go first.
func (w *world) checkTurns(l *life, before []*plan.Row, saved []plan.Row) {
	var going []plan.Row
	for i, r := range saved {
		if before[i] != nil && r.Phase == plan.Submitting && r.Generation != before[i].Generation {
			going = append(going, r)
		}
	}
	if len(going) == 0 {
		return
	}
	slices.SortFunc(going, func(a, b plan.Row) int { return cmp.Compare(a.Generation, b.Generation) })
	now := maps.Clone(w.ledger.rows) // as they are once this is saved
	for i := range saved {
		now[saved[i].Bundle] = &saved[i]
	}
	for i, r := range going {
		waiting, probing := w.waitingLanes(l, now, going[i:])
		w.checkTurn(r, waiting, probing)
	}
}

// waitingLanes returns the lanes that could go before these rows went, and the highest priority in each.
// It also returns the other lanes that may have a turn: those that wait in queues that are held up, and those
// in which many rows are tried again.
func (w *world) waitingLanes(l *life, rows map[string]*plan.Row, going []plan.Row) (waiting map[lane]int64, probing []lane) {
	flying := map[string]int{}
	waiting = map[lane]int64{}
	retrying := map[lane]int{} // rows that Slurm has refused for now
	for _, r := range rows {
		goes := slices.ContainsFunc(going, func(other plan.Row) bool { return other.Bundle == r.Bundle })
		if r.InFlight() && !goes {
			flying[r.Queue]++
		}
		if (r.Phase == plan.Staging || r.Phase == plan.Submitting) && r.Staged != nil && r.FailedTries > 0 {
			retrying[lane{r.Queue, r.Run.OwnerID}]++
		}
		if !goes && !r.WaitsForRoom(l.clock()) {
			continue
		}
		at, of := lane{r.Queue, r.Run.OwnerID}, w.wants[r.Run.Command].priority
		if best, ok := waiting[at]; !ok || of > best {
			waiting[at] = of
		}
	}
	held := l.bridge.Heartbeat().Held
	const manyRetrying = 8 // so many hold up the others of their lane
	maps.DeleteFunc(waiting, func(at lane, _ int64) bool {
		most := w.policy.Queues[at.queue].MaxInFlight
		if most > 0 && flying[at.queue] >= most {
			return true
		}
		heldUp := held[at.queue] != "" || retrying[at] >= manyRetrying
		if heldUp {
			probing = append(probing, at)
		}
		return heldUp
	})
	return waiting, probing
}

// checkTurn checks one submission. In the turn of a lane that is held up, another bundle of its owner may go.
func (w *world) checkTurn(gone plan.Row, waiting map[lane]int64, probing []lane) {
	mine, priority := lane{gone.Queue, gone.Run.OwnerID}, w.wants[gone.Run.Command].priority
	for at, best := range waiting {
		if at == mine {
			continue
		}
		if at.owner == mine.owner && priority > best {
			delete(w.passed, at)
			continue
		}
		if w.passed[at] == nil {
			w.passed[at] = map[string]*turns{}
		}
		t := w.passed[at][mine.owner]
		if t == nil {
			t = &turns{lanes: map[string]bool{}}
			w.passed[at][mine.owner] = t
		}
		t.n++
		t.lanes[mine.queue] = true
		for _, other := range slices.AppendSeq(slices.Clone(probing), maps.Keys(waiting)) {
			if other.owner == mine.owner && other != at {
				t.lanes[other.queue] = true
			}
		}
		if t.n > len(t.lanes) {
			w.violate(Starved, "%s goes to queue %s as number %d of owner %s, while queue %s has a bundle of owner %s that could go",
				gone.Bundle, gone.Queue, t.n, mine.owner, at.queue, at.owner)
		}
	}
	delete(w.passed, mine)
}
