package apptainer

import "sync"

// Stage names the current step of a conversion.
type Stage = string

// The stages of a conversion, in order. While Pulling, layers are pulled and also converted as they
// arrive. Converting begins when all layers are pulled.
const (
	Pulling    Stage = "pulling"
	Converting Stage = "converting"
)

// Progress is the progress of a conversion.
type Progress struct {
	// Stage is the current stage.
	Stage Stage
	// Done and Total count bytes of compressed layers: pulled ones while Pulling, and converted
	// ones while Converting.
	Done, Total int64
}

// progressStep is the number of bytes between two reports.
const progressStep = 4 << 20

// reporter counts bytes and calls a caller's progress function, which may be nil. Its methods are
// safe for concurrent use.
type reporter struct {
	fn                func(Progress)
	toPull, toConvert int64

	mu                sync.Mutex
	pulled, converted int64
	last              Progress
}

// addPulled adds n, which may be negative, to the pulled bytes.
func (r *reporter) addPulled(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulled += n
	r.report()
}

// addConverted adds n to the converted bytes. A second reading does not count.
func (r *reporter) addConverted(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.converted = min(r.converted+n, r.toConvert)
	r.report()
}

func (r *reporter) report() {
	p := Progress{Pulling, r.pulled, r.toPull}
	if r.pulled >= r.toPull {
		p = Progress{Converting, r.converted, r.toConvert}
	}
	whole := p.Done == p.Total && p != r.last
	if r.fn == nil || p.Stage == r.last.Stage && !whole && max(p.Done-r.last.Done, r.last.Done-p.Done) < progressStep {
		return
	}
	r.last = p
	r.fn(p)
}
