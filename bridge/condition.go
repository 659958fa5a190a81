package bridge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Condition is the state of a running bridge that its ledger does not have: its connections, the queues that are
// held up, the nodes that are avoided, and the shared disk. A heartbeat has it.
type Condition struct {
	// Open is set once the bridge has read its ledger.
	Open bool `json:"open,omitempty"`
	// Observed is the time of the last complete answer of Slurm; zero if there was none since the start. Until
	// then the bridge submits and cancels no job, and removes no files of a bundle.
	Observed time.Time `json:"observed,omitzero"`
	// Slurm is the error of the last question to Slurm; empty if it answered.
	Slurm string `json:"slurm,omitempty"`
	// SlurmSince is since when it has not answered, SlurmNext when it is asked again.
	SlurmSince time.Time `json:"slurm_since,omitzero"`
	SlurmNext  time.Time `json:"slurm_next,omitzero"`
	// Settings are Slurm's; nil while they are not known. SettingsFailure is the error of the last question for
	// them; empty for none.
	Settings        *sbatch.Settings `json:"settings,omitempty"`
	SettingsFailure string           `json:"settings_failure,omitempty"`
	// Limits describes the limits of Slurm's QOS and associations on the jobs of each queue that has any.
	// LimitsUnknown says why they are not known; empty if they are.
	Limits        map[string][]string `json:"limits,omitempty"`
	LimitsUnknown string              `json:"limits_unknown,omitempty"`
	// Server has the error of the last check-in of each queue whose check-in failed.
	Server map[string]string `json:"server,omitempty"`
	// UnansweredQueues names the queues of which no check-in has been answered since the start, nor refused.
	UnansweredQueues []string `json:"unheard,omitempty"`
	// LateQueues names the queues for which the bridge asks for no more bundles, because the server takes
	// the reports of the live runs too slowly.
	LateQueues []string `json:"late,omitempty"`
	// Held has a reason for each queue that is held up, and Nodes one for each node that is avoided.
	Held  map[string]string `json:"held,omitempty"`
	Nodes map[string]string `json:"nodes,omitempty"`
	// DiskLow is the reason for which nothing new is put onto the shared disk; empty for none.
	DiskLow string `json:"low,omitempty"`
	// Refused is the reason for which the bridge does not follow its configuration file, which it has read again; empty
	// for none.
	Refused string `json:"configuration_refused,omitempty"`
	// Drained has the reason for each queue that the operators let take no new bundles.
	Drained map[string]string `json:"drained,omitempty"`
}

// condition is a Condition that the watchers update.
type condition struct {
	mu sync.Mutex
	Condition
	answered map[string]time.Time // by queue, the last answer to a check-in
}

// now returns the present condition of a bridge with these queues. open is [Condition.Open].
func (c *condition) now(open bool, queues map[string]plan.Queue) Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.Condition
	p.Open = open
	p.Server, p.LateQueues = maps.Clone(p.Server), slices.Clone(p.LateQueues)
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		if c.answered[queue].IsZero() && p.Server[queue] == "" {
			p.UnansweredQueues = append(p.UnansweredQueues, queue)
		}
	}
	p.Held, p.Nodes, p.Drained = maps.Clone(p.Held), maps.Clone(p.Nodes), maps.Clone(p.Drained)
	return p
}

// slurm notes whether Slurm answered.
func (c *condition) slurm(now time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Slurm, c.SlurmSince, c.SlurmNext = "", time.Time{}, time.Time{}
	if err == nil {
		c.Observed = now
		return
	}
	c.Slurm = err.Error()
	if unreachable, ok := errors.AsType[*sbatch.UnreachableError](err); ok {
		c.Slurm, c.SlurmSince, c.SlurmNext = unreachable.Err.Error(), unreachable.Since, unreachable.Next
	}
}

// settings notes Slurm's settings, or why they are not known.
func (c *condition) settings(s sbatch.Settings, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.SettingsFailure = ""
	if err != nil {
		c.SettingsFailure = err.Error()
		return
	}
	c.Settings = &s
}

// limits notes the limits of QOS and associations, or why they are not known. The caller changes the map no more.
func (c *condition) limits(words map[string][]string, unknown string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Limits, c.LimitsUnknown = words, unknown
}

// server notes whether the server answered a queue's check-in.
func (c *condition) server(now time.Time, queue string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.Server, queue)
		if c.answered == nil {
			c.answered = map[string]time.Time{}
		}
		c.answered[queue] = now
		return
	}
	if c.Server == nil {
		c.Server = map[string]string{}
	}
	c.Server[queue] = err.Error()
}

// lastAnswers returns the time of the server's last answer to a check-in of each queue that has one.
func (c *condition) lastAnswers() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.answered)
}

// noteLate notes whether the server takes a queue's reports too slowly.
func (c *condition) noteLate(queue string, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	place, noted := slices.BinarySearch(c.LateQueues, queue)
	switch {
	case late && !noted:
		c.LateQueues = slices.Insert(c.LateQueues, place, queue)
	case noted && !late:
		c.LateQueues = slices.Delete(c.LateQueues, place, place+1)
	}
}

// health notes which queues are held up, and which nodes are avoided.
func (c *condition) health(now time.Time, seen *health) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(seen.told)+len(c.Held)+len(seen.nodes)+len(c.Nodes) == 0 {
		return // the usual case
	}
	c.Held, c.Nodes = maps.Clone(seen.told), map[string]string{}
	for _, name := range seen.nodes.Avoided(now) {
		sick := seen.nodes[name]
		c.Nodes[name] = fmt.Sprintf("the commands of the last %d jobs on it did not start (%s); it is avoided until %s",
			sick.Failures, sick.Words, sick.AvoidedUntil.Format(time.TimeOnly))
	}
}

// noteConfiguration notes why the bridge does not follow its configuration file; empty if it does.
func (c *condition) noteConfiguration(refused string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Refused = refused
}

// forget forgets a queue that has gone.
func (c *condition) forget(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answered, queue)
	delete(c.Server, queue)
	delete(c.Held, queue)
	c.LateQueues = slices.DeleteFunc(c.LateQueues, func(late string) bool { return late == queue })
}

// diskLow notes the reason for which nothing new is put onto the shared disk.
func (c *condition) diskLow(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.DiskLow = reason
}

// drain notes which queues take no new bundles.
func (c *condition) drain(words map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Drained = nil
	if len(words) > 0 {
		c.Drained = maps.Clone(words)
	}
}
