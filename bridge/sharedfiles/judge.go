package sharedfiles

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// needs are the needs of the ledger's rows and of the jobs in Slurm.
type needs struct {
	bridge string
	phases map[string]plan.Phase // of all rows
	jobs   map[string]bool       // the bundles that have a job
	// beginnings are the bundles' digits in the names of the jobs that Slurm shows.
	beginnings map[string]bool
	// oldest is the time at which the first live job was submitted, as far as the ledger knows; zero for none.
	// unknown is set if the ledger does not know of all live jobs.
	oldest  time.Time
	unknown bool
	// unlisted is set if a task of an array, or a pack, of this bridge lives whose bundles are not known.
	unlisted bool
	// listed has the submissions of lists of members.
	listed map[string]bool
}

// needs asks Slurm first: a job that is submitted after its answer has a row when the ledger is
// read.
func (s *Sweeper) needs(ctx context.Context) (*needs, error) {
	now := s.Now()
	snapshot, err := s.Scheduler.Observe(ctx, now)
	if err != nil {
		return nil, err
	}
	n := &needs{jobs: map[string]bool{}, beginnings: map[string]bool{}}
	if n.bridge, err = s.Ledger.Bridge(ctx); err != nil {
		return nil, err
	}
	generation, err := s.Ledger.Generation(ctx)
	if err != nil {
		return nil, err
	}
	noRow, noTask := func(string) *plan.Row { return nil }, func(int64, sbatch.JobID) bool { return false } // only the jobs tell whether the ledger is old
	if _, _, err := (plan.Policy{Bridge: n.bridge}).OrphanJobs(now, snapshot, noRow, noTask, generation, nil); err != nil {
		return nil, err
	}
	flying := map[plan.SubmissionName]bool{}
	err = s.Ledger.EachUnfinished(ctx, func(r plan.Row) {
		if !r.InFlight() {
			return
		}
		flying[r.SubmissionName] = true
		if at := r.SubmittedAt; !at.IsZero() && (n.oldest.IsZero() || at.Before(n.oldest)) {
			n.oldest = at
		}
	})
	if err != nil {
		return nil, err
	}
	if n.phases, err = s.Ledger.Phases(ctx); err != nil {
		return nil, err
	}
	for _, j := range snapshot.Jobs {
		n.beginnings[digits(j.Name)] = true
		stamp, stamped := plan.StampOf(j)
		n.jobs[stamp.Bundle] = n.jobs[stamp.Bundle] || stamped // a job has the same needs as a row
		ours := n.own(j.Name) || stamp.Bridge == n.bridge
		n.unknown = n.unknown || ours && !j.State.Ended() && !flying[plan.SubmissionName(j.Name)]
	}
	if err := n.addTasks(s.Disk, snapshot.Jobs); err != nil {
		return nil, err
	}
	return n, nil
}

// addTasks adds the bundles of the tasks of arrays and of packs: the lists of members tell them.
func (n *needs) addTasks(disk Files, jobs []sbatch.Job) error {
	lists, err := disk.Members(func(string) bool { return true })
	if err != nil {
		return err
	}
	n.listed = map[string]bool{}
	for _, list := range lists {
		n.listed[list.Submission] = true
	}
	arrays := map[string][]sbatch.Job{} // by submission
	for _, j := range jobs {
		if submission, ok := n.arrayOf(j); ok {
			arrays[submission] = append(arrays[submission], j)
		}
	}
	for _, list := range lists {
		for _, j := range arrays[list.Submission] {
			for _, m := range membersOf(j, list.Attempts) {
				n.jobs[m.Bundle] = true
			}
		}
	}
	for submission, of := range arrays {
		bridge, _, _ := strings.Cut(submission, ".")
		lives := slices.ContainsFunc(of, func(j sbatch.Job) bool { return !j.State.Ended() })
		n.unlisted = n.unlisted || bridge == n.bridge && lives && !n.listed[submission]
	}
	return nil
}

