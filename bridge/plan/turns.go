package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Lane is the bundles of one owner in one queue. Lanes take turns: each submission is one lane's turn, and
// the next turn belongs to the lane that has waited longest since its last one. So no queue and no owner
// blocks another (I11), whatever the number of their bundles and their priorities.
//
// In a lane's turn the owner's waiting bundle of the highest request_priority is submitted, from any
// queue that may submit. If several have that priority, the lane's own go first, the oldest of them first. So a
// priority orders an owner's own bundles, and gives no advantage over other owners.
type Lane struct{ Queue, Owner string }

// Turns maps each lane to the generation of the submission in its last turn.
type Turns map[Lane]int64

// Lane returns the row's lane.
func (r *Row) Lane() Lane { return Lane{r.Queue, r.Run.OwnerID} }

// Waiting has the rows that may be submitted now.
type Waiting struct {
	// Rows wait to be submitted (WaitsToSubmit).
	Rows []*Row
	// MaySubmit bounds the rows of each queue that are submitted, Budget the submissions of all queues.
	MaySubmit map[string]int
	Budget    int
	// Rooms bounds them by Slurm's limits on the number of jobs; nil for no such bound.
	Rooms *Rooms
}

// Together returns the number of the queue's rows that one submission can have; 0 if each goes alone.
func (q Queue) Together() int64 {
	if most := max(q.ArrayTasks, q.PackRuns); most > 1 {
		return int64(most)
	}
	return 0
}

// MaySubmit returns the number of rows of the queue that may be submitted now. inFlight is the number of its
// rows in Slurm, budget the number of submissions that the request rate allows.
func (q Queue) MaySubmit(inFlight, budget int) int {
	budget *= max(q.ArrayTasks, q.PackRuns, 1)
	if q.MaxInFlight > 0 {
		budget = min(budget, q.MaxInFlight-inFlight)
	}
	return max(budget, 0)
}

// Batch chooses the rows that are submitted now, in their order, and begins the next attempt of each. Rows that share a
// submission have one name and follow each other. generation is the last number that was given. Batch also returns the new turns;
// it does not change turns.
func (p Policy) Batch(now time.Time, w Waiting, turns Turns, generation int64) ([]Row, Turns) {
	if len(w.Rows) == 0 || w.Budget <= 0 {
		return nil, turns
	}
	lanes, left, after := inLanes(w.Rows), maps.Clone(w.MaySubmit), Turns{}
	maps.Copy(after, turns)
	shares := w.sharesOf(lanes)
	var chosen []Row
	for range w.Budget {
		heads := map[Lane]candidate{}
		for at, rows := range lanes {
			if left[at.Queue] > 0 && len(rows) > 0 && w.Rooms.Has(rows[0].Row) {
				heads[at] = rows[0]
			}
		}
		turn, ok := after.nextLane(heads)
		if !ok {
			break
		}
		from := after.chooseLane(heads, turn)
		generation++
		after[turn] = generation
		rooms := w.Rooms
		if p.Packs(heads[from].Row) { // one job has one place
			rooms = nil
		}
		together := p.together(lanes[from], min(left[from.Queue], shares.of(from, heads[from].Row, rooms)), w.Rooms)
		lanes[from] = without(lanes[from], together)
		left[from.Queue] -= len(together)
		chosen = append(chosen, p.NewAttempts(now, together, generation)...)
	}
	return chosen, after
}

// shares are what a lane may take in one turn: the lanes that wait share the places of their queue, and the rooms below
// Slurm's limits.
type shares struct {
	queues map[string]int
	rooms  map[*room]int
}

func (w *Waiting) sharesOf(lanes map[Lane][]candidate) shares {
	ofQueue, ofRoom := map[string]int{}, map[*room]int{}
	for at, rows := range lanes {
		if head := rows[0].Row; w.MaySubmit[at.Queue] > 0 && w.Rooms.Has(head) {
			ofQueue[at.Queue]++
			for _, room := range w.Rooms.below(head) {
				ofRoom[room]++
			}
		}
	}
	s := shares{map[string]int{}, map[*room]int{}}
	for queue, n := range ofQueue {
		s.queues[queue] = (w.MaySubmit[queue] + n - 1) / n
	}
	for room, n := range ofRoom {
		s.rooms[room] = int((room.left + int64(n) - 1) / int64(n))
	}
	return s
}

