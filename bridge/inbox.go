package bridge

import (
	"errors"
	"sync"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// inbox gathers what arrived since the last step. It is safe for concurrent use, and never
// blocks a sender.
type inbox struct {
	mu sync.Mutex
	arrivals
	// arrived holds a token while the inbox is not empty.
	arrived chan struct{}
}

// arrivals are the contents of an inbox.
type arrivals struct {
	offers   []offer
	news     []*bundleNews // in the order of their first arrival
	byBundle map[string]*bundleNews
	snapshot *sbatch.Snapshot                          // the newest
	settings *sbatch.Settings                          // the newest
	sizes    map[string]sbatch.NodeSizes               // of the queues' nodes, the newest; nil for no news
	limits   *learntLimits                             // the newest; nil for no news
	diskLow  *string                                   // plan.LowWater.Lack; nil for no news
	ended    []plan.Effect                             // the news of their rows tell how
	answers  map[plan.SubmissionName]plan.SbatchAnswer // for submissions that rows share
	policy   *replacement                              // the newest; nil for none
}

type bundleNews struct {
	bundle string
	plan.News
}

// offer is a run message for a bundle, and the queue for which it came.
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

// newsOf returns the news of a bundle, to which the caller may add.
func (a *arrivals) newsOf(bundle string) *plan.News {
	n := a.byBundle[bundle]
	if n == nil {
		if a.byBundle == nil {
			a.byBundle = map[string]*bundleNews{}
		}
		n = &bundleNews{bundle: bundle}
		a.byBundle[bundle], a.news = n, append(a.news, n)
	}
	return &n.News
}

// put adds to the news of a bundle.
func (i *inbox) put(bundle string, add func(n *plan.News)) {
	i.mu.Lock()
	add(i.newsOf(bundle))
	i.mu.Unlock()
	signal(i.arrived)
}

// putEnded adds that an effect has ended, with its outcome for each of its rows. An orphan job has no row.
func (i *inbox) putEnded(e plan.Effect, of outcomes) {
	i.mu.Lock()
	i.ended = append(i.ended, e)
	if e.Submission != nil {
		var n plan.News
		if of(e.Row)(&n); n.Submitted != nil {
			i.noteAnswer(e.Submission.Name, *n.Submitted)
		}
	} else {
		for _, r := range e.Rows() {
			if r.Bundle != "" {
				of(r)(i.newsOf(r.Bundle))
			}
		}
	}
	i.mu.Unlock()
	signal(i.arrived)
}

// noteAnswer notes the answer of sbatch for a submission that rows share.
func (a *arrivals) noteAnswer(name plan.SubmissionName, answer plan.SbatchAnswer) {
	if a.answers == nil {
		a.answers = map[plan.SubmissionName]plan.SbatchAnswer{}
	}
	a.answers[name] = answer
}

// putMessages adds a server's messages. No step comes between them: a kill may be for the bundle
// that the same answer offers.
func (i *inbox) putMessages(queue string, messages []codalab.Message) {
	i.mu.Lock()
	for _, m := range messages {
		switch {
		case m.Type == codalab.MessageRun && m.Bundle != nil && codalab.IsUUID(m.Bundle.UUID):
			i.offers = append(i.offers, offer{queue: queue, message: m})
		case m.Type == codalab.MessageKill, m.Type == codalab.MessageMarkFinalized:
			n := i.newsOf(m.UUID)
			n.Messages = append(n.Messages, m)
		}
	}
	i.mu.Unlock()
	signal(i.arrived)
}

// putSnapshot adds a snapshot of Slurm, in place of an earlier one.
func (i *inbox) putSnapshot(s sbatch.Snapshot) {
	i.mu.Lock()
	i.snapshot = &s
	i.mu.Unlock()
	signal(i.arrived)
}

// putSettings adds Slurm's settings, in place of earlier ones.
func (i *inbox) putSettings(s sbatch.Settings) {
	i.mu.Lock()
	i.settings = &s
	i.mu.Unlock()
	signal(i.arrived)
}

// putSizes adds the sizes of each queue's nodes, in place of earlier ones.
func (i *inbox) putSizes(sizes map[string]sbatch.NodeSizes) {
	i.mu.Lock()
	i.sizes = sizes
	i.mu.Unlock()
	signal(i.arrived)
}

// putLimits adds the limits of Slurm's QOS and associations, in place of earlier ones.
func (i *inbox) putLimits(l learntLimits) {
	i.mu.Lock()
	i.limits = &l
	i.mu.Unlock()
	signal(i.arrived)
}

// putPolicy adds a policy that shall come into force. An earlier one that no step has seen gets an error.
func (i *inbox) putPolicy(r *replacement) {
	i.mu.Lock()
	if i.policy != nil {
		i.policy.decided <- errReplaced
	}
	i.policy = r
	i.mu.Unlock()
	signal(i.arrived)
}

// errReplaced is the answer for a policy in whose place another came before a step.
var errReplaced = errors.New("a newer configuration came first")

// putDiskLow adds how full the shared disk is: plan.LowWater.Lack.
func (i *inbox) putDiskLow(reason string) {
	i.mu.Lock()
	i.diskLow = &reason
	i.mu.Unlock()
	signal(i.arrived)
}

// drain empties the inbox.
func (i *inbox) drain() arrivals {
	i.mu.Lock()
	defer i.mu.Unlock()
	a := i.arrivals
	i.arrivals = arrivals{}
	return a
}