// arrayOf returns the submission of a job of an array, or of a pack. If the site has rewritten its comment, the name tells it.
func (n *needs) arrayOf(j sbatch.Job) (submission string, ok bool) {
	if stamp, ok := plan.SharedStampOf(j); ok {
		return stamp.Submission(), true
	}
	_, end, _ := strings.Cut(strings.TrimSuffix(j.Name, "-"+n.bridge), ".") // attempt-generation
	_, generation, _ := strings.Cut(end, "-")
	submission = n.bridge + "." + generation
	_, _, isTask := j.ID.ArrayTask()
	return submission, (isTask || n.listed[submission]) && n.own(j.Name)
}

// membersOf returns the members of a job: one of a task, and all of a pack, or of an array that Slurm shows as one job.
func membersOf(j sbatch.Job, members []spool.Member) []spool.Member {
	_, index, isTask := j.ID.ArrayTask()
	switch {
	case !isTask:
		return members
	case index < len(members):
		return members[index : index+1]
	}
	return nil
}

// row reports whether a bundle has a row, or a job.
func (n *needs) row(bundle string) bool {
	return n.phases[bundle] != "" || n.jobs[bundle] || bundle != "" && n.beginnings[bundle[min(2, len(bundle)):min(14, len(bundle))]]
}

// digits are the digits of a bundle's UUID in the name of its job (plan.Policy.Batch).
func digits(name string) string {
	head, _, ok := strings.Cut(name, ".")
	if !ok || !strings.HasPrefix(name, "cl-") {
		return ""
	}
	return head[strings.LastIndexByte(head, '-')+1:]
}

// own reports whether this bridge made a submission.
func (n *needs) own(name string) bool {
	return strings.HasPrefix(name, "cl-") && strings.HasSuffix(name, "-"+n.bridge)
}

// judge decides about a leftover. It is false for one that is needed, or too young.
func (n *needs) judge(l spool.Leftover, now time.Time, grace time.Duration, all []spool.Leftover) (Finding, bool) {
	f := Finding{Kind: l.Kind, Path: l.Path, Bundle: l.Bundle, Touched: l.Touched, leftover: l}
	age := now.Sub(l.Touched)
	if l.Kind == spool.LeftTrash {
		f.Reason = "a sweep that was cut short has put it aside"
		if n.row(l.Bundle) {
			f.Reason, f.Kept, f.back = f.Reason+"; its bundle needs it and gets it back", true, true
		}
		return f, true
	}
	if age < grace || n.row(l.Bundle) {
		return f, false
	}
	since := "; last changed " + codalab.FormatDuration(age) + " ago"
	switch l.Kind {
	case spool.LeftRun, spool.LeftRecords:
		if n.unlisted { // it may be that task's
			return f, false
		}
		if f.Kept, f.Reason = n.foreign(l); !f.Kept {
			f.Reason = "the ledger has no such bundle, and Slurm has no job of it"
		}
	case spool.LeftWorker:
		if n.mayRun(l, all) {
			return f, false
		}
		f.Reason = "no bridge uses this version of cl-worker, and no job was submitted with it"
	case spool.LeftRing:
		f.Reason = "no row waits for this bundle's doorbell"
	case spool.LeftTemporary:
		f.Reason = "its writer was cut short"
	case spool.LeftTrash: // above
	}
	f.Reason += since
	return f, true
}

// foreign reports whether a leftover is kept because it is not known to be this bridge's.
func (n *needs) foreign(l spool.Leftover) (kept bool, reason string) {
	if len(l.Bridges) == 0 {
		return true, "nothing says which bridge made it"
	}
	if i := slices.IndexFunc(l.Bridges, n.other); i >= 0 {
		return true, fmt.Sprintf("another bridge (%s) made it", l.Bridges[i])
	}
	return false, ""
}

// other reports whether an id is another bridge's.
func (n *needs) other(bridge string) bool { return bridge != n.bridge }

// clockSlack covers the clocks of the disk and of the bridge, which may differ.
const clockSlack = 24 * time.Hour

// mayRun reports whether a job may run a worker's program now or later: a job that was submitted
// while the program was in use. Nothing is known of another bridge's jobs.
func (n *needs) mayRun(worker spool.Leftover, all []spool.Leftover) bool {
	if n.unknown || !n.oldest.IsZero() && n.oldest.Before(worker.Touched.Add(clockSlack)) {
		return true
	}
	return slices.ContainsFunc(all, func(l spool.Leftover) bool {
		return slices.ContainsFunc(l.Bridges, n.other)
	})
}
