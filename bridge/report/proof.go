package report

import (
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Unproven returns the bundles that have something new to report while an unanswered check-in
// carries their last report, if the server can show whether it has applied that report. The
// bundle that was compared last comes last.
func (b *Book) Unproven(queue string) []string {
	q := b.of(queue)
	var bundles []string
	for bundle := range q.unreported {
		r := q.runs[bundle]
		if last := r.last; last != nil && last.carrier != 0 && last.provable && r.row.State() != last.row.State() {
			bundles = append(bundles, bundle)
		}
	}
	slices.Sort(bundles)
	next, found := slices.BinarySearch(bundles, q.compared)
	if found {
		next++
	}
	return slices.Concat(bundles[next:], bundles[:next])
}

// Prove compares what the server shows of a bundle with the bundle's last report, and reports whether that
// proves that the server has applied the report. Then newer reports of the bundle are urgent.
func (b *Book) Prove(queue, bundle string, shown codalab.Standing) bool {
	q := b.of(queue)
	q.compared = bundle
	r := q.runs[bundle]
	if r == nil || r.last == nil || r.last.carrier == 0 || shown.State != r.last.row.State() || shown.RunStatus != r.last.status {
		return false
	}
	r.last.carrier = 0
	return true
}
