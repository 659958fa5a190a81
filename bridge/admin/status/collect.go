package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/drain"
	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/spool"
)

// ErrNoBridge means that no bridge of a configuration has ever run.
var ErrNoBridge = errors.New("no bridge runs")

// Collect gathers the status of the bridge of a configuration. host is this host's name. Where
// the ledger is a file of another host, it returns what the bridge there wrote last.
func Collect(ctx context.Context, c config.Config, host string, now time.Time) (heartbeat.Status, error) {
	s := heartbeat.Status{Ledger: ledger.Name(c.Ledger)}
	var state lease.State
	leaseErr := diskspace.Answers(ctx, c.Shared)
	silent := new(diskspace.SilentError)
	s.Disk.Silent = errors.As(leaseErr, &silent)
	if leaseErr == nil {
		state, leaseErr = lease.Read(spool.Layout(c.Shared).BridgeDir())
	}
	r, err := ledger.OpenToRead(ctx, c.Ledger)
	if errors.Is(err, ledger.ErrAbsent) {
		if s.Disk.Silent {
			return s, silent
		}
		if leaseErr == nil && IsElsewhere(state.Holder, c, host) {
			return written(state, now)
		}
		return s, fmt.Errorf("%w: no bridge has made a ledger at %s yet", ErrNoBridge, s.Ledger)
	}
	if err != nil {
		return s, err
	}
	defer r.Close()
	if s.Bridge, err = r.Bridge(ctx); err != nil {
		return s, err
	}
	saved, err := r.Outline(ctx)
	if err != nil {
		return s, err
	}
	if s.Running, err = ledger.Locked(ctx, c.Ledger); err != nil {
		return s, err
	}
	addLease(&s, state, leaseErr, now)
	addDrains(&s, c)
	rows, done := make([]*plan.Row, len(saved.Rows)), map[string]int{}
	for i := range saved.Rows {
		rows[i] = &saved.Rows[i]
	}
	for _, queue := range saved.Done {
		done[queue]++
	}
	s.Add(c, rows, done)
	return s, nil
}

// MeasuresEnergy reports whether Slurm measures the energy of jobs, as the bridge of a configuration knew last; false if that
// is not known.
func MeasuresEnergy(ctx context.Context, c config.Config) bool {
	if diskspace.Answers(ctx, c.Shared) != nil {
		return false
	}
	state, err := lease.Read(spool.Layout(c.Shared).BridgeDir())
	var s heartbeat.Status
	return err == nil && json.Unmarshal(state.Document, &s) == nil && s.Last != nil && s.Last.Settings != nil && s.Last.Settings.Energy
}

// IsElsewhere reports whether a holder of the shared directory is the bridge of this
// configuration, with its ledger on the disk of another host.
func IsElsewhere(h lease.Holder, c config.Config, host string) bool {
	return h.Host != host && h.Ledger == ledger.Name(c.Ledger) && !sqldb.IsURL(c.Ledger)
}

// written returns the status that a bridge on another host wrote.
func written(state lease.State, now time.Time) (heartbeat.Status, error) {
	s := heartbeat.Status{Ledger: state.Holder.Ledger, Bridge: state.Holder.Bridge, Starting: true, Running: true, Queues: []heartbeat.Queue{}, Waits: []heartbeat.Wait{}}
	if state.Document != nil {
		s = heartbeat.Status{}
		if err := json.Unmarshal(state.Document, &s); err != nil {
			return s, fmt.Errorf("read what the bridge on %s wrote: %w", state.Holder.Host, err)
		}
		s.WrittenAt = s.Last.At
		if s.Old = s.Running && s.OldAt(now); s.Old {
			s.Holds = append([]string{heartbeat.OldSentence + "; \"cl-bridge status\" on " + state.Holder.Host + " says more."}, s.Holds...)
		}
	}
	return s, nil
}

// addDrains adds the operators' orders. If they cannot be read, it adds none: there is a sentence about the disk.
func addDrains(s *heartbeat.Status, c config.Config) {
	if s.Disk.Silent {
		return
	}
	if orders, err := drain.In(spool.Layout(c.Shared)).Read(false); err == nil {
		s.Drains = orders.List()
	}
}

// addLease adds what the lease of the shared directory shows.
func addLease(s *heartbeat.Status, state lease.State, err error, now time.Time) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case err == nil && state.Holder.Bridge != s.Bridge:
		if !state.Ended {
			s.Holds = append(s.Holds, fmt.Sprintf("The shared directory is held by %s.", state.Holder))
		}
	case err == nil && state.Document != nil:
		var d heartbeat.Status
		err = json.Unmarshal(state.Document, &d)
		s.Last = d.Last
	}
	if err != nil && !s.Disk.Silent { // of which there is a sentence
		s.Holds = append(s.Holds, fmt.Sprintf("The bridge's heartbeat cannot be read: %v.", err))
	}
	s.Starting = s.Running && err == nil && (s.Last == nil || !s.Last.Ended.IsZero())
	s.Old = s.Running && !s.Starting && s.OldAt(now)
}
