package sweep

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// needs is what is needed of the disk: by the ledger's rows, and by the jobs in
// Slurm.
type needs struct {
	bridge string
	rows   map[string]bool
	// jobs are the jobs that Slurm shows, marks their names and beginnings the
	// bundles' digits in those.
	jobs       []sbatch.Job
	marks      map[string]bool
	beginnings map[string]bool
	// oldest is when the first of the jobs that live, as far as the ledger
	// knows, was submitted; zero for none. unknown is set where the ledger does
	// not know of all of them.
	oldest  time.Time
	unknown bool
}

// needs asks Slurm first: what is submitted after its answer has a row by then.
func (s *Sweeper) needs(ctx context.Context) (*needs, error) {
	now := s.Now()
	snapshot, err := s.Scheduler.Observe(ctx, now)
	if err != nil {
		return nil, err
	}
	n := &needs{jobs: snapshot.Jobs, marks: map[string]bool{}, beginnings: map[string]bool{}}
	if n.bridge, err = s.Ledger.Bridge(ctx); err != nil {
		return nil, err
	}
	generation, err := s.Ledger.Generation(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := s.Ledger.Rows(ctx)
	if err != nil {
		return nil, err
	}
	n.rows = bundles(rows)
	flying := map[plan.SubmissionName]bool{}
	for _, r := range rows {
		if !r.InFlight() {
			continue
		}
		flying[r.SubmissionName] = true
		if at := r.Submitted; !at.IsZero() && (n.oldest.IsZero() || at.Before(n.oldest)) {
			n.oldest = at
		}
	}
	policy := plan.Policy{Bridge: n.bridge}
	known := func(m plan.SubmissionName) bool { return flying[m] }
	if _, _, err := policy.OrphanJobs(now, snapshot, known, func(plan.Stamp) bool { return false }, generation, nil); err != nil {
		return nil, err
	}
	for _, j := range snapshot.Jobs {
		n.marks[j.Name] = true
		n.beginnings[digits(j.Name)] = true
		stamp, stamped := plan.StampOf(j)
		n.rows[stamp.Bundle] = n.rows[stamp.Bundle] || stamped // a job needs as much as a row
		ours := n.own(j.Name) || stamp.Bridge == n.bridge
		n.unknown = n.unknown || ours && !j.State.Ended() && !flying[plan.SubmissionName(j.Name)]
	}
	return n, nil
}

func bundles(rows []plan.Row) map[string]bool {
	has := make(map[string]bool, len(rows))
	for _, r := range rows {
		has[r.Bundle] = true
	}
	return has
}

// row says whether a bundle has a row, or a job.
func (n *needs) row(bundle string) bool {
	return n.rows[bundle] || bundle != "" && n.beginnings[bundle[min(2, len(bundle)):min(14, len(bundle))]]
}

// digits are those of a bundle's UUID that are in the name of its job:
// plan.Policy.Batch.
func digits(mark string) string {
	head, _, ok := strings.Cut(mark, ".")
	if !ok || !strings.HasPrefix(mark, "cl-") {
		return ""
	}
	return head[strings.LastIndexByte(head, '-')+1:]
}

// own says whether this bridge made a submission.
func (n *needs) own(mark string) bool {
	return strings.HasPrefix(mark, "cl-") && strings.HasSuffix(mark, "-"+n.bridge)
}

// judge says what becomes of a leftover. It is false for one that is needed, or
// too young.
func (n *needs) judge(l spool.Leftover, now time.Time, grace time.Duration, all []spool.Leftover) (Finding, bool) {
	f := Finding{Kind: l.Kind, Path: l.Path, Bundle: l.Bundle, Touched: l.Touched, leftover: l}
	age := now.Sub(l.Touched)
	if l.Kind == spool.LeftTrash {
		f.Reason = "a sweep has put it aside, and was cut short"
		if n.row(l.Bundle) {
			f.Reason, f.Kept, f.back = f.Reason+"; its bundle needs it, and gets it back", true, true
		}
		return f, true
	}
	if age < grace || n.row(l.Bundle) {
		return f, false
	}
	for _, mark := range l.SubmissionNames {
		if n.marks[mark] {
			return f, false
		}
	}
	since := "; last changed " + codalab.FormatDuration(age) + " ago"
	switch l.Kind {
	case spool.LeftRun, spool.LeftRecords, spool.LeftMembers:
		f.Kept, f.Reason = n.whose(l)
		if !f.Kept {
			f.Reason = "the ledger has no such bundle, and Slurm no job of it"
		}
	case spool.LeftWorker:
		if n.mayRun(l, all) {
			return f, false
		}
		f.Reason = "no bridge uses this version of cl-worker, and no job was submitted with it"
	case spool.LeftRing:
		f.Reason = "nobody waits for this bundle's doorbell"
	case spool.LeftTemporary:
		f.Reason = "whoever wrote it was cut short"
	case spool.LeftTrash: // above
	}
	f.Reason += since
	return f, true
}

// whose says whether a leftover is to be kept because it is another bridge's,
// or nobody's.
func (n *needs) whose(l spool.Leftover) (kept bool, reason string) {
	if len(l.SubmissionNames) == 0 || l.Bundle == "" {
		return true, "nothing says whose it is"
	}
	if i := slices.IndexFunc(l.SubmissionNames, func(m string) bool { return !n.own(m) }); i >= 0 {
		return true, fmt.Sprintf("submission %s is another bridge's", l.SubmissionNames[i])
	}
	return false, ""
}

// clockSlack covers the clocks of the disk and of the bridge, which need not
// agree.
const clockSlack = 24 * time.Hour

// mayRun says whether a job may be about to run a worker's program, or runs it: one
// that was submitted when it was in use. Of another bridge's jobs nothing is
// known.
func (n *needs) mayRun(worker spool.Leftover, all []spool.Leftover) bool {
	if n.unknown || !n.oldest.IsZero() && n.oldest.Before(worker.Touched.Add(clockSlack)) {
		return true
	}
	return slices.ContainsFunc(all, func(l spool.Leftover) bool {
		return slices.ContainsFunc(l.SubmissionNames, func(m string) bool { return !n.own(m) })
	})
}
