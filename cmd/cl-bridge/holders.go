package main

import (
	"context"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// rowHolder names a bundle's row of a bridge as a holder of cache entries.
func rowHolder(bridge, bundle string) cache.Holder {
	return cache.Holder("row-" + bridge + "-" + bundle)
}

// jobHolder names a job of a user's.
func jobHolder(user, job string) cache.Holder { return cache.Holder("job-" + user + "-" + job) }

// personHolder names a person who wants an entry kept.
func personHolder(user string) cache.Holder { return cache.Holder("user-" + user) }

// judge says which holders of cache entries are over.
type judge struct {
	ledger *ledger.Reader
	// observe lists this user's jobs; nil where Slurm is not asked.
	observe func(ctx context.Context, now time.Time) (sbatch.Snapshot, error)
	now     func() time.Time
	// ready says whether the ledger is known to be no old copy, which knows too
	// little; nil where nobody asks.
	ready func() bool
}

// over says which of some holders need nothing any more: rows of this ledger
// that have left the phases in which inputs are needed, or that it has forgotten,
// and this user's jobs that have ended. Of a row that the ledger never had
// nothing is said: the ledger may be an old copy.
func (j judge) over(ctx context.Context, holders []cache.Holder) (map[cache.Holder]bool, error) {
	over := map[cache.Holder]bool{}
	if j.ready != nil && !j.ready() {
		return over, nil
	}
	id, err := j.ledger.Bridge(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	rows := map[string]cache.Holder{}
	jobs := map[string]cache.Holder{}
	me, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("find this user's name: %w", err)
	}
	for _, h := range holders {
		if bundle, ok := strings.CutPrefix(string(h), string(rowHolder(id, ""))); ok {
			rows[bundle] = h
		}
		if job, ok := strings.CutPrefix(string(h), string(jobHolder(me.Username, ""))); ok {
			jobs[job] = h
		}
	}
	if err := j.rows(ctx, rows, over); err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	if err := j.jobs(ctx, jobs, over); err != nil {
		return nil, err
	}
	return over, nil
}

func (j judge) rows(ctx context.Context, holders map[string]cache.Holder, over map[cache.Holder]bool) error {
	if len(holders) == 0 {
		return nil
	}
	rows, err := j.ledger.Rows(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, r := range rows {
		there[r.Bundle] = true
		if h, ok := holders[r.Bundle]; ok && (r.Phase == plan.Finalizing || r.Phase == plan.Done) {
			over[h] = true
		}
	}
	for bundle, h := range holders {
		if there[bundle] {
			continue
		}
		history, err := j.ledger.History(ctx, bundle)
		if err != nil {
			return err
		}
		if len(history) > 0 {
			over[h] = true
		}
	}
	return nil
}

func (j judge) jobs(ctx context.Context, holders map[string]cache.Holder, over map[cache.Holder]bool) error {
	if len(holders) == 0 || j.observe == nil {
		return nil
	}
	snapshot, err := j.observe(ctx, j.now())
	if err != nil {
		return fmt.Errorf("ask for jobs that have cache entries pinned: %w", err)
	}
	alive := map[string]bool{}
	for _, job := range snapshot.Jobs {
		if !job.State.Ended() {
			alive[job.ID.String()] = true
		}
	}
	for job, h := range holders {
		over[h] = !alive[job]
	}
	return nil
}
