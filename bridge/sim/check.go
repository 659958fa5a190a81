package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
	"github.com/cl-slurm/cl-slurm/spool"
)

// reported is a bundle's end in a check-in.
type reported struct {
	exit    int
	failure string
}

// reportOf returns a verdict as a check-in reports it.
func reportOf(v *plan.Verdict) reported {
	r := reported{exit: -1, failure: v.Failure}
	if v.ExitCode != nil {
		r.exit = *v.ExitCode
	}
	return r
}

// attemptsOf returns the attempts of a submission, in the order of its tasks or of its members; one for a job of its own.
func (w *world) attemptsOf(r sbatch.Request) []*attempt {
	if r.Tasks == 0 && !isPack(r) {
		of, n := specOf(r)
		return []*attempt{w.disk.bundleAt(of).attempt(n)}
	}
	members := w.disk.members[membersOf(r)]
	attempts := make([]*attempt, len(members.Attempts))
	for i, m := range members.Attempts {
		attempts[i] = w.disk.bundleAt(keyOfMember(m)).attempt(number(string(m.Name)))
	}
	return attempts
}

// checkBegin checks a worker that begins its command.
func (w *world) checkBegin(wk *worker) {
	a := wk.attempt
	w.attempts++
	a.begun++
	a.beganAt = w.now
	forgotten := w.isUnknown(a.command) && (a.purged || a.released) // only the disk and the ledger showed its start, and both have lost it
	if a.begun > 1 && !forgotten {
		w.violate(BegunTwice, "attempt %d of %s began %d times", a.number, wk.bundle.uuid, a.begun)
	}
	if a.started.record == nil || a.started.record.Fenced {
		w.violate(BegunTwice, "attempt %d of %s began after it was fenced", a.number, wk.bundle.uuid)
	}
	row, ok := w.ledger.row(wk.bundle.uuid)
	ok = ok && !w.isUnknown(a.command) && row.Run.Command == a.command
	if ok && (row.Attempt.Number > a.number || row.Attempt.Number == a.number && row.SubmissionName == "" && row.Phase == plan.Staging) {
		w.violate(BegunTwice, "attempt %d of %s began after it was given up", a.number, wk.bundle.uuid)
	}
	if ok && (row.Phase == plan.Finalizing || row.Phase == plan.Done) && !row.Dropped {
		w.violate(BegunTwice, "attempt %d of %s began after its verdict", a.number, wk.bundle.uuid)
	}
	for _, other := range wk.bundle.attempts {
		if other != a && other.begun > 0 && !other.followed && !w.isUnknown(other.command) {
			w.violate(BegunAgain, "%s began again after attempt %d (%s)", wk.bundle.uuid, other.number, other.cause)
		}
	}
	w.checkResumed(wk)
}

// mayBeginAgain reports whether a bundle may begin again after an attempt; r is the bundle's row. If the
// attempt's records are gone and the bridge has missed its job, the bridge cannot know of the start.
func (w *world) mayBeginAgain(a *attempt, r *plan.Row) bool {
	missed := a.doubtful && a.purged && r.Begun == nil && r.Job.ID == 0
	exit := cmp.Or(r.Exit, a.exit.record) // the bridge may have read the record before it was purged
	notStarted := a.commandBegan == 0 && exit != nil && exit.NotStarted
	return missed || notStarted || w.mayBeResumed(a, r) || w.queues[0].RetryBegun == plan.RetryOnPlatform && w.platformEnded(a, r) || w.isUnknown(a.command)
}

// platformEnded reports whether an attempt may count as ended by the platform; r is its bundle's row. It
// may if the platform ended it, or if the bridge has no source for the end of its job: the controller
// forgot the job before any snapshot showed the end, and the site has no accounting or its database
// missed the end.
func (w *world) platformEnded(a *attempt, r *plan.Row) bool {
	switch {
	case a.platformCause != "":
		return true
	case a.unclear && a.job == 0:
		return true
	case a.purged && r.Begun == nil: // no record of its start is left
		return true
	case a.vanished, w.slurm.lagged && !a.shownEnded: // the accounts may not tell in time
		return true
	case a.unrecorded && (!a.shownEnded || a.hidden): // a bridge that crashed before it saved the end may not see the job again
		return true
	case a.shownEnded, w.policy.Accounting && !w.isSilent(r) && w.slurm.accountsEnd(a):
		return false
	}
	return w.slurm.hasForgotten(a)
}

