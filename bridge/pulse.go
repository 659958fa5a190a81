package bridge

import (
	"maps"
	"sync"
	"time"
)

// Pulse is how a bridge at work stands with the world around it.
type Pulse struct {
	// Observed is when Slurm was last seen as a whole; zero while it has not
	// been since the start. Before that nothing is submitted, cancelled or
	// removed.
	Observed time.Time `json:"observed,omitzero"`
	// Slurm is why it did not answer the last time; empty where it did.
	Slurm string `json:"slurm,omitempty"`
	// Server is the same of the server, for each queue whose check-in failed.
	Server map[string]string `json:"server,omitempty"`
	// Low is why nothing new is put onto the shared disk; empty where it is.
	Low string `json:"low,omitempty"`
}

// Pulse says how the bridge stands with the world. It is safe for concurrent
// use.
func (b *Bridge) Pulse() Pulse {
	b.pulse.mu.Lock()
	defer b.pulse.mu.Unlock()
	p := b.pulse.Pulse
	p.Server = maps.Clone(p.Server)
	return p
}

// pulse is a Pulse that the pumps keep.
type pulse struct {
	mu sync.Mutex
	Pulse
}

// slurm notes whether Slurm answered.
func (p *pulse) slurm(now time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Slurm = ""; err != nil {
		p.Slurm = err.Error()
		return
	}
	p.Observed = now
}

// server notes whether the server answered a queue's check-in.
func (p *pulse) server(queue string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.Server, queue)
		return
	}
	if p.Server == nil {
		p.Server = map[string]string{}
	}
	p.Server[queue] = err.Error()
}

// low notes how full the shared disk is.
func (p *pulse) low(low string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Low = low
}
