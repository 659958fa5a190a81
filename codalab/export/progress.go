package export

import (
	"math"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// progress tells a caller how much of the contents has come. That of a bundle has its data_size, which is what the server says
// beforehand: it has no exact bytes, since directories count, too, and names of one file.
type progress struct {
	// tell is called with numbers of bytes; nil for nobody. Left is what it gets of the present bundle at most.
	tell func(n int64)
	left int64
	// whole is set if the bundle's size is known.
	whole bool
}

// begin begins a bundle.
func (p *progress) begin(b Bundle) {
	if p.left, p.whole = sizeOf(b); !p.whole {
		p.left = math.MaxInt64
	}
}

// came counts bytes.
func (p *progress) came(n int64) {
	n = min(n, p.left)
	p.left -= n
	if p.tell != nil && n > 0 {
		p.tell(n)
	}
}

// end ends a bundle.
func (p *progress) end() {
	if p.whole {
		p.came(p.left)
	}
}

// sizeOf returns the size of a bundle's contents, if the server tells it. Runs that have failed may have neither.
func sizeOf(b Bundle) (size int64, known bool) {
	return b.Metadata.Int("data_size"), b.Metadata.Has("data_size") || b.State != codalab.StateReady
}

// Size is the size of all contents that Write reads, as the server tells it; -1 if it does not tell all.
func (e *Exporter) Size() (total int64) {
	for _, b := range e.Bundles {
		if !e.hasContents(b) {
			continue
		}
		size, known := sizeOf(b)
		if !known {
			return -1
		}
		total += size
	}
	return total
}
