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

// Heartbeat is the state of a running bridge's connections.
type Heartbeat struct {
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
	// Low is the reason for which nothing new is put onto the shared disk; empty for none.
	Low string `json:"low,omitempty"`
}

// heartbeat is a Heartbeat that the watchers update.
type heartbeat struct {
	mu sync.Mutex
	Heartbeat
	answered map[string]bool // queues of which the server has answered a check-in
}

// now returns the present heartbeat of a bridge with these queues. open is [Heartbeat.Open].
func (h *heartbeat) now(open bool, queues map[string]plan.Queue) Heartbeat {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.Heartbeat
	p.Open = open
	p.Server, p.LateQueues = maps.Clone(p.Server), slices.Clone(p.LateQueues)
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		if !h.answered[queue] && p.Server[queue] == "" {
			p.UnansweredQueues = append(p.UnansweredQueues, queue)
		}
	}
	p.Held, p.Nodes = maps.Clone(p.Held), maps.Clone(p.Nodes)
	return p
}

// slurm notes whether Slurm answered.
func (h *heartbeat) slurm(now time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Slurm, h.SlurmSince, h.SlurmNext = "", time.Time{}, time.Time{}
	if err == nil {
		h.Observed = now
		return
	}
	h.Slurm = err.Error()
	var unreachable *sbatch.UnreachableError
	if errors.As(err, &unreachable) {
		h.Slurm, h.SlurmSince, h.SlurmNext = unreachable.Err.Error(), unreachable.Since, unreachable.Next
	}
}

// settings notes Slurm's settings, or why they are not known.
func (h *heartbeat) settings(s sbatch.Settings, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.SettingsFailure = ""
	if err != nil {
		h.SettingsFailure = err.Error()
		return
	}
	h.Settings = &s
}

// server notes whether the server answered a queue's check-in.
func (h *heartbeat) server(queue string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.Server, queue)
		if h.answered == nil {
			h.answered = map[string]bool{}
		}
		h.answered[queue] = true
		return
	}
	if h.Server == nil {
		h.Server = map[string]string{}
	}
	h.Server[queue] = err.Error()
}

// noteLate notes whether the server takes a queue's reports too slowly.
func (h *heartbeat) noteLate(queue string, late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	place, noted := slices.BinarySearch(h.LateQueues, queue)
	switch {
	case late && !noted:
		h.LateQueues = slices.Insert(h.LateQueues, place, queue)
	case noted && !late:
		h.LateQueues = slices.Delete(h.LateQueues, place, place+1)
	}
}

// health notes which queues are held up, and which nodes are avoided.
func (h *heartbeat) health(now time.Time, seen *health) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(seen.told)+len(h.Held)+len(seen.nodes)+len(h.Nodes) == 0 {
		return // the usual case
	}
	h.Held, h.Nodes = maps.Clone(seen.told), map[string]string{}
	for _, name := range seen.nodes.Avoided(now) {
		sick := seen.nodes[name]
		h.Nodes[name] = fmt.Sprintf("the commands of the last %d jobs on it did not start (%s); it is avoided until %s",
			sick.Failures, sick.Words, sick.AvoidedUntil.Format(time.TimeOnly))
	}
}

// low notes how full the shared disk is.
func (h *heartbeat) low(low string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Low = low
}
