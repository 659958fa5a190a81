package bridge

import (
	"context"
	"slices"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// proofsAtOnce is how many bundles Prove asks for in one call.
const proofsAtOnce = 8

// Prove asks the server whether it has applied reports for which newer reports of a queue's
// runs wait. It reports whether some are left to ask for.
func (b *Bridge) Prove(ctx context.Context, q plan.Queue) (left bool) {
	bundles := b.view.unproven(q.Name)
	for _, bundle := range bundles[:min(len(bundles), proofsAtOnce)] {
		shown, err := b.Service.Standing(ctx, bundle)
		if err != nil {
			shown = codalab.Standing{} // it proves nothing
		}
		b.view.proof(q.Name, bundle, shown)
	}
	return len(b.view.unproven(q.Name)) > 0
}

// unproven returns the bundles that have something new to report while an unanswered check-in
// carries their last report, if the server can show whether it has applied that report. The
// bundle that was asked for last comes last.
func (v *view) unproven(queue string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.reportsOf(queue)
	var bundles []string
	for bundle := range r.news {
		row, last := v.rows[bundle], r.last[bundle]
		if last != nil && last.carrier != 0 && last.provable && row.State() != last.row.State() {
			bundles = append(bundles, bundle)
		}
	}
	slices.Sort(bundles)
	next, found := slices.BinarySearch(bundles, r.asked)
	if found {
		next++
	}
	return slices.Concat(bundles[next:], bundles[:next])
}

// proof compares what the server shows of a bundle with the bundle's last report. If they are
// the same, the server has applied the report.
func (v *view) proof(queue, bundle string, shown codalab.Standing) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.reportsOf(queue)
	r.asked = bundle
	last := r.last[bundle]
	if last == nil || last.carrier == 0 || shown.State != last.row.State() || shown.RunStatus != last.row.RunStatus() {
		return
	}
	last.carrier = 0
	signal(r.urgent)
}