// isSilent reports whether the accounting database has answered nothing for as long as the bridge waits for it if there is
// an exit record, by the bridge's clock, which somebody may have set (I3, "Not promised").
func (w *world) isSilent(r *plan.Row) bool {
	return r.Exit != nil && !r.NoJobSince.IsZero() && w.slurm.accounted.Before(r.NoJobSince) &&
		w.wall().Add(w.offset).Sub(r.NoJobSince) > w.policy.RecordAge
}

// hasForgotten reports whether the controller answers, and has no job of an attempt any more.
func (s *slurm) hasForgotten(a *attempt) bool {
	snapshot, err := s.Observe(s.w.wall(), researcher)
	return err == nil && !slices.ContainsFunc(snapshot.Jobs, func(j sbatch.Job) bool { return slices.Contains(s.attempts[j.ID], a) })
}

// accountsEnd reports whether the accounting database has the end of an attempt's job, or will have it once
// it answers and is up to date. It may also have other jobs with that id, and a name that a plugin or an administrator has given may be that
// of a job which the controller has accepted since it lost its state.
func (s *slurm) accountsEnd(a *attempt) bool {
	now := s.Database
	defer func() { s.Database = now }()
	s.Database = slurmtest.Database{LosesEnds: now.LosesEnds}
	jobs, _ := s.QueryAccounting(s.w.wall(), researcher, time.Time{}, sbatch.Which{IDs: []sbatch.JobID{a.job}}) // it always answers
	return slices.ContainsFunc(jobs, func(j sbatch.Job) bool {
		later := a.begun > 0 && j.Submitted.After(epoch.Add(a.beganAt))
		return j.State.Ended() && (j.Name == a.name || j.Name == rewritten && !later)
	})
}

// checkSaved checks a change of a row.
func (w *world) checkSaved(before, after *plan.Row) {
	if before == nil {
		before = &plan.Row{}
	}
	if before.SubmissionName != "" && after.Phase == plan.Staging {
		a := w.disk.attempt(before.Bundle, before.Attempt.Number)
		switch {
		case a.begun == 0:
		case w.mayBeginAgain(a, before):
			a.followed = true
		default:
			w.violate(BegunAgain, "%s is sent back though attempt %d began (%s)", before.Bundle, before.Attempt.Number, a.cause)
		}
		if after.LastFailure == "" {
			w.violate(BegunAgain, "%s is sent back for no recorded cause", before.Bundle)
		}
	}
	if before.SubmissionName != "" && after.Phase == plan.Staging && after.Attempt.Number == before.Attempt.Number {
		w.checkClosed(before)
	}
	fresh := after.Phase == plan.Claiming
	if !before.Times.Finalizing.IsZero() && !fresh && (after.Verdict == nil || reportOf(before.Verdict) != reportOf(after.Verdict)) {
		w.violate(VerdictChanged, "the verdict of %s changed from %+v to %+v", before.Bundle, before.Verdict, after.Verdict)
	}
	if after.Phase == plan.Finalizing {
		w.disk.bundle(after.Bundle).leftThere = after.Uncollected && w.wasHeld(after.Bundle)
	}
	if after.Phase == plan.Finalizing && before.Phase != plan.Finalizing && before.Times.Finalizing.IsZero() {
		w.checkVerdict(*after)
	}
	w.checkKill(after)
	w.checkBill(before, after)
	w.checkLeft(before, after)
	w.noteKnown(after)
}

// checkClosed checks the attempt of a row that is given up, or ends: no worker can begin it any more (I4).
func (w *world) checkClosed(r *plan.Row) {
	a := w.disk.attempt(r.Bundle, r.Attempt.Number)
	if a.there && a.started.record == nil && !w.isUnknown(a.command) {
		w.violate(BegunTwice, "attempt %d of %s is over, and was neither begun nor fenced", a.number, r.Bundle)
	}
}

// stop is a pending stop of an attempt that has not begun. since is the decision, or the bridge's last start.
type stop struct {
	since   time.Duration
	attempt *attempt
}

