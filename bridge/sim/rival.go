package sim

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// The bridge's ids: that of the site's first ledger, and that of a rival's.
const (
	firstBridge = "b1b2b3"
	rivalBridge = "c1c2c3"
)

// rivalry is a start of a rival: a bridge of the same name and the same shared directory, with another
// ledger, as after the loss of a state directory. The lease of the shared directory is real, in files of
// this machine: it refuses the rival while the first bridge lives or comes back, and gives way to it when
// that one is gone for good.
type rivalry struct {
	w    *world
	dir  string
	held *lease.Lease // the first bridge's; nil while that one does not run
	gone bool         // the first bridge is gone for good
}

// startRival starts a rival.
func (w *world) startRival() {
	if w.ledger.open != nil {
		return // a real ledger is that of all lives
	}
	dir, err := os.MkdirTemp(w.leases, "sim-lease-")
	if err != nil {
		panic(err)
	}
	w.rivalry = &rivalry{w: w, dir: dir, gone: w.dice.coin(Rival)}
	w.rivalry.begin()
}

// remove removes the lease's files.
func (r *rivalry) remove() {
	_ = os.RemoveAll(r.dir) // of this machine's, not of the site's
	r.w.rivalry = nil
}

// begin lets the rival ask for the lease that the first bridge has had from its start.
func (r *rivalry) begin() {
	w := r.w
	r.hold()
	r.renew()
	if r.gone {
		w.logf("bridge", "its host is gone, with its ledger")
		w.nextLife++ // nobody starts it again
		for _, l := range slices.Clone(w.lives) {
			l.die("its host is gone")
		}
	}
	if w.unleased {
		r.remove()
		w.takeOver()
		return
	}
	candidate, err := lease.NewCandidate(filepath.Join(r.dir, "bridge"), lease.Holder{Bridge: rivalBridge}, func(lease.Holder) bool { return false })
	if err != nil {
		panic(err)
	}
	r.look(candidate)
}

// hold takes the lease for a life of the first bridge, which has the lock of its ledger.
func (r *rivalry) hold() {
	candidate, err := lease.NewCandidate(filepath.Join(r.dir, "bridge"), lease.Holder{Bridge: firstBridge}, func(h lease.Holder) bool { return h.Bridge == firstBridge })
	var over bool
	if err == nil {
		over, err = candidate.Look()
	}
	if err == nil && !over {
		err = errors.New("the lease of the first bridge is held")
	}
	if err == nil {
		r.held, err = candidate.Take(r.w.ctx)
	}
	if err != nil {
		panic(fmt.Sprintf("hold the lease: %v", err))
	}
}

// renew renews the first bridge's lease now and then, while that one runs.
func (r *rivalry) renew() {
	w := r.w
	if w.rivalry != r {
		return
	}
	if len(w.lives) > 0 {
		if err := r.held.Renew(w.ctx, nil); err != nil {
			panic(fmt.Sprintf("renew the lease: %v", err))
		}
	}
	w.at(lease.RenewEvery, r.renew)
}

// look has the rival look whether the first bridge is over.
func (r *rivalry) look(c *lease.Candidate) {
	w := r.w
	over, err := c.Look()
	var held *lease.HeldError
	switch {
	case errors.As(err, &held):
		w.logf("bridge", "its rival is refused: bridge %s has the lease", held.Holder.Bridge)
		if r.gone {
			w.violate(Rivals, "a bridge with another ledger is refused, and the first one is gone")
		}
		r.remove()
	case err != nil:
		panic(err)
	case !over:
		w.at(lease.LookEvery, func() { r.look(c) })
	default:
		if !r.gone {
			w.violate(Rivals, "a bridge with another ledger takes over, and the first one would have come back")
		}
		if _, err := c.Take(w.ctx); err != nil {
			panic(err)
		}
		r.remove()
		w.takeOver()
	}
}

// takeOver lets a bridge with an empty ledger begin. It knows nothing of the bundles so far; two more
// are made for it. Jobs of the first bridge go on, and are not its own.
func (w *world) takeOver() {
	w.logf("bridge", "a rival with another ledger takes over")
	unknown := maps.Clone(w.ledger.unknown)
	if unknown == nil {
		unknown = map[string]bool{}
	}
	for command := range w.wants {
		unknown[command] = true
	}
	for _, a := range w.slurm.attempts {
		a.foreign = true
	}
	w.ledger = &ledgerDisk{w: w, contents: contents{rows: map[string]*plan.Row{}}, unknown: unknown}
	w.policy.Bridge = rivalBridge
	w.server.forgive()
	clear(w.stopping)
	w.startLife()
	w.server.create()
	w.at(w.dice.faultDuration(Rival, time.Second, time.Minute), w.server.create)
}

// checkRivals checks that no bridge with another ledger works beside this one.
func (l *life) checkRivals() {
	for _, other := range l.w.lives {
		if other.ledger != l.ledger {
			l.w.violate(Rivals, "lives %d and %d have ledgers of their own, and work on one shared directory", other.number, l.number)
		}
	}
}
