// Package pins names the holders of a cache's pins and finds those that are over, so that a bridge can trim its
// cache while bundles are staged.
package pins

import (
	"context"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// RowHolder returns the holder for a bundle's row of a bridge. Other holders of the cache's pins
// are Slurm jobs and persons.
func RowHolder(bridge, bundle string) cache.Holder {
	return cache.Holder("row-" + bridge + "-" + bundle)
}

// JobHolder returns the holder for a Slurm job of a user.
func JobHolder(user, job string) cache.Holder { return cache.Holder("job-" + user + "-" + job) }

// PersonHolder returns the holder for a user that keeps an entry by hand.
func PersonHolder(user string) cache.Holder { return cache.Holder("user-" + user) }

// RowOf returns the bridge and the bundle of a holder that is a row.
func RowOf(h cache.Holder) (bridge, bundle string, ok bool) {
	rest, ok := strings.CutPrefix(string(h), "row-")
	bridge, bundle, _ = strings.Cut(rest, "-")
	return bridge, bundle, ok && codalab.IsUUID(bundle)
}

// Judge finds the holders that are over, for the cache of one user.
type Judge struct {
	Ledger *ledger.Reader
	// Observe lists this user's jobs; nil where Slurm cannot be asked.
	Observe func(ctx context.Context, now time.Time) (sbatch.Snapshot, error)
	Now     func() time.Time
	// Ready reports whether the ledger is known to be up to date. An old copy would
	// judge wrongly. Nil means that the caller does not ask.
	Ready func() bool
	// Neighbours judges the rows of other bridges; nil where no others use the cache.
	Neighbours *Neighbours
}

// Over returns the holders that are over: rows of this ledger that have left the phases
// in which they need inputs, rows that the ledger has forgotten, and jobs of this user
// that have ended. It does not judge a row that the ledger never had, because the ledger
// may be an old copy.
func (j Judge) Over(ctx context.Context, all []cache.Holder) (map[cache.Holder]bool, error) {
	over := map[cache.Holder]bool{}
	if j.Ready != nil && !j.Ready() {
		return over, nil
	}
	id, err := j.Ledger.Bridge(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	me, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("find this user's name: %w", err)
	}
	rows, jobs := map[string]cache.Holder{}, map[string]cache.Holder{}
	for _, h := range all {
		if bundle, ok := strings.CutPrefix(string(h), string(RowHolder(id, ""))); ok {
			rows[bundle] = h
		}
		if job, ok := strings.CutPrefix(string(h), string(JobHolder(me.Username, ""))); ok {
			jobs[job] = h
		}
	}
	if err := j.judgeRows(ctx, rows, over); err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	if err := j.judgeJobs(ctx, jobs, over); err != nil {
		return nil, err
	}
	if j.Neighbours != nil {
		others := slices.DeleteFunc(slices.Clone(all), func(h cache.Holder) bool { return strings.HasPrefix(string(h), string(RowHolder(id, ""))) })
		if err := j.Neighbours.judge(others, over); err != nil {
			return nil, err
		}
	}
	return over, nil
}

func (j Judge) judgeRows(ctx context.Context, holders map[string]cache.Holder, over map[cache.Holder]bool) error {
	if len(holders) == 0 {
		return nil
	}
	phases, err := j.Ledger.Phases(ctx)
	if err != nil {
		return err
	}
	for bundle, h := range holders {
		if phase, ok := phases[bundle]; ok {
			if phase == plan.Finalizing || phase == plan.Done {
				over[h] = true
			}
			continue
		}
		history, err := j.Ledger.History(ctx, bundle)
		if err != nil {
			return err
		}
		if len(history) > 0 {
			over[h] = true
		}
	}
	return nil
}

func (j Judge) judgeJobs(ctx context.Context, holders map[string]cache.Holder, over map[cache.Holder]bool) error {
	if len(holders) == 0 || j.Observe == nil {
		return nil
	}
	snapshot, err := j.Observe(ctx, j.Now())
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
