package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Waiting is a staged run that waits for a worker.
type Waiting struct {
	UUID, OwnerID string
	Resources     codalab.Resources
	// AsksDisk and AsksTime are set if the run itself requests them.
	AsksDisk, AsksTime bool
	// Parents has the uuid and the path of each dependency.
	Parents map[[2]string]bool
	// Priority orders the runs of one owner: higher first.
	Priority int64
	Created  time.Time
	// Status is the present staged_status.
	Status string
	// Secrets is set if the run names secrets.
	Secrets bool
	// Sweep is the uuid of the run's sweep; empty if it belongs to none. At most MaxParallel of the owner's runs of the
	// sweep may be on workers; 0 is no bound.
	Sweep       string
	MaxParallel int
}

// NewWaiting returns a staged run that waits for a worker with these resources.
func NewWaiting(b Bundle, resources codalab.Resources) *Waiting {
	w := &Waiting{
		UUID: b.UUID, OwnerID: b.OwnerID, Resources: resources, Parents: map[[2]string]bool{},
		AsksDisk: b.Metadata.String("request_disk") != "", AsksTime: b.Metadata.String("request_time") != "",
		Priority: b.Metadata.Int("request_priority"), Created: b.Created, Status: b.Metadata.String("staged_status"),
		Secrets: len(b.Metadata.Strings(codalab.SecretsKey)) > 0, Sweep: b.Metadata.Sweep(),
	}
	for _, d := range b.Dependencies {
		w.Parents[[2]string{d.ParentUUID, d.ParentPath}] = true
	}
	return w
}

// Match decides about waiting runs, by uuid, in fair order. capacities are those of all workers, counts the
// runs that workers have, and quotas those of the runs' owners, by id.
func Match(site Site, runs map[string]*Waiting, capacities []Capacity, counts RunCounts, quotas map[string]Quota) Decisions {
	d := Decisions{Workers: map[string]Worker{}, Failed: map[string]string{}, Status: map[string]string{}}
	places := newPlaces(capacities, counts, quotas)
	for run := range fairOrder(runs, places.counts) {
		if owner, known := quotas[run.OwnerID]; known {
			if why := site.Refuses(run, owner); why != "" {
				d.Failed[run.UUID] = why
				d.Order = append(d.Order, run.UUID)
				continue
			}
		}
		var capacity *Capacity
		why := places.sweepFull(run)
		if why == "" {
			capacity, why = places.choose(run)
		}
		switch {
		case capacity != nil:
			places.give(capacity, run)
			d.Workers[run.UUID] = capacity.Worker
		case why != run.Status:
			d.Status[run.UUID] = why
		default:
			continue
		}
		d.Order = append(d.Order, run.UUID)
	}
	return d
}

// Decisions has the decisions of Match about runs, by uuid.
type Decisions struct {
	// Order lists the runs about which there is something to write. Workers get their messages in it.
	Order   []string
	Workers map[string]Worker // the worker to which the run goes
	Failed  map[string]string // the reason for which the run fails
	Status  map[string]string // the new staged_status of a run that waits
}

// Apply applies the decision about a run to it, unless it has left state staged.
func (d Decisions) Apply(b Bundle, now time.Time) Bundle {
	if b.State != codalab.StateStaged {
		return b
	}
	if worker, ok := d.Workers[b.UUID]; ok {
		return b.Assign(worker, now)
	}
	if why := d.Failed[b.UUID]; why != "" {
		return b.Fail(why)
	}
	if status, ok := d.Status[b.UUID]; ok {
		b = b.own()
		b.Metadata["staged_status"] = status
	}
	return b
}
