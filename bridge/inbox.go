package bridge

import (
	"sync"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// inbox gathers what arrived since the last step. It is safe for concurrent
// use, and never blocks who brings something.
type inbox struct {
	mu     sync.Mutex
	offers []offer
	news   map[string]*plan.News
	// arrived holds a token while there is something to take.
	arrived chan struct{}
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
	i.news = map[string]*plan.News{}
}

// put adds news of one bundle to what there is already of it.
func (i *inbox) put(bundle string, add func(n *plan.News)) {
	i.mu.Lock()
	n := i.news[bundle]
	if n == nil {
		n = &plan.News{}
		i.news[bundle] = n
	}
	add(n)
	i.mu.Unlock()
	i.ring()
}

func (i *inbox) offer(o offer) {
	i.mu.Lock()
	i.offers = append(i.offers, o)
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
func (i *inbox) take() ([]offer, map[string]*plan.News) {
	i.mu.Lock()
	defer i.mu.Unlock()
	offers, news := i.offers, i.news
	i.offers, i.news = nil, map[string]*plan.News{}
	return offers, news
}
