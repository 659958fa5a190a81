package bridge

import (
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// starter chooses the wanted effects that are started now. At most one of a kind runs for an attempt of a
// bundle. Only Step uses it, and the start of effects after it.
type starter struct {
	rows    *rows
	rules   *rules
	jobs    *shownJobs
	pace    *pace
	contact *contact

	active activeEffects
	held   []plan.Effect // begun effects that wait: for a snapshot, the pace, or a command that runs
}

// stillWanted returns the held effects that their rows still want, and drops the others.
func (s *starter) stillWanted() []plan.Effect {
	var wanted []plan.Effect
	for _, e := range s.held {
		row, ok := s.wants(e)
		if !ok {
			s.active.end(e)
			continue
		}
		e.Row = row
		wanted = append(wanted, e)
	}
	return wanted
}

// wants reports whether a held effect is still wanted, and returns its row as it is now.
func (s *starter) wants(e plan.Effect) (row *plan.Row, ok bool) {
	switch {
	case e.Row.Bundle == "": // an orphan job has no row
		_, ok = s.jobs.orphans[e.Row.Job.ID]
		return e.Row, ok
	case e.Submission != nil:
		return e.Row, s.isAwaited(e.Submission.Name)
	}
	r := s.rows.get(e.Row.Bundle)
	ok = r != nil && r.Phase == e.Row.Phase && r.Attempt.Number == e.Row.Attempt.Number && (e.Kind != plan.Cancel || r.CancelsJob())
	return r, ok
}

// isAwaited reports whether a row still waits for a submission that rows share.
func (s *starter) isAwaited(name plan.SubmissionName) bool {
	for _, e := range s.rows.shared[name] {
		if e.row.WantsShared() {
			return true
		}
	}
	return false
}

// startNow returns the effects that may be started now, and holds the others. Effects that one
// command of Slurm can do for many rows become one effect, and so do the questions of the members of a pack about it.
func (s *starter) startNow(now time.Time, wanted []plan.Effect) []plan.Effect {
	s.held = nil
	var started []plan.Effect
	calls := map[plan.Kind]int{} // by kind, the place in started of its command
	cancelled := cancels{}
	asked := map[plan.SubmissionName]int{} // by pack, the place in started of its question
	for _, e := range wanted {
		at, begun := calls[e.Kind]
		question, isAsked := asked[e.Row.SubmissionName]
		switch ofPack := e.Kind == plan.AskQueue && e.Row.Pack; {
		case ofPack && isAsked:
			started[question].More = append(started[question].More, e.Row)
		case ofPack:
			asked[e.Row.SubmissionName] = len(started)
			started = append(started, e)
		case e.Kind == plan.Cancel && s.jobs.mayBeAnothers(e.Row, s.rows, s.rules.SubmitGrace): // the row hears of the snapshot, and may want it again
			s.active.end(e)
		case e.Kind == plan.Cancel && !s.jobs.has(e.Row.Job.ID): // the next snapshot does, or proves that it is gone
			s.held = append(s.held, e)
		case begun && e.Kind == plan.Cancel && cancelled.add(e.Row.Job.ID, s.pace.mostCancels()),
			begun && e.Kind != plan.Cancel && len(started[at].More)+1 < mostInOneCall:
			started[at].More = append(started[at].More, e.Row)
		case begun || !s.mayStart(now, e):
			s.held = append(s.held, e)
		default:
			if forManyRows(e.Kind) {
				calls[e.Kind] = len(started)
				s.active.calls[e.Kind] = true
			}
			if e.Kind == plan.Cancel {
				cancelled.add(e.Row.Job.ID, s.pace.mostCancels())
			}
			started = append(started, e)
		}
	}
	return started
}

// mostInOneCall bounds the rows for which one command of Slurm is run, where all tasks of an array that scancel ends count as one:
// the length of its command line, and the work of the controller or the database at a time. mostTasksInOneCall bounds those tasks.
const (
	mostInOneCall      = 100
	mostTasksInOneCall = 10_000
)

// cancels are the jobs that one scancel ends.
type cancels struct {
	requests map[sbatch.JobID]bool // single jobs, and arrays of tasks
	jobs     int
}

// add adds a job. It returns false, and adds none, if scancel would cost more than most requests, or end too many tasks.
func (c *cancels) add(id sbatch.JobID, most int) bool {
	request, _, _ := id.ArrayTask()
	if c.jobs >= mostTasksInOneCall || !c.requests[request] && len(c.requests) >= most {
		return false
	}
	if c.requests == nil {
		c.requests = map[sbatch.JobID]bool{}
	}
	c.requests[request] = true
	c.jobs++
	return true
}

// forManyRows reports whether one command of Slurm does an effect of a kind for many rows. One such
// command runs at a time, so that the next one serves all rows that want one until then.
func forManyRows(k plan.Kind) bool { return k == plan.Cancel || k == plan.QueryAccounting }

// mayStart reports whether an effect of a kind may be started now, and counts it as started. An
// irrevocable effect waits until Slurm has been seen; submissions and cancellations keep to the
// pace. Jobs are cancelled by their ids as the newest snapshot shows them, so it must be fresh.
func (s *starter) mayStart(now time.Time, e plan.Effect) bool {
	switch {
	case !s.jobs.observed && irrevocable(e.Kind), s.active.calls[e.Kind]:
		return false
	case e.Kind == plan.Submit:
		submitted := e.Row.SubmittedAt
		if e.Submission != nil {
			submitted = e.Submission.SubmittedAt
		}
		tooLate := now.Sub(submitted) > plan.SubmitWithin // then sbatch is not run
		return tooLate || s.pace.allowSubmit(now)
	case e.Kind == plan.Cancel:
		return !s.contact.unreachable.Load() && s.jobs.isFresh(now) && s.pace.allowCancel(now)
	}
	return true
}

// heldOf counts the held effects of a kind.
func (s *starter) heldOf(k plan.Kind) int { return count(s.held, k) }

// wait returns how long it is until the pace allows a held or a waiting effect; false if none waits for the
// pace. anyWaiting says whether staged rows wait for a submission.
func (s *starter) wait(now time.Time, anyWaiting bool) (least time.Duration, waits bool) {
	if !s.jobs.observed {
		return 0, false
	}
	if budget(s.pace.submits, now) < 1 && (s.heldOf(plan.Submit) > 0 || anyWaiting) {
		least, waits = refill(s.pace.submits, now), true // room below max_in_flight comes with news
	}
	if budget(s.pace.cancels, now) < 1 && s.heldOf(plan.Cancel) > 0 { // a fresh snapshot, and a scancel's end, come with news
		if next := refill(s.pace.cancels, now); !waits || next < least {
			least, waits = next, true
		}
	}
	return least, waits
}

// count counts the effects of a kind.
func count(effects []plan.Effect, k plan.Kind) int {
	n := 0
	for _, e := range effects {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// irrevocable reports whether an effect waits until Slurm has been seen: only then is it known
// that the ledger is not older than Slurm's jobs.
func irrevocable(k plan.Kind) bool {
	switch k {
	case plan.Carry, plan.Submit, plan.JoinPack, plan.Cancel, plan.Release:
		return true
	case plan.Claim, plan.Stage, plan.Prepare, plan.AskQueue, plan.QueryAccounting, plan.ReadRecords, plan.Fence, plan.TellTimeLimit, plan.StopMember, plan.Collect, plan.Confirm, plan.Forget:
	}
	return false
}