// of returns the share of a lane whose first row is this one.
func (s shares) of(at Lane, head *Row, rooms *Rooms) int {
	share := s.queues[at.Queue]
	for _, room := range rooms.below(head) {
		if most, ok := s.rooms[room]; ok {
			share = min(share, most)
		}
	}
	return share
}

// together returns the first of the rows and those that share its submission, at most so many in all. It takes their rooms.
func (p Policy) together(lane []candidate, most int, rooms *Rooms) []*Row {
	head := lane[0].Row
	rooms.take(head)
	chosen := []*Row{head}
	if !p.MayShare(head) {
		return chosen
	}
	most = min(most, p.MostTogether(head))
	if p.Packs(head) { // a pack is one job, which has its rooms
		rooms = nil
	}
	for _, c := range lane[1:] {
		if len(chosen) >= most {
			break
		}
		if p.MayShare(c.Row) && len(chosen) < p.MostTogether(c.Row) && p.sharedWith(head, c.Row) && rooms.Has(c.Row) {
			most = min(most, p.MostTogether(c.Row))
			rooms.take(c.Row)
			chosen = append(chosen, c.Row)
		}
	}
	return chosen
}

// MostTogether bounds the members of a row's next submission.
func (p Policy) MostTogether(r *Row) int {
	most := min(p.Queues[r.Queue].ArrayTasks, p.MaxArraySize)
	if p.Packs(r) {
		most = p.Queues[r.Queue].PackRuns
	}
	if r.MostTogether > 0 {
		most = min(most, r.MostTogether)
	}
	return most
}

// without returns a lane without the chosen rows, which are in the same order.
func without(lane []candidate, chosen []*Row) []candidate {
	left := lane[:0:0]
	if len(chosen) == 1 {
		return lane[1:]
	}
	for _, c := range lane {
		if len(chosen) > 0 && c.Row == chosen[0] {
			chosen = chosen[1:]
			continue
		}
		left = append(left, c)
	}
	return left
}

// candidate is a row with its request_priority.
type candidate struct {
	*Row

	priority int64
}

// claimedBefore orders rows by their claim.
func (c candidate) claimedBefore(other candidate) bool { return c.compareClaims(other) < 0 }

func (c candidate) compareClaims(other candidate) int {
	return cmp.Or(c.OfferedAt.Compare(other.OfferedAt), cmp.Compare(c.Bundle, other.Bundle))
}

// inLanes sorts the rows into lanes, each lane in the order of submission.
func inLanes(rows []*Row) map[Lane][]candidate {
	lanes := map[Lane][]candidate{}
	for _, r := range rows {
		at := r.Lane()
		lanes[at] = append(lanes[at], candidate{r, r.Run.Metadata.Int("request_priority")})
	}
	for _, lane := range lanes {
		slices.SortFunc(lane, func(a, b candidate) int { return cmp.Or(-cmp.Compare(a.priority, b.priority), a.compareClaims(b)) })
	}
	return lanes
}

// nextLane returns the lane that has the next turn; ok is false if none waits. heads has the first row of each
// lane that may submit.
func (t Turns) nextLane(heads map[Lane]candidate) (turn Lane, ok bool) {
	for at, r := range heads {
		if !ok || t[at] < t[turn] || t[at] == t[turn] && r.claimedBefore(heads[turn]) {
			turn, ok = at, true
		}
	}
	return turn, ok
}

// chooseLane returns the lane from which a row is submitted in a lane's turn: any lane of the same owner.
func (t Turns) chooseLane(heads map[Lane]candidate, turn Lane) Lane {
	pick := turn
	for at, r := range heads {
		if at.Owner != turn.Owner {
			continue
		}
		higher := cmp.Compare(r.priority, heads[pick].priority)
		if higher > 0 || higher == 0 && pick != turn && (t[at] < t[pick] || t[at] == t[pick] && r.claimedBefore(heads[pick])) {
			pick = at
		}
	}
	return pick
}
