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
)

// The bridge's ids: the first ledger's, and a rival's.
const (
	firstBridge = "b1b2b3"
	rivalBridge = "c1c2c3"
)

// rivalry is a start of a rival: a bridge of the same name and the same shared directory, with another
// ledger, as after the loss of a state directory. The lease of the shared directory is real, in files of
// this machine: it refuses the rival while the first bridge lives or comes back, and accepts it once the
// first bridge is gone for good.
type rivalry struct {
	w    *world
	dir  string
	held *lease.Lease // the first bridge's; nil while that one does not run
	gone bool         // the first bridge is gone for good
}

// startRival starts a rival.
func (w *world) startRival() {
	if w.ledger.open != nil {
		return // all lives share the real ledger
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
	_ = os.RemoveAll(r.dir) // files of this machine, not of the site
	r.w.rivalry = nil
}

// begin makes the rival ask for the lease, which the first bridge has had from its start.
func (r *rivalry) begin() {
	w := r.w
	r.takeLease()
	r.renew()
	if r.gone {
		w.logf("bridge", "its host is gone, with its ledger")
		w.nextLife++ // it is not started again
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
	r.watchLease(candidate)
}

// takeLease takes the lease for a life of the first bridge, which has the lock of its ledger.
func (r *rivalry) takeLease() {
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

// renew renews the first bridge's lease every RenewEvery, while that bridge runs.
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

// watchLease makes the rival observe the lease until it is refused or takes it.
func (r *rivalry) watchLease(c *lease.Candidate) {
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
		w.at(lease.LookEvery, func() { r.watchLease(c) })
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

// takeOver starts a bridge with an empty ledger. It does not know the bundles so far, so two more are made
// for it. The first bridge's jobs go on, and are foreign to it.
func (w *world) takeOver() {
	w.logf("bridge", "a rival with another ledger takes over")
	unknown := maps.Clone(w.ledger.unknown)
	if unknown == nil {
		unknown = map[string]bool{}
	}
	for command := range w.wants {
		unknown[command] = true
	}
	for _, attempts := range w.slurm.attempts {
		for _, a := range attempts {
			a.foreign = true
		}
	}
	w.ledger = &ledgerDisk{w: w, contents: emptyContents(), unknown: unknown}
	w.policy.Bridge = rivalBridge
	w.server.forgive()
	clear(w.stopping)
	w.startLife()
	w.server.create()
	w.at(w.dice.faultDuration(Rival, time.Second, time.Minute), w.server.create)
}

// checkRivals checks that no bridge with another ledger works at the same time.
func (l *life) checkRivals() {
	for _, other := range l.w.lives {
		if other.ledger != l.ledger {
			l.w.violate(Rivals, "lives %d and %d have ledgers of their own, and work on one shared directory", other.number, l.number)
		}
	}
}
