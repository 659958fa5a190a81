package export

import (
	"math"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// progress tells a caller the bytes of contents that have come. Those of a bundle add up to its data_size, the only size that the
// server tells beforehand: it is not exact, since directories count, too, and names of one file.
type progress struct {
	// tell is called with numbers of bytes; nil for nobody. Of the present bundle it gets at most left.
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
