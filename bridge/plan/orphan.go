package plan

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// ErrOutdated is returned for a ledger that is older than a job in Slurm: it was restored from
// a copy, and does not know what the bridge did after that.
var ErrOutdated = errors.New("the ledger is older than Slurm's jobs")

// OrphanJobs are the live jobs of a bridge that have no row, and since when they have been
// seen.
type OrphanJobs map[sbatch.JobID]time.Time

// OrphanJobs finds the bridge's own live jobs in a snapshot for which the ledger has no row. It knows
// them by their comments: they may have been renamed. row returns a bundle's row, nil for none. before
// is the result of the last call. Orphans that have been seen for OrphanGrace are overdue, and are to
// be cancelled if CancelOrphans allows it.
//
// An orphan that its bundle's row may take up (News.Found) is not overdue.
//
// generation is the ledger's: the highest number of a submission that it ever knew. A job with a
// higher number, live or ended, means that the ledger is old. OrphanJobs then returns an error that wraps
// ErrOutdated, and the caller must not submit, cancel or remove anything. It finds no job whose comment
// the site has rewritten.
func (p Policy) OrphanJobs(now time.Time, s sbatch.Snapshot, row func(bundle string) *Row, generation int64, before OrphanJobs) (orphans OrphanJobs, overdue []sbatch.Job, err error) {
	for _, j := range s.Jobs {
		stamp, ok := StampOf(j)
		if !ok || stamp.Bridge != p.Bridge {
			continue
		}
		if stamp.Generation > generation {
			return before, nil, fmt.Errorf("job %s is submission %d of bundle %s, and the ledger's last one is %d: %w",
				j.ID, stamp.Generation, stamp.Bundle, generation, ErrOutdated)
		}
		r := row(stamp.Bundle)
		if j.State.Ended() || r != nil && r.InFlight() && r.Stamped(j, stamp) {
			continue
		}
		since, ok := before[j.ID]
		if !ok || since.After(now) {
			since = now
		}
		if orphans == nil {
			orphans = OrphanJobs{}
		}
		orphans[j.ID] = since
		if p.CancelOrphans && (r == nil || !r.MayTakeUp(stamp)) && now.Sub(since) >= p.OrphanGrace {
			overdue = append(overdue, j)
		}
	}
	return orphans, overdue, nil
}

// Stamped reports whether a job with a stamp of the row's bundle is the row's attempt's. Of the job that
// began the attempt the generation does not matter: a bridge with an old copy of its ledger may have
// submitted the attempt again.
func (r *Row) Stamped(j sbatch.Job, s Stamp) bool {
	return r.Begun != nil && r.Begun.Job == j.ID.String() || s.Generation == r.Generation
}

// MayTakeUp reports whether the row waits to be submitted, and a job with this stamp is a later attempt
// of its bundle, of which the ledger does not know.
func (r *Row) MayTakeUp(s Stamp) bool {
	return r.Phase == Staging && r.Attempt.Number < s.Attempt && (s.Identity == "" || s.Identity == r.Run.Identity().Digest())
}

// commentValue reads a value of a comment that Request wrote; empty for other comments.
func commentValue(comment, key string) string {
	rest, ok := strings.CutPrefix(comment, "codalab ")
	for ok {
		var field string
		field, rest, ok = strings.Cut(rest, " ")
		if name, value, _ := strings.Cut(field, "="); name == key {
			return value
		}
	}
	return ""
}
