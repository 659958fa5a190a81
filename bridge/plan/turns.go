package plan

import (
	"cmp"
	"maps"
	"time"
)

// Lane is the bundles of one owner in one queue. Lanes take turns: each submission is one lane's turn,
// and the next turn is that of the lane whose last one was longest ago. So no queue and no owner keeps
// another waiting (I11), whatever the number of their bundles and their priorities.
//
// An owner's turn goes to that owner's waiting bundle of the highest request_priority, in whichever queue
// has room. Of equal ones it goes to the lane whose turn it is, and in a lane to the oldest. So a priority
// orders an owner's own bundles, and counts nothing against those of others.
type Lane struct{ Queue, Owner string }

// Turns has the generation of the submission that was each lane's last turn.
type Turns map[Lane]int64

// Waiting are the rows that may be submitted now.
type Waiting struct {
	// Rows wait for room (WaitsForRoom).
	Rows []*Row
	// Room is how many of each queue may be submitted, Budget how many in all.
	Room   map[string]int
	Budget int
}

// Batch chooses the rows that are submitted now, in their order, and begins the next attempt of
// each. generation is the last number that was given. It also returns the turns after that.
func (p Policy) Batch(now time.Time, w Waiting, turns Turns, generation int64) ([]Row, Turns) {
	if len(w.Rows) == 0 {
		return nil, turns
	}
	room, after, taken := maps.Clone(w.Room), Turns{}, map[*Row]bool{}
	maps.Copy(after, turns)
	var chosen []Row
	for len(chosen) < w.Budget {
		best := map[Lane]*Row{}
		for _, r := range w.Rows {
			if at := r.lane(); room[r.Queue] > 0 && !taken[r] && (best[at] == nil || r.goesBefore(best[at])) {
				best[at] = r
			}
		}
		turn, ok := after.next(best)
		if !ok {
			break
		}
		r := best[after.pick(best, turn)]
		generation++
		taken[r], after[turn] = true, generation
		room[r.Queue]--
		chosen = append(chosen, p.NewAttempt(now, *r, generation))
	}
	return chosen, after
}

// next is the lane whose turn it is; ok is false if none waits. best has the first row of each.
func (t Turns) next(best map[Lane]*Row) (turn Lane, ok bool) {
	for at, r := range best {
		if !ok || t[at] < t[turn] || t[at] == t[turn] && r.claimedBefore(best[turn]) {
			turn, ok = at, true
		}
	}
	return turn, ok
}

// pick is the lane of the row that goes in a lane's turn: the owner's first, in any queue.
func (t Turns) pick(best map[Lane]*Row, turn Lane) Lane {
	pick := turn
	for at, r := range best {
		if at.Owner != turn.Owner {
			continue
		}
		higher := cmp.Compare(r.priority(), best[pick].priority())
		if higher > 0 || higher == 0 && pick != turn && (t[at] < t[pick] || t[at] == t[pick] && r.claimedBefore(best[pick])) {
			pick = at
		}
	}
	return pick
}

func (r *Row) lane() Lane { return Lane{r.Queue, r.Run.OwnerID} }

func (r *Row) priority() int64 { return r.Run.Metadata.Int("request_priority") }

// goesBefore reports whether a row of a lane is submitted before another.
func (r *Row) goesBefore(other *Row) bool {
	higher := cmp.Compare(r.priority(), other.priority())
	return higher > 0 || higher == 0 && r.claimedBefore(other)
}

// claimedBefore orders rows by their claim.
func (r *Row) claimedBefore(other *Row) bool {
	return cmp.Or(r.OfferedAt.Compare(other.OfferedAt), cmp.Compare(r.Bundle, other.Bundle)) < 0
}
