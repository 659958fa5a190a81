// Package tally counts bundles by how far they are, and estimates the time until the last of them has ended. It is pure:
// the caller brings the bundles and the moment.
package tally

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/colour"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// Tally is a number of bundles, by how far they are. Waiting are those that have not begun; a run whose Slurm job is
// queued has not.
type Tally struct {
	Ready, Failed, Killed, Removed, Running, Waiting, Offline int
}

// Removed is the state of a bundle that its server does not have any more. No server sends it.
const Removed codalab.State = "removed"

// Add counts a bundle in a state. One in a state that this program does not know has not ended, and counts as running.
func (t *Tally) Add(s codalab.State) {
	switch s {
	case codalab.StateReady:
		t.Ready++
	case codalab.StateFailed:
		t.Failed++
	case codalab.StateKilled:
		t.Killed++
	case Removed:
		t.Removed++
	case codalab.StateUploading, codalab.StateCreated, codalab.StateStaged, codalab.StateMaking, codalab.StateStarting, codalab.StatePreparing:
		t.Waiting++
	case codalab.StateWorkerOffline:
		t.Offline++
	default: // running, finalizing, and states of later servers
		t.Running++
	}
}

// Total is the number of all bundles.
func (t Tally) Total() int { return t.Ended() + t.Running + t.Waiting + t.Offline }

// Ended is the number of bundles that have ended.
func (t Tally) Ended() int { return t.Ready + t.Failed + t.Killed + t.Removed }

// String is the tally in words: "12 of 40 ready, 2 failed, 20 running, 6 waiting".
func (t Tally) String() string { return t.Text(false) }

// Text is String with the colours of the states.
func (t Tally) Text(p colour.Palette) string {
	parts := []string{p.State(codalab.StateReady, fmt.Sprintf("%d of %d ready", t.Ready, t.Total()))}
	for _, part := range []struct {
		n     int
		word  string
		state codalab.State
	}{
		{t.Failed, "failed", codalab.StateFailed},
		{t.Killed, "killed", codalab.StateKilled},
		{t.Removed, "removed", codalab.StateKilled},
		{t.Running, "running", codalab.StateRunning},
		{t.Offline, "on a worker that is offline", codalab.StateWorkerOffline},
		{t.Waiting, "waiting", codalab.StateStaged},
	} {
		if part.n > 0 {
			parts = append(parts, p.State(part.state, fmt.Sprintf("%d %s", part.n, part.word)))
		}
	}
	return strings.Join(parts, ", ")
}

// Run is a run, for an estimate.
type Run struct {
	State codalab.State
	// Took is the time for which the command has run.
	Took time.Duration
}

// The conditions of an estimate: so many runs are ready, and their times differ so little. The spread is the standard
// deviation by the mean.
const (
	leastReady = 3
	mostSpread = 0.5
)

// Left estimates the time until all runs have ended. It assumes that as many run at once as now, that each takes the
// mean time of those that are ready, and that one that takes longer ends soon. It returns false where that is
// guesswork: nothing runs, few are ready, or their times differ much.
func Left(runs []Run) (time.Duration, bool) {
	var took []float64
	var free slots // for each run that runs now, the seconds until it ends
	waiting := 0
	for _, r := range runs {
		var t Tally
		t.Add(r.State)
		switch {
		case t.Ready > 0:
			took = append(took, r.Took.Seconds())
		case t.Waiting > 0:
			waiting++
		case t.Running > 0:
			free = append(free, r.Took.Seconds())
		case t.Offline > 0: // nobody knows when it goes on
			return 0, false
		}
	}
	mean, spread := statistics(took)
	if len(took) < leastReady || len(free) == 0 || mean == 0 || spread > mostSpread {
		return 0, false
	}
	for i, since := range free {
		free[i] = max(mean-since, mean/10)
	}
	last := slices.Max(free)
	heap.Init(&free)
	for ; waiting > 0; waiting-- {
		free[0] += mean // the slot that is free first
		last = max(last, free[0])
		heap.Fix(&free, 0)
	}
	return time.Duration(last * float64(time.Second)), true
}

// statistics returns the mean of some numbers, and their standard deviation by the mean.
func statistics(numbers []float64) (mean, spread float64) {
	for _, n := range numbers {
		mean += n / float64(len(numbers))
	}
	if mean == 0 {
		return 0, 0
	}
	for _, n := range numbers {
		spread += (n - mean) * (n - mean) / float64(len(numbers))
	}
	return mean, math.Sqrt(spread) / mean
}

// About is an estimate in words, as precise as it can be: "about 1h10m left".
func About(left time.Duration) string {
	switch {
	case left < 90*time.Second:
		return "about a minute left"
	case left < time.Hour:
		return fmt.Sprintf("about %dm left", int(left.Round(time.Minute).Minutes()))
	case left < 10*time.Hour:
		left = left.Round(10 * time.Minute)
		if left%time.Hour > 0 {
			return fmt.Sprintf("about %dh%dm left", left/time.Hour, left%time.Hour/time.Minute)
		}
	}
	return fmt.Sprintf("about %dh left", int(left.Round(time.Hour).Hours()))
}

// slots is a heap of seconds.
type slots []float64

func (s slots) Len() int           { return len(s) }
func (s slots) Less(i, j int) bool { return s[i] < s[j] }
func (s slots) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// Push is for package heap, which has no use for it here.
func (s *slots) Push(x any) { *s = append(*s, x.(float64)) } //nolint:forcetypeassert // only floats are pushed

// Pop is for package heap, which has no use for it here.
func (s *slots) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
