package apptainer

import "sync"

// progressStep is how many bytes pass between two reports.
const progressStep = 4 << 20

// reporter counts bytes for a caller's progress function. Its methods may be
// called by several goroutines at once; a nil function is not called.
type reporter struct {
	fn    func(Progress)
	stage Stage
	total int64

	mu             sync.Mutex
	done, reported int64
}

func newReporter(stage Stage, fn func(Progress)) *reporter {
	return &reporter{fn: fn, stage: stage, reported: -progressStep}
}

func (r *reporter) add(n int64) {
	if r.fn == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += n
	if r.done-r.reported >= progressStep || r.done == r.total && r.done != r.reported {
		r.reported = r.done
		r.fn(Progress{Stage: r.stage, Done: r.done, Total: r.total})
	}
}
