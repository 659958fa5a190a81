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

// crowd is the number of bundles and owners, and the amounts that they share.
type crowd struct {
	site *slurmtest.Site
	// bundles is the number of bundles within the first time, in addition to those of every seed. One in
	// long of them takes long.
	bundles int
	within  time.Duration
	long    uint64
	owners  uint64
	// flying is half of the largest MaxInFlight of a queue.
	flying int
	pace   bridge.Pace
	atOnce func(plan.Kind) int
	// requests is the number of requests to Slurm in a minute that is too many.
	requests int
}

// newCrowd returns the seed's crowd. In a few seeds bundles wait for places: these have a few bundles more
// than the others, and much smaller amounts to share.
func (w *world) newCrowd(large bool) crowd {
	requests := 60
	if w.dice.packs() {
		requests = 90 // more bundles, which go alone after a refusal
	}
	switch {
	case large:
		return crowd{site: largeSite, bundles: 2000, within: 5 * time.Minute, long: 20, owners: 5, flying: 100, requests: 300}
	case w.dice.below(ofQueues, 24) > 0:
		return crowd{site: w.dice.smallSite(), owners: 2, flying: 2, requests: requests}
	}
	return crowd{
		site: w.dice.smallSite(), bundles: 5, within: 30 * time.Second, long: 3, owners: 2, flying: 2, requests: requests,
		pace:   bridge.Pace{PerSecond: 1. / 15, Burst: 1 + int(w.dice.below(ofQueues, 2))},
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
	passed  map[string]int // the number of places that others got during its wait, by owner
}

// queue notes that an effect waits for a place.
func (l *life) queue(e plan.Effect) *seat {
	s := &seat{life: l, kind: e.Kind, bundle: e.Row.Bundle, wants: l.w.wantsOf(e.Row), asked: l.w.now, passed: map[string]int{}}
	s.wants.long = s.wants.long && !e.Row.GivesUp // only the end of the output is sent then
	l.seats = append(l.seats, s)
	return s
}

// competes reports whether two effects need the same places.
func (s *seat) competes(other *seat) bool {
	return s.kind == other.kind && (s.kind != plan.Collect || s.wants.long == other.wants.long)
}

// held returns the number of places that each owner has, of those that the effect needs.
func (s *seat) held() map[string]int {
	held := map[string]int{}
	for _, other := range s.life.seats {
		if other.granted && !other.ended && other.competes(s) {
			held[other.wants.owner]++
		}
	}
	return held
}

// grant notes that the effect has its place, and checks that the bridge passed over no other owner: while
// an owner waits, every other owner with as many places or more gets at most one more.
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
	if bound := time.Duration(w.server.made) * lasts; s.kind == plan.Collect && !s.wants.long && w.now-s.asked > bound {
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

// turns counts the submissions of an owner since another lane's last turn, and has the owner's lanes that
// could have had them.
type turns struct {
	n     int
	lanes map[string]bool // by queue
}

// checkTurns checks that a save that submits rows passes over no lane: until a lane has its turn, every
// other lane with rows to submit has at most one. An owner's own bundles of a higher priority may go
// first.
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
	slices.SortFunc(going, func(a, b plan.Row) int { // the first row of an array has the turn
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), -cmp.Compare(w.wants[a.Run.Command].priority, w.wants[b.Run.Command].priority))
	})
	now := maps.Clone(w.ledger.rows) // the rows after this save
	for i := range saved {
		now[saved[i].Bundle] = &saved[i]
	}
	for i, r := range going {
		if i > 0 && going[i-1].Generation == r.Generation {
			continue // an array or a pack is one turn
		}
		waiting, probing := w.waitingLanes(l, now, going[i:])
		if r.Slot > 0 { // it needs nothing of Slurm
			w.checkJoiner(r, waiting)
			continue
		}
		w.checkTurn(r, waiting, probing)
	}
}