// checkKill checks the time to stop a bundle that has not begun. The verdict has to wait for the fencing of
// the attempt, and for nothing else: neither for Slurm nor for other bundles that are killed. An attempt
// whose records are gone is exempt, because it may have begun.
func (w *world) checkKill(r *plan.Row) {
	const bound = 10 * time.Second
	under, stopping := w.stopping[r.Bundle]
	switch {
	case r.Phase == plan.Stopping && r.Begun == nil && r.RecordsGoneSince.IsZero():
		if !stopping {
			w.stopping[r.Bundle] = &stop{w.now, w.disk.attempt(r.Bundle, r.Attempt.Number)}
		}
	case stopping:
		delete(w.stopping, r.Bundle)
		excused := under.attempt.fencingFailed || w.isUnknown(r.Run.Command)
		if !excused && r.Begun == nil && r.RecordsGoneSince.IsZero() && w.now-under.since > bound {
			w.violate(KillWaits, "%s was killed before it began, and its verdict took %s", r.Bundle, w.now-under.since)
		}
	}
}

// checkVerdict compares a verdict with the truth before it is reported.
func (w *world) checkVerdict(r plan.Row) {
	if b := w.server.bundleByID(r.Bundle); b != nil && b.command != r.Run.Command {
		return // the bundle was deleted: its verdict goes to no bundle (Foreign)
	}
	if r.Verdict == nil {
		w.violate(FalseEnd, "%s ends without a verdict", r.Bundle)
		return
	}
	v := *r.Verdict
	if r.StopVerdict != nil && !w.killed[r.Run.Command] && !w.putBack(w.disk.attempt(r.Bundle, max(1, r.Attempt.Number))) {
		w.violate(FalseEnd, "%s was stopped without a kill: %+v", r.Bundle, *r.StopVerdict)
	}
	if r.Attempt.Number == 0 {
		if r.StopVerdict == nil {
			w.violate(FalseEnd, "%s ended before any attempt: %+v", r.Bundle, v)
		}
		return
	}
	a := w.disk.attempt(r.Bundle, r.Attempt.Number)
	if a.job != 0 && r.SubmissionName != "" {
		w.checkClosed(&r)
	}
	switch {
	case w.isUnknown(r.Run.Command):
	case a.alive > 0 && w.runsUnseen(a):
	case a.alive > 0 && !a.cut:
		w.violate(FalseEnd, "%s ended (%+v) while attempt %d runs", r.Bundle, v, r.Attempt.Number)
	case r.GivesUp:
		if !w.killed[r.Run.Command] || v.State() != codalab.StateKilled || a.ended != nil && v.ExitCode != nil && *v.ExitCode != *a.ended.ExitCode {
			w.violate(FalseEnd, "the upload of %s was given up, and it ended as %+v; its command with %+v", r.Bundle, v, a.ended)
		}
	case r.Uncollected && w.wasHeld(r.Bundle): // the end has the place of the results beside what its command did
		if a.ended != nil && v.ExitCode != nil && *v.ExitCode != *a.ended.ExitCode {
			w.violate(FalseEnd, "%s ended as %+v, and its command with %+v", r.Bundle, v, *a.ended)
		}
	case a.ended != nil && (r.Exit != nil || a.exit.record != nil && !a.cut):
		if v.ExitCode == nil || *v.ExitCode != *a.ended.ExitCode || v.Cause != a.ended.Cause || v.Failure != a.ended.Failure {
			w.violate(FalseEnd, "%s ended as %+v, and its command with %+v", r.Bundle, v, *a.ended)
		}
	case r.StopVerdict == nil && a.unrecorded && v.ExitCode != nil && *v.ExitCode != *a.ended.ExitCode:
		w.violate(FalseEnd, "%s ended with exit code %d, and its command with %d", r.Bundle, *v.ExitCode, *a.ended.ExitCode)
	case r.StopVerdict == nil && !w.mayEndBy(v.Cause, a, &r):
		w.violate(FalseEnd, "%s ended with the cause %s (%+v), and it was not that (%s)", r.Bundle, v.Cause, v, a.cause)
	case r.StopVerdict != nil && a.ended == nil && a.metLimit && r.Exit != nil && !r.Exit.Terminated:
		if v.Cause != spool.CauseLimit || v.Failure != r.Exit.Failure {
			w.violate(FalseEnd, "%s ended as %+v, and its worker ended it at a limit: %+v", r.Bundle, v, *r.Exit)
		}
	case r.StopVerdict != nil && a.ended == nil && a.failedStart == 0 && !a.refused && v.Failure != r.StopVerdict.Failure:
		w.violate(FalseEnd, "%s was stopped (%+v), and ended as %+v (%s)", r.Bundle, *r.StopVerdict, v, a.cause)
	case r.StopVerdict == nil && a.cause == "" && !a.refused && a.packed:
		w.violate(PackEnded, "%s ended as %+v though nothing befell attempt %d, a member of a pack", r.Bundle, v, r.Attempt.Number)
	case r.StopVerdict == nil && a.cause == "" && !a.refused:
		w.violate(FalseEnd, "%s ended as %+v though nothing befell attempt %d", r.Bundle, v, r.Attempt.Number)
	}
}

