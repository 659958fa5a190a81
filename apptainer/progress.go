package apptainer

import "sync"

// Stage says what a conversion is doing.
type Stage = string

// The stages of a conversion, in order. Pulling brings the layers and begins to
// convert what is there; Converting goes on when all are there.
const (
	Pulling    Stage = "pulling"
	Converting Stage = "converting"
)

// Progress says how far a conversion is.
type Progress struct {
	// Stage is what is being done.
	Stage Stage
	// Done and Total count bytes of compressed layers: that are there while
	// pulling, that are converted while converting.
	Done, Total int64
}

// progressStep is how many bytes pass between two reports.
const progressStep = 4 << 20

// reporter counts bytes for a caller's progress function. Its methods may be
// called by several goroutines at once; a nil function is not called.
type reporter struct {
	fn                func(Progress)
	toPull, toConvert int64

	mu                sync.Mutex
	pulled, converted int64
	last              Progress
}

// pull notes that n more bytes are there, or fewer.
func (r *reporter) pull(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulled += n
	r.report()
}

// convert notes that n more bytes are read. What has to be read again counts
// once.
func (r *reporter) convert(n int64) {
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
