package transfer

import (
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/turns"
)

// Stage is what is being done to a transfer.
type Stage string

// The stages. An image goes through them in this order, as a rule.
const (
	Idle       Stage = ""           // nothing that is worth reporting
	Asking     Stage = "asking"     // a registry for the digest of an image
	Queued     Stage = "queued"     // behind other transfers of this process
	Elsewhere  Stage = "elsewhere"  // another process brings it in
	Pulling    Stage = "pulling"    // its bytes from a server or a registry
	Converting Stage = "converting" // an image's layers to a SIF
	Storing    Stage = "storing"    // reading the SIF back and flushing it
	Reading    Stage = "reading"    // a file that is used where it lies
)

// Progress is how far a transfer is.
type Progress struct {
	Stage Stage `json:"stage"`
	// By is the registry that is asked, or the other process.
	By string `json:"by,omitempty"`
	// Done and Total are bytes: of files while an image is converted, and else of what
	// comes over the network. Total is 0 while it is unknown. Rate is bytes a second.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	Rate  int64 `json:"rate"`
	// Ahead is how many other transfers have their turn while this one is Queued.
	Ahead int `json:"-"`
}

// Amount is Done, Total if it is known, and the rate if there is one, in words.
func (p Progress) Amount() string {
	text := codalab.FormatSize(p.Done)
	if p.Total > 0 {
		text += " of " + codalab.FormatSize(max(p.Total, p.Done))
	}
	if p.Rate > 0 && p.Stage != Converting {
		text += " at " + codalab.FormatSize(p.Rate) + "/s"
	}
	return text
}

// Transfer is one thing that is moved. All bundles that wait for it see the same one.
// The zero Transfer is ready for use, and belongs to no Registry; its methods are safe for
// concurrent use.
type Transfer struct {
	mu          sync.Mutex
	stage       Stage
	by          string
	done, total int64
	samples     []sample

	registry *Registry              // guards the rest
	bundles  map[turns.Party]int    // those that wait for it, and how often each
	tickets  map[*turns.Ticket]bool // the turns that it has, and waits for
}

type sample struct {
	at   time.Time
	done int64
}

// The rate is that of the last seconds.
const (
	sampleEvery = time.Second
	rateOver    = 6 * time.Second
)

// SetStage records what is done now. With Idle, the stage follows from the turns.
func (t *Transfer) SetStage(s Stage) { t.setStage(s, "") }

func (t *Transfer) setStage(s Stage, by string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stage, t.by = s, by
}

// SetBytes records how many bytes are done, and of how many; 0 if that is unknown.
func (t *Transfer) SetBytes(done, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done, t.total = done, total
}

// Done is how many bytes are done.
func (t *Transfer) Done() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// Write counts the bytes of p as done.
func (t *Transfer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += int64(len(p))
	return len(p), nil
}

// Progress returns how far the transfer is. The calls of Progress are the samples from
// which the rate is computed.
func (t *Transfer) Progress(now time.Time) Progress {
	p := t.stageOfTurns()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage != Idle {
		p = Progress{Stage: t.stage, By: t.by}
	}
	p.Done, p.Total, p.Rate = t.done, t.total, t.rate(now)
	return p
}

// stageOfTurns returns the stage that follows from the transfer's turns.
func (t *Transfer) stageOfTurns() (p Progress) {
	if t.registry == nil {
		return p
	}
	t.registry.mu.Lock()
	defer t.registry.mu.Unlock()
	for k := range t.tickets {
		if k.Granted() {
			return Progress{Stage: Pulling}
		}
		p.Stage, p.Ahead = Queued, t.registry.turns.Taken()
	}
	return p
}

// rate takes a sample. The caller holds t.mu.
func (t *Transfer) rate(now time.Time) int64 {
	if n := len(t.samples); n > 0 && t.done < t.samples[n-1].done { // another stage began
		t.samples = nil
	}
	if n := len(t.samples); n == 0 || now.Sub(t.samples[n-1].at) >= sampleEvery {
		t.samples = append(t.samples, sample{now, t.done})
		if i := slices.IndexFunc(t.samples, func(s sample) bool { return now.Sub(s.at) <= rateOver }); i > 0 {
			t.samples = slices.Delete(t.samples, 0, i)
		}
	}
	first := t.samples[0]
	if !now.After(first.at) {
		return 0
	}
	return max(0, int64(float64(t.done-first.done)/now.Sub(first.at).Seconds()))
}