// runsUnseen reports whether the bridge has no evidence that an attempt runs: its records are gone, and its
// job's name too, or another cluster runs it (docs/contributors/reliability.md, I3 and I4, "Not promised").
func (w *world) runsUnseen(a *attempt) bool {
	return a.purged && (w.isUnnamed(a, a.job) || w.slurm.revoked[a.job] != nil)
}

// isUnnamed reports whether the bridge cannot recognize a job as the attempt's: a plugin of the site has
// rewritten its name, and the row has no id, or the id of a second submission's job.
func (w *world) isUnnamed(a *attempt, id sbatch.JobID) bool {
	row, _ := w.ledger.row(a.bundle)
	return a.unnamed && row.Job.ID != id
}

// mayEndBy reports whether a cause may have ended an attempt without an exit record of that cause.
func (w *world) mayEndBy(c spool.Cause, a *attempt, r *plan.Row) bool {
	switch c {
	case spool.CausePlatform: // on a clock that was set, commands may seem to have failed to start for an hour
		return w.platformEnded(a, r) || a.failedStart > 0 && w.clockSet > w.disk.bundle(a.bundle).failsSince()
	case spool.CauseLimit:
		return a.limited
	case spool.CauseUser:
		return a.ended != nil && a.ended.Cause == c || a.cancelled != 0 || w.seemsCancelled(a, r) || a.refused && (a.job == 0 || a.doubtful || a.unnamed)
	case spool.CauseSucceeded:
		return a.ended != nil && a.ended.Cause == c
	}
	return false
}

// seemsCancelled reports whether an attempt that has ended may seem to be cancelled with its pack: the record of its end was purged
// before the bridge had it, and an administrator has cancelled the pack's job.
func (w *world) seemsCancelled(a *attempt, r *plan.Row) bool {
	return a.packed && a.unrecorded && r.Exit == nil && w.slurm.cancelled[a.ran]
}

// checkRelease checks that nothing needs the files that the bridge is about to remove.
func (w *world) checkRelease(uuid string) {
	w.checkLedger("a removal")
	for _, a := range w.disk.bundle(uuid).attempts {
		if a.alive > 0 && !a.cut && !w.isUnknown(a.command) && !w.runsUnseen(a) {
			w.violate(DeletedEarly, "the files of %s are removed while attempt %d runs", uuid, a.number)
		}
	}
	row, ok := w.ledger.row(uuid)
	if !ok {
		return // a later life of the bridge has removed the row
	}
	if row.Phase != plan.Done {
		w.violate(DeletedEarly, "the files of %s are removed, and its row is %q", uuid, row.Phase)
	}
	if b := w.server.bundleByID(uuid); !row.Dropped && !w.isUnknown(row.Run.Command) && b != nil && b.command == row.Run.Command && !b.state.Final() {
		w.violate(DeletedEarly, "the files of %s are removed, and the server has it %s", uuid, b.state)
	}
}

// checkForgotten checks a row that the bridge is about to forget.
func (w *world) checkForgotten(r plan.Row) {
	if r.Phase != plan.Done {
		w.violate(Lost, "the row of %s is forgotten in %s", r.Bundle, r.Phase)
	}
	for _, a := range w.disk.bundle(r.Bundle).attempts {
		if a.there && a.command == r.Run.Command {
			w.violate(Foreign, "%s is forgotten, and the next bundle of its UUID would find its attempt %d", r.Bundle, a.number)
		}
	}
}

// checkLedger checks that the bridge does nothing if it can see that its ledger is older than Slurm's jobs
// (I5).
func (w *world) checkLedger(what string) {
	if !w.ledger.restored {
		return
	}
	snapshot, err := w.slurm.Observe(w.wall(), researcher)
	if err != nil {
		return
	}
	for _, j := range snapshot.Jobs {
		stamp, ok := plan.StampOf(j)
		if shared, ofArray := plan.SharedStampOf(j); ofArray {
			stamp, ok = plan.Stamp{Bridge: shared.Bridge, Generation: shared.Generation}, true
		}
		if !ok || stamp.Bridge != w.policy.Bridge || stamp.Generation <= w.ledger.generation || w.slurm.hidden[j.ID] {
			continue
		}
		if !j.Submitted.Before(epoch.Add(w.ledger.restoredAt).Truncate(time.Second)) {
			continue // an earlier sbatch made it after the restoring; the bridge may not have seen it yet
		}
		w.violate(Touched, "%s on a ledger of generation %d, and job %s has %d", what, w.ledger.generation, j.ID, stamp.Generation)
	}
}

