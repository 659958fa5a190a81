package bridge

import (
	"sync"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// inbox gathers what arrived since the last step. It is safe for concurrent
// use, and never blocks who brings something.
type inbox struct {
	mu sync.Mutex
	arrivals
	// arrived holds a token while there is something to take.
	arrived chan struct{}
}

// arrivals are what one step takes.
type arrivals struct {
	offers   []offer
	news     []*bundleNews    // in the order of their first arrival
	places   places           // of news
	snapshot *sbatch.Snapshot // the newest
	low      *string          // why nothing new may be put onto the shared disk
}

type bundleNews struct {
	bundle string
	plan.News
}

// offer is a run message for a bundle, and the queue that it came to.
type offer struct {
	queue   string
	message codalab.Message
}

func (i *inbox) init() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.arrived = make(chan struct{}, 1)
	i.arrivals = arrivals{}
}

// of returns the news of a bundle, for more to be added.
func (a *arrivals) of(bundle string) *plan.News {
	if at := a.places.at(bundle); at >= 0 {
		return &a.news[at].News
	}
	n := &bundleNews{bundle: bundle}
	a.news = append(a.news, n)
	a.places.add(bundle)
	return &n.News
}

// put adds news of one bundle to what there is already of it.
func (i *inbox) put(bundle string, add func(n *plan.News)) {
	i.mu.Lock()
	add(i.of(bundle))
	i.mu.Unlock()
	i.ring()
}

// deliver adds a server's messages. No step comes between them: a kill may be
// meant for the bundle that is offered with it.
func (i *inbox) deliver(queue string, messages []codalab.Message) {
	i.mu.Lock()
	for _, m := range messages {
		switch {
		case m.Type == codalab.MessageRun && m.Bundle != nil && codalab.IsUUID(m.Bundle.UUID):
			i.offers = append(i.offers, offer{queue: queue, message: m})
		case m.Type == codalab.MessageKill, m.Type == codalab.MessageMarkFinalized:
			n := i.of(m.UUID)
			n.Messages = append(n.Messages, m)
		}
	}
	i.mu.Unlock()
	i.ring()
}

// see brings a snapshot of Slurm.
func (i *inbox) see(s sbatch.Snapshot) {
	i.mu.Lock()
	i.snapshot = &s
	i.mu.Unlock()
	i.ring()
}

// measured brings how full the shared disk is: plan.LowWater.Low.
func (i *inbox) measured(low string) {
	i.mu.Lock()
	i.low = &low
	i.mu.Unlock()
	i.ring()
}

func (i *inbox) ring() {
	select {
	case i.arrived <- struct{}{}:
	default:
	}
}

// take empties the inbox.
func (i *inbox) take() arrivals {
	i.mu.Lock()
	defer i.mu.Unlock()
	a := i.arrivals
	i.arrivals = arrivals{}
	return a
}
