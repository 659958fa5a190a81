package bridge

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// naive answers what rows answers, by looking at every row.
type naive map[string]plan.Row

func (n naive) dueBy(now time.Time) []string {
	var due []string
	for bundle, r := range n {
		if !r.DueAt.IsZero() && !r.DueAt.After(now) {
			due = append(due, bundle)
		}
	}
	slices.Sort(due)
	return due
}

func (n naive) nextDue() (next time.Time, ok bool) {
	for _, r := range n {
		if !r.DueAt.IsZero() && (!ok || r.DueAt.Before(next)) {
			next, ok = r.DueAt, true
		}
	}
	return next, ok
}

func (n naive) waiting(queue string, now time.Time) []string {
	var found []string
	inLane := map[plan.Lane]int{}
	for _, r := range n {
		if retrying(&r) {
			inLane[r.Lane()]++
		}
	}
	for bundle, r := range n {
		if r.Queue == queue && r.WaitsToSubmit(now) && (retrying(&r) || inLane[r.Lane()] < mostRetrying) {
			found = append(found, bundle)
		}
	}
	slices.Sort(found)
	return found
}

func (n naive) inFlight(queue string) (count int) {
	for _, r := range n {
		if r.Queue == queue && r.InFlight() {
			count++
		}
	}
	return count
}

// randomQueues are those of randomRow.
var randomQueues = []string{"cpu", "gpu"}

// owners are those of randomRow.
var owners = []*codalab.RunBundle{{OwnerID: "1"}, {OwnerID: "2"}}

// randomRow is a row as it may come, in a few bundles and a few seconds.
func randomRow(random *rand.Rand, start time.Time) plan.Row {
	r := plan.Row{
		Bundle: fmt.Sprintf("0x%d", random.IntN(40)), Queue: randomQueues[random.IntN(len(randomQueues))],
		Run: owners[random.IntN(len(owners))], Phase: plan.Phases()[random.IntN(len(plan.Phases()))], Attempt: plan.Attempt{Number: random.IntN(3)},
	}
	r.SubmissionName = plan.SubmissionName(fmt.Sprintf("%s.%d", r.Bundle, r.Attempt.Number))
	if random.IntN(2) == 0 {
		r.DueAt = start.Add(time.Duration(random.IntN(30)) * time.Second)
	}
	if random.IntN(2) == 0 {
		r.Staged = &spool.Inputs{}
	}
	r.FailedTries = random.IntN(2)
	if random.IntN(5) == 0 {
		r.StopVerdict = &plan.Verdict{}
	}
	return r
}

func TestRowsAreFoundAsIfEachWasLookedAt(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		table, model := newRows(), naive{}
		for step := range 500 {
			if r := randomRow(random, start); random.IntN(4) == 0 {
				table.remove(r.Bundle)
				delete(model, r.Bundle)
			} else {
				table.put(&r)
				model[r.Bundle] = r
			}
			now := start.Add(time.Duration(random.IntN(35)-2) * time.Second)
			if diff := differ(table, model, now); diff != "" {
				t.Fatalf("seed %d, step %d (-want +got):\n%s", seed, step, diff)
			}
		}
	}
}

// differ says in what a table answers otherwise than its model.
func differ(table *rows, model naive, now time.Time) string {
	due := slices.Sorted(slices.Values(table.dueBy(now)))
	next, ok := table.nextDue()
	wantNext, wantOK := model.nextDue()
	diff := cmp.Diff(model.dueBy(now), due) + cmp.Diff(wantNext, next) + cmp.Diff(wantOK, ok) +
		cmp.Diff(len(model), len(table.byBundle))
	for _, queue := range randomQueues {
		var waiting []string
		for _, r := range table.waiting(queue, now) {
			waiting = append(waiting, r.Bundle)
		}
		slices.Sort(waiting)
		diff += cmp.Diff(model.waiting(queue, now), waiting) + cmp.Diff(model.inFlight(queue), table.inFlight[queue])
	}
	for bundle := range maps.Keys(model) {
		if got := table.get(bundle); got == nil || *got != model[bundle] {
			diff += cmp.Diff(model[bundle], got)
		}
	}
	return diff
}