// checkSubmission checks a submission that a life of the bridge makes.
func (w *world) checkSubmission(r sbatch.Request, by *life) {
	w.countRequest()
	w.checkLedger("a submission")
	attempts := w.attemptsOf(r)
	for _, a := range attempts {
		switch {
		case a.job == 0 || !a.isSubmittedBy(r) || w.mayBeSubmittedAgain(a):
		case w.isUnknownToBridge(a) || a.unnamed && w.hasMovedOn(a):
			a.doubtful = true // its worker may still show the bridge one job before the other is made
		default:
			w.violate(SubmittedTwice, "%s is submitted again, and job %s was made of it", r.Name, a.job)
		}
	}
	if by.number != w.ledger.writer {
		return // another life has the row, and may have decided it again
	}
	if slices.ContainsFunc(attempts, func(a *attempt) bool { return w.isUnknown(a.command) && a.started.record != nil }) {
		return // records that the restored ledger does not know may have ended the attempt; no worker begins it again
	}
	if r.Tasks > 0 || isPack(r) {
		w.checkList(r)
	}
	for _, row := range w.ledger.rows {
		if string(row.SubmissionName) == r.Name && row.Phase != plan.Claiming && row.Phase != plan.Staging {
			return
		}
	}
	w.violate(SubmittedTwice, "%s is submitted, and no saved row is in that phase", r.Name) // I1
}

// checkList checks the list of members of an array or a pack that is submitted: it was saved before (I1), and each repeat has the same.
func (w *world) checkList(r sbatch.Request) {
	list := w.disk.members[membersOf(r)].Attempts
	saved := w.savedSubmission(r)
	n := r.Tasks
	if isPack(r) {
		n = len(saved.Members)
		w.packed += n
	}
	w.tasks += r.Tasks
	if saved.State != plan.Asked || len(list) != n || saved.Pack != isPack(r) || saved.Width != widthOf(r) || !slices.EqualFunc(saved.Members, list, func(a plan.Member, b spool.Member) bool { return spool.Member(a) == b }) {
		w.violate(SubmittedTwice, "%s is submitted with %d tasks, %d side by side, and the members %v, and the saved submission is %s with %v", r.Name, r.Tasks, widthOf(r), list, saved.State, saved.Members)
	}
	if first, ok := w.lists[r.Name]; ok && !w.ledger.restored && !slices.Equal(first, list) { // a restored ledger gives the name again
		w.violate(SubmittedTwice, "%s is submitted again with the members %v, and had %v", r.Name, list, first)
	}
	w.lists[r.Name] = list
}

// savedSubmission returns the saved submission of an array or a pack. All members of a pack may have ended while its sbatch was about to run:
// they were killed, and fenced. Then the bridge has removed the submission, and the pack finds nothing to begin.
func (w *world) savedSubmission(r sbatch.Request) plan.Submission {
	name := plan.SubmissionName(r.Name)
	saved, ok := w.ledger.shared[name]
	if ok || !isPack(r) {
		return saved
	}
	for _, row := range w.ledger.rows {
		if row.SubmissionName == name && row.InFlight() {
			return saved
		}
	}
	saved = w.ledger.over[name]
	saved.State = plan.Asked
	return saved
}

// checkMade checks a new job, which may be made after sbatch's answer.
func (w *world) checkMade(a *attempt, id sbatch.JobID) {
	if a.job != 0 && !w.isUnknownToBridge(a) && !w.mayBeSubmittedAgain(a) {
		w.violate(SubmittedTwice, "job %s was made of attempt %d, which has job %s", id, a.number, a.job)
	}
}

// mayBeSubmittedAgain reports whether the proof of absence may be wrong for an attempt: during its
// submission the bridge's clock was set, or Slurm has lost its state since, or the ledger was restored; or its job has
// ended and nothing shows it, because the controller forgot it before the bridge saw it and the accounting database is an
// hour behind; or squeue stopped to list it before the bridge knew its number or its begin, and accounting does not show it yet, or there is
// none. The simulation still checks that only one of the attempt's two jobs begins.
func (w *world) mayBeSubmittedAgain(a *attempt) bool {
	row, _ := w.ledger.row(a.bundle)
	unseen := a.vanished && (!w.policy.Accounting || !w.slurm.accountsShow(a))
	return unseen && row.Begun == nil && row.Job.ID == 0 || a.doubtful || w.isUnknown(a.command) || w.slurm.lagged && !a.shownEnded && w.slurm.hasForgotten(a)
}

