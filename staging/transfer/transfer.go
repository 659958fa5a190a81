package transfer

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/turns"
)

// Stage is the current step of a transfer.
type Stage string

// The stages. An image usually goes through them in this order.
const (
	Idle       Stage = ""           // nothing to report
	Asking     Stage = "asking"     // a registry for the digest of an image
	Queued     Stage = "queued"     // behind other transfers of this process
	Elsewhere  Stage = "elsewhere"  // another process brings it
	Pulling    Stage = "pulling"    // its bytes from a server or a registry
	Converting Stage = "converting" // an image's layers to a SIF
	Storing    Stage = "storing"    // reading the SIF back and flushing it
	Reading    Stage = "reading"    // a file that is used in place
)

// Progress is the progress of a transfer.
type Progress struct {
	Stage Stage `json:"stage"`
	// By is the registry that is asked, or the other process.
	By string `json:"by,omitempty"`
	// Done and Total are bytes: of files during a conversion, and otherwise of network data. Total
	// is 0 while it is unknown. Rate is in bytes a second.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	Rate  int64 `json:"rate"`
	// Ahead counts the other transfers that have their turn while this one is Queued.
	Ahead int `json:"-"`
}

// Amount returns Done, Total if it is known, and the rate if there is one, in words.
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

// TimeLeft returns ", 40s left" for the rest at this rate; empty if it is not known or nothing is left.
func (p Progress) TimeLeft() string {
	if p.Rate <= 0 || p.Done >= p.Total {
		return ""
	}
	const most = 100 * 24 * time.Hour // so that no slow start overflows
	left := min(float64(p.Total-p.Done)/float64(p.Rate), most.Seconds())
	if left < 60 {
		return fmt.Sprintf(", %ds left", int(math.Ceil(left)))
	}
	return ", " + codalab.FormatDuration(time.Duration(left)*time.Second) + " left"
}

// Transfer is one thing that is moved. All bundles that wait for it share the same Transfer. The
// zero Transfer is ready for use, and belongs to no Registry. Its methods are safe for concurrent
// use.
type Transfer struct {
	mu          sync.Mutex
	stage       Stage
	by          string
	done, total int64
	samples     []sample

	registry *Registry              // its mutex guards the fields below
	bundles  map[turns.Party]int    // the waiting bundles, and the number of calls of each
	tickets  map[*turns.Ticket]bool // its turns, granted or not
}

type sample struct {
	at   time.Time
	done int64
}

// The rate is an average over the last seconds.
const (
	sampleEvery = time.Second
	rateOver    = 6 * time.Second
)

// SetStage records the current stage. With Idle, the stage follows from the turns.
func (t *Transfer) SetStage(s Stage) { t.setStage(s, "") }

func (t *Transfer) setStage(s Stage, by string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stage, t.by = s, by
}

// SetBytes records the finished bytes and the total; 0 if that is unknown.
func (t *Transfer) SetBytes(done, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done, t.total = done, total
}

// Done returns the finished bytes.
func (t *Transfer) Done() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// Write counts the bytes of p as finished.
func (t *Transfer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += int64(len(p))
	return len(p), nil
}

// Progress returns the progress of the transfer. Its calls are the samples for the rate.
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

// rate takes a sample, and returns the bytes a second. The caller holds t.mu.
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
