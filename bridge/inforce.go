package bridge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// inForce is the configured policy of the running bridge, for all parts but the decisions, whose rules adapt it. It is
// safe for concurrent use. Nobody changes a policy that is in force: Reload puts another one in its place.
type inForce struct{ policy atomic.Pointer[plan.Policy] }

func (f *inForce) set(p *plan.Policy) { f.policy.Store(p) }

func (f *inForce) now() *plan.Policy { return f.policy.Load() }

func (f *inForce) queues() map[string]plan.Queue { return f.now().Queues }

func (f *inForce) queue(name string) plan.Queue { return f.queues()[name] }

// replacement is a policy that shall come into force, and the channel for the answer.
type replacement struct {
	policy  plan.Policy
	decided chan error
}

// Reload puts another policy in force while the bridge runs, with other limits and queues, and waits until a step has done
// so. It changes nothing and fails if the policy lacks the queue of a bundle that has not ended. Only values that a
// configuration may change (config.Live) may differ.
func (b *Bridge) Reload(ctx context.Context, p plan.Policy) error {
	r := &replacement{policy: p, decided: make(chan error, 1)}
	b.inbox.putPolicy(r)
	select {
	case err := <-r.decided:
		return err
	case <-ctx.Done():
		return fmt.Errorf("put the configuration in force: %w", ctx.Err())
	}
}

// Queues returns the queues in force; before Open, those that come into force.
func (b *Bridge) Queues() map[string]plan.Queue {
	if b.inForce.now() == nil {
		return b.Policy.Queues
	}
	return b.inForce.queues()
}

// NoteConfiguration notes why the bridge does not follow its configuration file; empty if it does.
func (b *Bridge) NoteConfiguration(refused string) { b.condition.noteConfiguration(refused) }

// adopt puts a replacement in force; nil for none.
func (d *decider) adopt(r *replacement) {
	if r == nil {
		return
	}
	if bundle, queue, ok := d.rows.without(r.policy.Queues); ok {
		r.decided <- fmt.Errorf("[queue.%s] is gone from the configuration, and bundle %s of it has not ended: keep the queue until its bundles have ended", queue, bundle)
		return
	}
	for name := range d.inForce.queues() {
		if _, ok := r.policy.Queues[name]; !ok {
			d.condition.forget(name)
		}
	}
	d.inForce.set(&r.policy)
	d.rules.replace(r.policy)
	d.health.follow(r.policy.Queues)
	signal(d.queuesChanged)
	r.decided <- nil
}

// without returns a bundle that has not ended, of a queue that is not among these. The one with the least uuid comes first.
func (t *rows) without(queues map[string]plan.Queue) (bundle, queue string, found bool) {
	for _, name := range slices.Sorted(maps.Keys(t.byBundle)) {
		r := t.byBundle[name].row
		if r == nil || r.Phase == plan.Done {
			continue
		}
		if _, ok := queues[r.Queue]; !ok {
			return name, r.Queue, true
		}
	}
	return "", "", false
}