// checkJoiner checks that a row that joins a pack takes no place in flight for which another lane waits.
func (w *world) checkJoiner(gone plan.Row, waiting map[lane]int64) {
	for at := range waiting {
		if at.queue == gone.Queue && at.owner != gone.Run.OwnerID && w.policy.Queues[at.queue].MaxInFlight > 0 {
			w.violate(Starved, "%s joins a pack of queue %s, while a bundle of owner %s waits for a place in it", gone.Bundle, gone.Queue, at.owner)
		}
	}
}

// waitingLanes returns the lanes that could submit before the rows of going did, with the highest priority
// in each. It also returns the other lanes that may have a turn: those in queues that are held up, those with many rows to retry, and those
// whose rows may wait for others.
func (w *world) waitingLanes(l *life, rows map[string]*plan.Row, going []plan.Row) (waiting, probing map[lane]int64) {
	flying := map[string]int{}
	waiting, probing = map[lane]int64{}, map[lane]int64{}
	retrying := map[lane]int{} // rows that Slurm has refused temporarily
	gathering, joining := w.gatheringLanes(l, rows), w.joiningLanes(rows)
	for _, r := range rows {
		goes := slices.ContainsFunc(going, func(other plan.Row) bool { return other.Bundle == r.Bundle })
		if r.InFlight() && !goes {
			flying[r.Queue]++
		}
		if (r.Phase == plan.Staging || r.Phase == plan.Submitting) && r.Staged != nil && !r.NeedsDisk() && r.FailedTries > 0 {
			retrying[lane{r.Queue, r.Run.OwnerID}]++
		}
		if !goes && !r.WaitsToSubmit(l.clock()) {
			continue
		}
		at, of := lane{r.Queue, r.Run.OwnerID}, w.wants[r.Run.Command].priority
		if best, ok := waiting[at]; !ok || of > best {
			waiting[at] = of
		}
	}
	held := l.bridge.Condition().Held
	const manyRetrying = 8 // so many keep the other rows of their lane waiting
	maps.DeleteFunc(waiting, func(at lane, best int64) bool {
		most := w.policy.Queues[at.queue].MaxInFlight
		if most > 0 && flying[at.queue] >= most {
			return true
		}
		heldUp := held[at.queue] != "" || retrying[at] >= manyRetrying || gathering[at] || joining[at]
		if heldUp {
			probing[at] = best
		}
		return heldUp
	})
	return waiting, probing
}

// gatheringLanes returns the lanes whose rows may wait for others that are coming, to share a submission with them.
func (w *world) gatheringLanes(l *life, rows map[string]*plan.Row) map[lane]bool {
	const longest = 2 * time.Second
	coming, gathering := map[lane]bool{}, map[lane]bool{}
	for _, r := range rows {
		if r.Phase == plan.Claiming || r.Phase == plan.Staging && r.Staged == nil {
			coming[lane{r.Queue, r.Run.OwnerID}] = true
		}
	}
	for _, r := range rows {
		at := lane{r.Queue, r.Run.OwnerID}
		if coming[at] && r.Phase == plan.Staging && w.policy.MayShare(r) && l.clock().Sub(r.Spent.StagedAt) < longest {
			gathering[at] = true
		}
	}
	return gathering
}

// joiningLanes returns the lanes whose rows may wait for the outcome of a slot, to join the same pack after that. They do not wait for a slot
// that could not be written.
func (w *world) joiningLanes(rows map[string]*plan.Row) map[lane]bool {
	joining := map[lane]bool{}
	for _, r := range rows {
		if r.Slot > 0 && r.Phase == plan.Submitting && w.ledger.shared[r.SharedName()].FailedTries == 0 {
			joining[lane{r.Queue, r.Run.OwnerID}] = true
		}
	}
	return joining
}

// checkTurn checks one submission. In the turn of a lane that is held up, its owner may submit another bundle.
func (w *world) checkTurn(gone plan.Row, waiting, probing map[lane]int64) {
	mine, priority := lane{gone.Queue, gone.Run.OwnerID}, w.wants[gone.Run.Command].priority
	for at, best := range probing {
		if at.owner == mine.owner && priority > best {
			delete(w.passed, at)
		}
	}
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
		for _, other := range slices.AppendSeq(slices.Collect(maps.Keys(probing)), maps.Keys(waiting)) {
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
