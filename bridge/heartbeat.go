package bridge

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/observer"
)

// Heartbeat is how a bridge at work stands with the world around it.
type Heartbeat struct {
	// Observed is when Slurm was last seen as a whole; zero while it has not
	// been since the start. Before that nothing is submitted, cancelled or
	// removed.
	Observed time.Time `json:"observed,omitzero"`
	// Slurm is why it did not answer the last time; empty where it did.
	Slurm string `json:"slurm,omitempty"`
	// SlurmSince is since when it has not answered, SlurmNext when it is asked again.
	SlurmSince time.Time `json:"slurm_since,omitzero"`
	SlurmNext  time.Time `json:"slurm_next,omitzero"`
	// Server is the same of the server, for each queue whose check-in failed.
	Server map[string]string `json:"server,omitempty"`
	// Low is why nothing new is put onto the shared disk; empty where it is.
	Low string `json:"low,omitempty"`
}

// Heartbeat says how the bridge stands with the world. It is safe for concurrent
// use.
func (b *Bridge) Heartbeat() Heartbeat {
	b.pulse.mu.Lock()
	defer b.pulse.mu.Unlock()
	p := b.pulse.Heartbeat
	p.Server = maps.Clone(p.Server)
	return p
}

// heartbeat is a Pulse that the pumps keep.
type heartbeat struct {
	mu sync.Mutex
	Heartbeat
}

// slurm notes whether Slurm answered.
func (p *heartbeat) slurm(now time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Slurm, p.SlurmSince, p.SlurmNext = "", time.Time{}, time.Time{}
	if err == nil {
		p.Observed = now
		return
	}
	p.Slurm = err.Error()
	var away *observer.AwayError
	if errors.As(err, &away) {
		p.Slurm, p.SlurmSince, p.SlurmNext = away.Err.Error(), away.Since, away.Next
	}
}

// server notes whether the server answered a queue's check-in.
func (p *heartbeat) server(queue string, err error) {
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
func (p *heartbeat) low(low string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Low = low
}
