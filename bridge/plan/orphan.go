package plan

import (
	"errors"
	"fmt"
	"strconv"
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

// OrphanJobs finds the bridge's own live jobs in a snapshot for which the ledger has no row.
// known reports whether the row of a submission may have a job. A job that was renamed is
// recognized by its comment. before is the result of the last call. Orphans that have been seen
// for OrphanGrace are overdue, and are to be cancelled if CancelOrphans allows it.
//
// An orphan whose bundle has a row that waits for its submission is for that row to adopt
// (News.Found), and not overdue; waits reports that.
//
// generation is the ledger's: the highest number of a submission that it ever knew. A job
// without a row and with a higher number, live or ended, means that the ledger is old: then the
// error wraps ErrOutdated, and nothing may be touched. A job whose comment the site has
// rewritten is left alone.
func (p Policy) OrphanJobs(now time.Time, s sbatch.Snapshot, known func(SubmissionName) bool, waits func(Stamp) bool, generation int64, before OrphanJobs) (orphans OrphanJobs, overdue []sbatch.Job, err error) {
	for _, j := range s.Jobs {
		if known(p.SubmissionNameOf(j)) || commentValue(j.Comment, "bridge") != p.Bridge {
			continue
		}
		stamp, ok := StampOf(j)
		switch {
		case !ok:
			continue
		case stamp.Generation > generation:
			return before, nil, fmt.Errorf("job %s is submission %d of bundle %s, and the ledger's last one is %d: %w",
				j.ID, stamp.Generation, stamp.Bundle, generation, ErrOutdated)
		case j.State.Ended():
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
		if p.CancelOrphans && !waits(stamp) && now.Sub(since) >= p.OrphanGrace {
			overdue = append(overdue, j)
		}
	}
	return orphans, overdue, nil
}

// SubmissionNameOf is the submission name of a job: its name or, since jobs can be renamed, the
// one in its comment if the comment is this bridge's.
func (p Policy) SubmissionNameOf(j sbatch.Job) SubmissionName {
	if strings.HasPrefix(j.Name, "cl-") && strings.HasSuffix(j.Name, "-"+p.Bridge) {
		return SubmissionName(j.Name)
	}
	if commentValue(j.Comment, "bridge") != p.Bridge {
		return SubmissionName(j.Name)
	}
	attempt, err := strconv.Atoi(commentValue(j.Comment, "attempt"))
	if err != nil {
		return SubmissionName(j.Name)
	}
	return p.submissionName(Row{Bundle: commentValue(j.Comment, "bundle"), Attempt: Attempt{Number: attempt}})
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