// accountsShow reports whether the accounting database shows a job of an attempt now.
func (s *slurm) accountsShow(a *attempt) bool {
	jobs, _ := s.QueryAccounting(s.w.wall(), researcher, time.Time{}, sbatch.Which{IDs: []sbatch.JobID{a.job}}) // without an answer it shows none
	return slices.ContainsFunc(jobs, func(j sbatch.Job) bool { return j.Name == a.name })
}

// isUnknownToBridge reports whether the bridge cannot find an attempt's job: a plugin of the site has
// rewritten its name, and sbatch's answer was lost.
func (w *world) isUnknownToBridge(a *attempt) bool {
	row, _ := w.ledger.row(a.bundle)
	return a.unnamed && row.Job.ID == 0
}

// hasMovedOn reports whether the attempt's row has its start, which came after the decision to submit it.
func (w *world) hasMovedOn(a *attempt) bool {
	row, _ := w.ledger.row(a.bundle)
	return row.Begun != nil && row.Begun.Job == a.job.String()
}

// checkCancel checks a cancellation.
func (w *world) checkCancel(id sbatch.JobID) {
	w.checkLedger("a cancellation")
	if slices.Contains(w.slurm.foreign, id) {
		w.violate(Touched, "job %s, which is not the bridge's, is cancelled", id)
	}
	for _, a := range w.slurm.attempts[id] { // an orphan job has none
		if a.foreign {
			w.violate(Touched, "job %s, which is another bridge's, is cancelled", id)
		}
		row, ok := w.ledger.row(a.bundle)
		if !ok || row.Run.Command != a.command || row.Attempt.Number != a.number || !row.InFlight() || row.StopVerdict != nil || row.Verdict != nil {
			continue
		}
		runs := row.Begun != nil && row.Begun.Job == id.String()
		switch {
		case a.packed && (runs || !w.isUnknown(a.command)):
			w.violate(PackEnded, "job %s is cancelled while the row of its member %s is %s", id, a.bundle, row.Phase)
		case !a.packed && !w.isUnknown(a.command):
			w.violate(Touched, "job %s is cancelled while its row is %s", id, row.Phase)
		}
	}
}

// checkEnd checks the whole site after the last event.
func (w *world) checkEnd() {
	if len(w.violations) > 0 {
		return
	}
	for _, b := range w.server.bundles {
		if !b.state.Final() && !b.forgiven {
			w.violate(Lost, "%s is still %s at the server", b.uuid, b.state)
		}
		if b.lost != "" && !b.forgiven && !w.disk.bundle(b.uuid).leftThere {
			w.violate(Undelivered, "the server has discarded the results of %s, and has no others", b.uuid)
		}
		if b.awaited && !b.forgiven && !w.disk.bundle(b.uuid).leftThere {
			w.violate(Undelivered, "%s ended with the end of its output at most, and its results did not come", b.uuid)
		}
		if v := w.verdicts[b.command]; b.state == codalab.StateReady && !b.forgiven && (v.failure != "" || v.exit > 0) {
			w.violate(Undelivered, "%s is ready at the server, and its verdict is %+v", b.uuid, v)
		}
	}
	for _, r := range w.ledger.rows {
		w.violate(Stuck, "the row of %s is still %s: %s", r.Bundle, r.Phase, r.Reason)
	}
	snapshot, err := w.slurm.Observe(w.wall(), researcher)
	if err != nil {
		w.violate(Orphan, "Slurm is still down")
	}
	states := map[sbatch.JobID]sbatch.State{}
	for _, j := range snapshot.Jobs {
		states[j.ID] = j.State
		if !j.State.Ended() && !w.slurm.isForeign(j) && !w.slurm.isLeftPack(j) {
			w.violate(Orphan, "job %s, %s, is still %s", j.ID, j.Name, j.State)
		}
	}
	for _, id := range w.slurm.foreign {
		if states[id] == sbatch.StateCancelled {
			w.violate(Touched, "job %s, which is not the bridge's, is %q", id, states[id])
		}
	}
}
