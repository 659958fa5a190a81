package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// ErrOutdated is returned for a ledger that is older than a job in Slurm: it
// was restored from a copy, and does not know what the bridge did since.
var ErrOutdated = errors.New("the ledger is older than Slurm's jobs")

// OrphanJobs are the live jobs of a bridge for which no row stands, by their ids,
// and since when they have been seen.
type OrphanJobs map[sbatch.JobID]time.Time

// OrphanJobs looks through a snapshot for the bridge's own live jobs for which
// nothing stands in the ledger: known says whether the row of a mark may have a
// job. One that was renamed is known by its comment. What was seen before, it
// hands on in what it returns. Those that have been seen for StrayGrace are
// overdue, and are to be cancelled where CancelStrays allows it.
//
// One whose bundle has a row that waits for its submission is the row's to take
// up (News.Found), and not overdue while it does; waits says so.
//
// generation is the ledger's: the highest number of a submission that it has
// ever known. A job without a row and of a higher number, ended or not, means
// that the ledger is old, and an error that wraps ErrOutdated: then nothing may
// be touched. A job whose comment a site has rewritten is left alone.
func (p Policy) OrphanJobs(now time.Time, s sbatch.Snapshot, known func(SubmissionName) bool, waits func(Stamp) bool, generation int64, before OrphanJobs) (strays OrphanJobs, overdue []sbatch.Job, err error) {
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
		if strays == nil {
			strays = OrphanJobs{}
		}
		strays[j.ID] = since
		if p.CancelOrphans && !waits(stamp) && now.Sub(since) >= p.OrphanGrace {
			overdue = append(overdue, j)
		}
	}
	return strays, overdue, nil
}

// SubmissionNameOf is the mark of a job: its name or, as jobs can be renamed, what its
// comment says where that is this bridge's.
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
	return p.submissionName(Row{Bundle: commentValue(j.Comment, "bundle"), Attempt: attempt})
}

// commentValue reads a value of the comment that Request writes; empty when it
// is not one of those.
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
