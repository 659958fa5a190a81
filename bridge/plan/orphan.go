package plan

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// ErrOutdated is returned for a ledger that is older than a job in Slurm: it was restored from a copy, and
// lacks the bridge's later work.
var ErrOutdated = errors.New("the ledger is older than Slurm's jobs")

// OrphanJobs maps the bridge's live jobs that have no row to the time at which they were first seen.
type OrphanJobs map[sbatch.JobID]time.Time

// OrphanJobs finds the bridge's live jobs in a snapshot for which the ledger has no row. It recognizes them
// by their comments, because they may have been renamed. row returns a bundle's row, nil for none. before
// is the result of the previous call. hasJob reports whether a row in flight has a task of an array of that generation, is in a pack of
// it, or knows that job. An orphan is overdue once it has been seen for OrphanGrace; the
// caller cancels it. If CancelOrphans is not set, none is overdue.
//
// An orphan that its bundle's row may take up (News.Found) is not overdue. The caller decides this for an array and a
// pack, whose list of members tells the bundles.
//
// generation is the ledger's: the highest number of a submission that it has given. A job with a higher
// number, live or ended, proves that the ledger is old. OrphanJobs then returns an error that wraps
// ErrOutdated, and the caller must not submit, cancel or remove anything. OrphanJobs does not find jobs
// whose comment the site has rewritten.
func (p Policy) OrphanJobs(now time.Time, s sbatch.Snapshot, row func(bundle string) *Row, hasJob func(generation int64, id sbatch.JobID) bool, generation int64, before OrphanJobs) (orphans OrphanJobs, overdue []sbatch.Job, err error) {
	for _, j := range s.Jobs {
		stamp, ok := StampOf(j)
		shared, isShared := SharedStampOf(j)
		if isShared {
			stamp = Stamp{Bridge: shared.Bridge, Generation: shared.Generation}
		}
		if !ok && !isShared || stamp.Bridge != p.Bridge {
			continue
		}
		if stamp.Generation > generation {
			return before, nil, fmt.Errorf("job %s is submission %d of bundle %s, and the ledger's last one is %d: %w",
				j.ID, stamp.Generation, cmp.Or(stamp.Bundle, "several bundles"), generation, ErrOutdated)
		}
		var r *Row
		if !isShared {
			r = row(stamp.Bundle)
		}
		if j.State.Ended() || isShared && hasJob(stamp.Generation, j.ID) || r != nil && r.InFlight() && r.Stamped(j, stamp) {
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

// Stamped reports whether a job with a stamp of the row's bundle belongs to the row's attempt. The
// generation of the job that began the attempt does not matter: a bridge with an old copy of its ledger
// may have submitted the attempt again.
func (r *Row) Stamped(j sbatch.Job, s Stamp) bool {
	return r.Begun != nil && r.Begun.Job == j.ID.String() || s.Generation == r.Generation
}

// MayTakeUp reports whether the row waits to be submitted and the stamp is of a later attempt of its
// bundle, which the ledger does not know.
func (r *Row) MayTakeUp(s Stamp) bool {
	return r.Phase == Staging && r.Attempt.Number < s.Attempt && (s.Identity == "" || s.Identity == r.Run.Identity().Digest())
}

// commentValue returns a value from a comment that Request wrote; empty for other comments. What a site's wrapper prints
// after squeue's answer follows the last comment, in lines of its own.
func commentValue(comment, key string) string {
	if !strings.HasPrefix(comment, "codalab ") {
		return ""
	}
	comment, _, _ = strings.Cut(comment, "\n")
	_, rest, _ := strings.Cut(comment, " "+key+"=")
	value, _, _ := strings.Cut(rest, " ")
	return value
}
