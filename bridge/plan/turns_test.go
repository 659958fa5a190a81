package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// waiting has staged rows of owners in queues, and room for any number of them.
type waiting struct {
	plan.Waiting

	policy plan.Policy
	turns  plan.Turns
	number int64
}

func newWaiting(queues ...string) *waiting {
	w := &waiting{policy: policy(), turns: plan.Turns{}}
	w.MaySubmit = map[string]int{}
	for _, q := range queues {
		w.MaySubmit[q] = 1_000_000
	}
	return w
}

// add adds n rows; a later one was claimed later.
func (w *waiting) add(queue, owner string, priority int64, n int) {
	for range n {
		r := rowIn(plan.Staging)
		r.Bundle, r.Queue = fmt.Sprintf("0x%06d", len(w.Rows)), queue
		r.OfferedAt = epoch.Add(time.Duration(len(w.Rows)) * time.Second)
		r.Run = &codalab.RunBundle{UUID: r.Bundle, OwnerID: owner, Metadata: codalab.Metadata{"request_priority": priority}}
		w.Rows = append(w.Rows, &r)
	}
}

// submit submits n rows, and returns the queue, owner and priority of each.
func (w *waiting) submit(n int) string {
	w.Budget = n
	var rows []plan.Row
	rows, w.turns = w.policy.Batch(epoch, w.Waiting, w.turns, w.number)
	w.number += int64(len(rows))
	var said []string
	for _, r := range rows {
		said = append(said, fmt.Sprint(r.Queue, " ", r.Run.OwnerID, r.Run.Metadata.Int("request_priority")))
		w.MaySubmit[r.Queue]--
		w.Rows = slices.DeleteFunc(w.Rows, func(other *plan.Row) bool { return other.Bundle == r.Bundle })
	}
	return strings.Join(said, ", ")
}

func TestI11SubmissionsTakeTurnsByQueueAndOwner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		add  func(w *waiting)
		want string
	}{
		"one of another queue behind a thousand": {
			func(w *waiting) { w.add("cpu", "ann", 0, 1000); w.add("gpu", "ann", 0, 1) },
			"cpu ann0, gpu ann0, cpu ann0",
		},
		"one of priority 100 in another queue behind a thousand": {
			func(w *waiting) { w.add("cpu", "ann", 0, 1000); w.add("gpu", "ann", 100, 1) },
			"gpu ann100, cpu ann0, cpu ann0",
		},
		"one of another owner behind a thousand": {
			func(w *waiting) { w.add("cpu", "ann", 0, 1000); w.add("cpu", "ben", 0, 1) },
			"cpu ann0, cpu ben0, cpu ann0",
		},
		"priorities count among an owner's own bundles alone": {
			func(w *waiting) {
				w.add("cpu", "ann", 1_000_000, 1000)
				w.add("cpu", "ben", -5, 2)
				w.add("gpu", "ben", 1, 1)
			},
			"cpu ann1000000, gpu ben1, cpu ann1000000, cpu ben-5, cpu ann1000000",
		},
		"priorities count across an owner's queues, and use up no more turns": {
			func(w *waiting) { w.add("cpu", "ann", 0, 3); w.add("gpu", "ann", 7, 3); w.add("cpu", "ben", 0, 3) },
			"gpu ann7, gpu ann7, cpu ben0, gpu ann7, cpu ben0, cpu ann0, cpu ben0, cpu ann0, cpu ann0",
		},
		"a full queue holds no other up": {
			func(w *waiting) { w.add("cpu", "ann", 9, 5); w.add("gpu", "ann", 0, 2); w.MaySubmit["cpu"] = 1 },
			"cpu ann9, gpu ann0, gpu ann0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, each := newWaiting("cpu", "gpu"), newWaiting("cpu", "gpu")
			c.add(at)
			c.add(each)
			n := strings.Count(c.want, ",") + 1
			if got := at.submit(n); got != c.want {
				t.Errorf("submitted %s\nwant      %s", got, c.want)
			}
			var said []string
			for range n {
				said = append(said, each.submit(1))
			}
			if got := strings.Join(said, ", "); got != c.want {
				t.Errorf("one at a time: %s\nwant           %s", got, c.want)
			}
		})
	}
}
