package sim

import "time"

// checkBackOff checks that the bridge pauses after a controller has not answered, and longer after each
// further failure.
func (l *life) checkBackOff(command string) {
	if l.unanswered == 0 {
		return
	}
	least := min(observeEvery<<min(l.unanswered-1, 16), time.Minute)
	if since := l.w.now - l.failed; since < least || command != "squeue" {
		l.w.violate(TooManyRequests, "%s is run %s after squeue had no answer %d times", command, since, l.unanswered)
	}
}

// countRequest counts a request to the controller.
func (w *world) countRequest() {
	const window = time.Minute
	w.requests = append(w.requests, w.now)
	for len(w.requests) > 0 && w.now-w.requests[0] > window {
		w.requests = w.requests[1:]
	}
	if len(w.requests) == w.crowd.requests {
		w.violate(TooManyRequests, "%d requests to Slurm within %s", w.crowd.requests, window)
	}
}

// countStep counts a step of the bridge.
func (w *world) countStep() {
	w.steps++
	if w.rush++; w.now-w.rushed > time.Second {
		w.rushed, w.rush = w.now, 0
	}
	if w.rush == 300 {
		w.violate(Stuck, "the bridge went round in a circle")
	}
}
