package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// commands runs Slurm's commands for one life of the bridge.
type commands struct {
	*life
}

var errTimeout = errors.New("signal: killed")

func unclear(words string) error { return &sbatch.Error{Op: "submit", Message: words, Err: errTimeout} }

// Submit runs sbatch.
func (c commands) Submit(_ context.Context, r sbatch.Request) (sbatch.JobID, error) {
	w := c.w
	if c.crashes() {
		return 0, errCrashed
	}
	w.checkSubmission(r, c.life)
	c.checkBackOff("sbatch")
	c.extra += w.slurm.sleep()
	attempts := w.attemptsOf(r)
	noteNoJob, noteRefused := func() { noteNoJob(attempts) }, func() { noteRefused(attempts) }
	row, _ := w.ledger.row(attempts[0].bundle)
	submit := func() (sbatch.JobID, error) { return w.slurm.takeJob(r) }
	switch {
	case w.slurm.down:
		noteNoJob()
		return 0, unclear("Unable to contact slurm controller (connect failure)")
	case w.fault(SubmitFails):
		noteNoJob()
		return 0, unclear("Socket timed out on send/recv operation")
	case w.fault(SubmitLate):
		w.at(w.dice.faultDuration(SubmitLate, 0, submitBound-10*time.Second), func() {
			if w.slurm.down || w.now < w.slurm.refusedUntil[row.Queue] {
				noteNoJob()
				return
			}
			if _, err := submit(); err != nil { // the answer is lost
				noteNoJob()
			}
		})
		return 0, unclear("Socket timed out on send/recv operation")
	case w.fault(SubmitRefused):
		return 0, &sbatch.Error{Op: "submit", Refused: true, Retry: true, Message: "QOSMaxSubmitJobPerUserLimit"}
	case w.fault(SubmitGhost):
		bad := r
		bad.GPUs = 8
		_, err := w.slurm.Submit(w.wall(), researcher, bad)
		if w.dice.coin(SubmitGhost) {
			noteNoJob()
			return 0, unclear("signal: killed") // sbatch was killed before it could print the refusal
		}
		noteRefused()
		return 0, err
	}
	if w.now < w.slurm.refusedUntil[row.Queue] {
		return 0, slurmtest.SubmitError(r.Name, "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", 1)
	}
	lost := w.fault(SubmitLost)
	id, err := submit()
	switch {
	case lost && err != nil: // the refusal is lost, too; the accounting database may show its ghost as pending
		noteNoJob()
		fallthrough
	case lost:
		return 0, unclear("Socket timed out on send/recv operation")
	}
	noteAnswer(attempts, r, err)
	if c.crashes() {
		return 0, errCrashed
	}
	return id, err
}

// noteNoJob notes that an sbatch has made no job, and gave an unclear answer.
func noteNoJob(attempts []*attempt) {
	for _, a := range attempts {
		a.noteCause("sbatch made no job")
		a.unclear = true
	}
}

// noteRefused notes that Slurm has refused a submission.
func noteRefused(attempts []*attempt) {
	for _, a := range attempts {
		a.refused = true
	}
}

// noteAnswer notes whether Slurm has refused a submission. If it excludes nodes, the bridge goes on without that.
func noteAnswer(attempts []*attempt, r sbatch.Request, err error) {
	for _, a := range attempts {
		a.refused = a.refused || err != nil && r.Exclude == ""
		a.unplaced = err != nil && r.Exclude != ""
	}
}

// Try runs sbatch --test-only.
func (c commands) Try(_ context.Context, r sbatch.Request) error {
	w := c.w
	w.countRequest()
	c.checkBackOff("sbatch --test-only")
	if c.dead || w.slurm.down || w.fault(ObserveFails) {
		return unclear("Unable to contact slurm controller (connect failure)")
	}
	for name, q := range w.policy.Queues {
		if q.Partition == r.Partition && w.now < w.slurm.refusedUntil[name] {
			return slurmtest.SubmitError(r.Name, "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", 1)
		}
	}
	return w.slurm.Try(w.wall(), researcher, r)
}

