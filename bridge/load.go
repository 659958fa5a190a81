package bridge

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// load counts the runs of each queue, and remembers how long the last ones waited in Slurm. The server shows both to the
// users of the queue. It is safe for concurrent use.
type load struct {
	mu     sync.Mutex
	queues map[string]*queueLoad
}

// queueLoad is the load of one queue.
type queueLoad struct {
	running, waiting int64
	// queued has the submission times of the runs whose jobs Slurm has and has not started, by bundle.
	queued map[string]time.Time
	// waits are the last waits for Slurm, the oldest first.
	waits []wait
}

// wait is the time from a submission to the begin of the command, which was at began.
type wait struct {
	began  time.Time
	lasted time.Duration
}

const (
	// mostWaits bounds the waits that are remembered of a queue.
	mostWaits = 20
	// waitsCountFor is the time for which a wait tells something of the next one.
	waitsCountFor = 24 * time.Hour
)

func (l *load) init() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queues = map[string]*queueLoad{}
}

// of returns the load of a queue. The caller holds l.mu.
func (l *load) of(queue string) *queueLoad {
	if l.queues == nil {
		l.queues = map[string]*queueLoad{}
	}
	q := l.queues[queue]
	if q == nil {
		q = &queueLoad{queued: map[string]time.Time{}}
		l.queues[queue] = q
	}
	return q
}

// replace counts a row in the place of an earlier one. Each may be nil.
func (l *load) replace(old, r *plan.Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old != nil {
		l.of(old.Queue).count(old, -1)
	}
	if r == nil {
		return
	}
	q := l.of(r.Queue)
	q.count(r, 1)
	if r.Phase == plan.Running && (old == nil || old.Phase != plan.Running) && !r.SubmittedAt.IsZero() {
		q.note(wait{r.PhaseSince, max(r.PhaseSince.Sub(r.SubmittedAt), 0)})
	}
}

func (q *queueLoad) count(r *plan.Row, sign int64) {
	switch r.Phase {
	case plan.Running:
		q.running += sign
	case plan.Claiming, plan.Staging, plan.Submitting, plan.Queued:
		q.waiting += sign
	case plan.Stopping, plan.Collecting, plan.Finalizing, plan.Done:
	}
	if delete(q.queued, r.Bundle); sign > 0 && r.Phase == plan.Queued {
		q.queued[r.Bundle] = r.SubmittedAt
	}
}

// note adds a wait. Those of an earlier life of the bridge come in no order.
func (q *queueLoad) note(w wait) {
	at, _ := slices.BinarySearchFunc(q.waits, w, func(a, b wait) int { return a.began.Compare(b.began) })
	q.waits = slices.Insert(q.waits, at, w)
	if len(q.waits) > mostWaits {
		q.waits = slices.Delete(q.waits, 0, 1)
	}
}

// shown returns the numbers of a queue's runs, and the time for which a new one probably waits in Slurm; false if there
// is nothing to tell it by.
//
// That time is the median wait of the last runs that began. Jobs that wait now may have waited for longer, because the
// cluster is fuller than before: then it is the median of these waits so far.
func (l *load) shown(queue string, now time.Time) (running, waiting int64, expected time.Duration, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.of(queue)
	var begun, queued []time.Duration
	for _, w := range q.waits {
		if now.Sub(w.began) <= waitsCountFor {
			begun = append(begun, w.lasted)
		}
	}
	for _, since := range q.queued {
		queued = append(queued, max(now.Sub(since), 0))
	}
	if len(begun) == 0 {
		return q.running, q.waiting, 0, false
	}
	return q.running, q.waiting, max(median(begun), median(queued)), true
}

// median returns the lower median; 0 of nothing.
func median[T cmp.Ordered](list []T) (middle T) {
	if len(list) == 0 {
		return middle
	}
	slices.Sort(list)
	return list[(len(list)-1)/2]
}