// takeJob does the controller's part of sbatch.
func (s *slurm) takeJob(r sbatch.Request) (sbatch.JobID, error) {
	w, made := s.w, r
	if !w.dice.happen[ClockSet] && w.fault(JobRewritten) { // the bridge recognizes a job by its id only if its clock is right
		made.Name, made.Comment = rewritten, "checked"
	}
	id, err := s.Submit(w.wall(), researcher, made)
	w.logf("sbatch", "%s: job %s, %v", r.Name, id, err)
	for i, a := range w.attemptsOf(r) {
		job := id
		if r.Tasks > 0 && id != 0 {
			job = id.Task(i)
		}
		if job != 0 && a.isSubmittedBy(r) {
			w.checkMade(a, job)
			s.attempts[job] = append(s.attempts[job], a)
			a.name, a.packed = r.Name, isPack(r)
			if !isPack(r) {
				a.noteTimeLimit(r.Time)
			}
			a.job, a.unnamed = cmp.Or(a.job, job), a.unnamed || made.Name != r.Name
		}
		if !isPack(r) {
			s.strikeNewJob(job)
		}
	}
	if isPack(r) {
		if id != 0 {
			s.packs[membersOf(r)] = append(s.packs[membersOf(r)], id)
		}
		s.strikeNewJob(id)
	}
	s.settle()
	return id, err
}

// Observe runs squeue.
func (c commands) Observe(context.Context, time.Time) (sbatch.Snapshot, error) {
	w := c.w
	w.countRequest()
	c.checkBackOff("squeue")
	if c.dead || w.slurm.down || w.fault(ObserveFails) {
		c.unanswered, c.failed = c.unanswered+1, w.now
		return sbatch.Snapshot{}, errTimeout
	}
	c.unanswered = 0
	answer := c.answer
	if answer == nil {
		answer = w.slurm.list()
	}
	answer.snapshot.Asked = c.asked
	for _, j := range answer.snapshot.Jobs {
		for _, a := range w.slurm.attempts[j.ID] {
			if j.State.Ended() && (a.ran == 0 || a.ran == j.ID) && !w.isUnnamed(a, j.ID) {
				a.shownEnded = true
			}
		}
	}
	return answer.snapshot, answer.err
}

// listing is an answer of squeue.
type listing struct {
	snapshot sbatch.Snapshot
	err      error
}

// list returns squeue's answer at this moment.
func (s *slurm) list() *listing {
	snapshot, err := s.Observe(s.w.wall(), researcher)
	s.showRevoked(snapshot.Jobs)
	if err == nil {
		snapshot.Jobs = s.neverEnding(snapshot.Jobs)
	}
	snapshot.Jobs = slices.DeleteFunc(snapshot.Jobs, func(j sbatch.Job) bool { return s.hidden[j.ID] })
	for i := range snapshot.Jobs {
		if j := &snapshot.Jobs[i]; s.invalid[j.ID] != "" && j.State == sbatch.StatePending {
			j.Reason = s.invalid[j.ID]
		}
	}
	s.settle()
	return &listing{snapshot, err}
}

// QueryAccounting runs sacct.
func (c commands) QueryAccounting(_ context.Context, since time.Time, which sbatch.Which) ([]sbatch.Job, error) {
	w := c.w
	if c.dead || w.fault(AccountingFails) {
		return nil, errTimeout
	}
	jobs, err := w.slurm.QueryAccounting(w.wall(), researcher, since, which)
	if err == nil {
		w.slurm.accounted = w.wall().Add(w.offset)
	}
	w.slurm.showRevoked(jobs)
	return jobs, err
}

// Cancel runs scancel.
func (c commands) Cancel(_ context.Context, _ string, ids ...sbatch.JobID) (err error) {
	w := c.w
	if c.crashes() {
		return errCrashed
	}
	w.countRequest()
	c.checkBackOff("scancel")
	c.extra += w.slurm.sleep()
	if w.slurm.down || w.fault(CancelFails) {
		return errTimeout
	}
	for _, id := range ids {
		w.checkCancel(id)
		err = errors.Join(err, w.slurm.Cancel(w.wall(), researcher, id, ""))
	}
	w.logf("scancel", "%v: %v", ids, err)
	w.slurm.settle()
	if w.fault(CancelLost) || c.crashes() {
		return errTimeout
	}
	return err
}
