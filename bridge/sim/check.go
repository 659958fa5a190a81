package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Broken is a kind of broken promise.
type Broken string

// The promises that are checked.
const (
	// Lost: a bundle of the server's never came to its end.
	Lost Broken = "lost"
	// Stuck: a row stayed for ever, or the bridge stepped in a circle.
	Stuck Broken = "stuck"
	// BegunTwice: an attempt began twice, or after the bridge gave it up.
	BegunTwice Broken = "begun_twice"
	// BegunAgain: a bundle began again without a recorded platform cause, or although its queue
	// does not allow it.
	BegunAgain Broken = "begun_again"
	// Superseded: results of an attempt that was given up were delivered.
	Superseded Broken = "superseded"
	// SubmittedTwice: an attempt was submitted again although it had a job.
	SubmittedTwice Broken = "submitted_twice"
	// Orphan: a job outlived its row.
	Orphan Broken = "orphans"
	// Foreign: a bundle got what belongs to another one of its UUID: a claim, an end or results.
	Foreign Broken = "foreign"
	// Touched: the bridge ended a job that it must not end.
	Touched Broken = "touched"
	// Undelivered: a result did not arrive, or arrived changed.
	Undelivered Broken = "undelivered"
	// VerdictChanged: a verdict changed after it was reported final.
	VerdictChanged Broken = "verdict_changed"
	// FalseEnd: a bundle's verdict was wrong.
	FalseEnd Broken = "false_ends"
	// DeletedEarly: files were removed that were still needed.
	DeletedEarly Broken = "deleted_early"
	// TooManyRequests: Slurm was asked more often than the site allows, or too soon after it had
	// not answered.
	TooManyRequests Broken = "too_many_requests"
	// Unheard: a bridge that could reach the server did not report a live run for a minute, and
	// the server called the run offline.
	Unheard Broken = "unheard"
	// Starved: a bundle that could go on had to wait for more of others than a fair turn has (I11).
	Starved Broken = "starved"
	// KillWaits: a bundle was killed before it began, and the bridge did not report that at once.
	KillWaits Broken = "kill_waits"
	// Panicked: the bridge panicked.
	Panicked Broken = "panicked"
)

// AllBroken lists the promises that are checked.
func AllBroken() []Broken {
	return []Broken{
		Lost, Foreign, BegunTwice, Stuck, Orphan, FalseEnd, SubmittedTwice, BegunAgain, Superseded, Touched, Undelivered, VerdictChanged, DeletedEarly, TooManyRequests, KillWaits, Unheard, Starved, Panicked,
	}
}

// Violation is a promise that a seed broke.
type Violation struct {
	Broken Broken
	// At is when it was seen, Words describe it.
	At    time.Duration
	Words string
}

func (w *world) violate(b Broken, format string, args ...any) {
	v := Violation{b, w.now, fmt.Sprintf(format, args...)}
	w.logf("BROKEN", "%s: %s", v.Broken, v.Words)
	w.violations = append(w.violations, v)
}

// reported is a bundle's end as a check-in reported it.
type reported struct {
	exit    int
	failure string
}

// reportOf is a verdict as a check-in reports it.
func reportOf(v *plan.Verdict) reported {
	r := reported{exit: -1, failure: v.Failure}
	if v.ExitCode != nil {
		r.exit = *v.ExitCode
	}
	return r
}

// attemptOf finds the attempt of a submission.
func (w *world) attemptOf(r sbatch.Request) *attempt {
	uuid, n := specOf(r)
	return w.disk.attempt(uuid, n)
}

// checkBegin checks a worker that begins its command.
func (w *world) checkBegin(wk *worker) {
	a := wk.attempt
	w.attempts++
	a.begun++
	forgotten := w.recovered && (a.purged || a.released) // the start is known to the disk and the ledger only
	if a.begun > 1 && !forgotten {
		w.violate(BegunTwice, "attempt %d of %s began %d times", a.number, wk.bundle.uuid, a.begun)
	}
	row, ok := w.ledger.row(wk.bundle.uuid)
	ok = ok && !w.recovered && row.Run.Command == a.command
	if ok && (row.Attempt.Number > a.number || row.Attempt.Number == a.number && row.SubmissionName == "" && row.Phase == plan.Staging) {
		w.violate(BegunTwice, "attempt %d of %s began after it was given up", a.number, wk.bundle.uuid)
	}
	if ok && (row.Phase == plan.Finalizing || row.Phase == plan.Done) && !row.Dropped {
		w.violate(BegunTwice, "attempt %d of %s began after its verdict", a.number, wk.bundle.uuid)
	}
	for _, other := range wk.bundle.attempts {
		if other != a && other.begun > 0 && !w.mayBeginAgain(other) {
			w.violate(BegunAgain, "%s began again after attempt %d (%s)", wk.bundle.uuid, other.number, other.cause)
		}
	}
}

// mayBeginAgain reports whether a bundle may begin again after this attempt.
func (w *world) mayBeginAgain(a *attempt) bool {
	return w.queues[0].RetryBegun == plan.RetryOnPlatform && w.platformEnded(a) || w.recovered
}

// platformEnded reports whether an attempt may count as ended by the platform: it was, or nothing
// can tell the bridge how its job ended. That is so if the site has no accounting, or its database
// missed the end, and the controller forgot the job before any snapshot showed the end.
func (w *world) platformEnded(a *attempt) bool {
	missed := slices.ContainsFunc(w.dice.struck, func(f Fault) bool { return f.Kind == DatabaseLosesEnds })
	if a.platformCause != "" || w.policy.Accounting && !missed || a.shownEnded {
		return a.platformCause != ""
	}
	snapshot, err := w.slurm.Observe(w.wall(), researcher)
	return err == nil && !slices.ContainsFunc(snapshot.Jobs, func(j sbatch.Job) bool { return j.ID == a.job })
}

// checkSaved checks a change of a row.
func (w *world) checkSaved(before, after *plan.Row) {
	if before == nil {
		before = &plan.Row{}
	}
	if before.SubmissionName != "" && after.Phase == plan.Staging {
		a := w.disk.attempt(before.Bundle, before.Attempt.Number)
		if a.begun > 0 && !w.mayBeginAgain(a) {
			w.violate(BegunAgain, "%s is sent back though attempt %d began (%s)", before.Bundle, before.Attempt.Number, a.cause)
		}
		if after.LastFailure == "" {
			w.violate(BegunAgain, "%s is sent back for no recorded cause", before.Bundle)
		}
	}
	fresh := after.Phase == plan.Claiming
	if !before.Times.Finalizing.IsZero() && !fresh && (after.Verdict == nil || reportOf(before.Verdict) != reportOf(after.Verdict)) {
		w.violate(VerdictChanged, "the verdict of %s changed from %+v to %+v", before.Bundle, before.Verdict, after.Verdict)
	}
	if after.Phase == plan.Finalizing && before.Phase != plan.Finalizing && before.Times.Finalizing.IsZero() {
		w.checkVerdict(*after)
	}
	w.checkKill(after)
}

// checkKill checks how long a bundle is being stopped that has not begun. Its attempt has to be fenced for
// the verdict, and nothing else: neither Slurm's answers nor those of others that are killed are waited for.
// Nobody knows whether an attempt has begun whose records are gone.
func (w *world) checkKill(r *plan.Row) {
	const bound = 10 * time.Second
	since, stopping := w.stopping[r.Bundle]
	switch {
	case r.Phase == plan.Stopping && r.Begun == nil && r.RecordsGoneSince.IsZero():
		if !stopping {
			w.stopping[r.Bundle] = w.now
		}
	case stopping:
		delete(w.stopping, r.Bundle)
		fenced := !w.dice.happen[FenceFails] && !w.dice.happen[FenceLost] && !w.recovered
		if fenced && r.Begun == nil && r.RecordsGoneSince.IsZero() && w.now-since > bound {
			w.violate(KillWaits, "%s was killed before it began, and its verdict took %s", r.Bundle, w.now-since)
		}
	}
}

// checkVerdict compares a verdict with the truth before it is reported.
func (w *world) checkVerdict(r plan.Row) {
	if b := w.server.find(r.Bundle); b != nil && b.command != r.Run.Command {
		return // the bundle was deleted: nobody gets this verdict (Foreign)
	}
	if r.Verdict == nil {
		w.violate(FalseEnd, "%s ends without a verdict", r.Bundle)
		return
	}
	v := *r.Verdict
	if r.StopVerdict != nil && !w.killed[r.Run.Command] {
		w.violate(FalseEnd, "%s was stopped without a kill: %+v", r.Bundle, *r.StopVerdict)
	}
	if r.Attempt.Number == 0 {
		if r.StopVerdict == nil {
			w.violate(FalseEnd, "%s ended before any attempt: %+v", r.Bundle, v)
		}
		return
	}
	a := w.disk.attempt(r.Bundle, r.Attempt.Number)
	switch {
	case w.recovered:
	case a.alive > 0 && !a.cut:
		w.violate(FalseEnd, "%s ended (%+v) while attempt %d runs", r.Bundle, v, r.Attempt.Number)
	case a.ended != nil && a.exit.record != nil && !a.exit.record.Terminated && !a.cut:
		if v.ExitCode == nil || *v.ExitCode != *a.ended.ExitCode || v.Cause != a.ended.Cause || v.Failure != a.ended.Failure {
			w.violate(FalseEnd, "%s ended as %+v, and its command with %+v", r.Bundle, v, *a.ended)
		}
	case r.StopVerdict == nil && v.Cause == spool.CausePlatform && !w.platformEnded(a):
		w.violate(FalseEnd, "%s ended as the platform's doing (%+v), and it was not (%s)", r.Bundle, v, a.cause)
	case r.StopVerdict != nil, a.cause != "", a.refused:
		if v.Cause == spool.CauseSucceeded && a.ended == nil {
			w.violate(FalseEnd, "%s succeeded without a record or an answer of Slurm (%s)", r.Bundle, a.cause)
		}
	default:
		w.violate(FalseEnd, "%s ended as %+v though nothing befell attempt %d", r.Bundle, v, r.Attempt.Number)
	}
}

// checkReports checks the ends that a check-in reports.
func (w *world) checkReports(in codalab.CheckIn) {
	for i := range in.Runs {
		run := &in.Runs[i]
		if run.State != codalab.StateFinalizing {
			continue
		}
		now := reported{exit: -1}
		if run.ExitCode != nil {
			now.exit = *run.ExitCode
		}
		if run.FailureMessage != nil {
			now.failure = *run.FailureMessage
		}
		row, ok := w.ledger.row(run.UUID)
		if !ok {
			continue
		}
		if first, ok := w.verdicts[row.Run.Command]; ok && first != now && !w.recovered {
			w.violate(VerdictChanged, "%s was reported as %+v, and then as %+v", run.UUID, first, now)
		}
		w.verdicts[row.Run.Command] = now
	}
}

// checkHeard checks a run that the server is about to call offline. Trouble that keeps reports from
// the server excuses the bridge.
func (w *world) checkHeard(b *bundle) {
	row, ok := w.ledger.row(b.uuid)
	if !ok || !row.Reported() || row.Phase == plan.Finalizing || b.forgiven || w.recovered {
		return
	}
	if w.now-max(b.heard, w.hampered, w.server.downUntil) <= workerTimeout {
		return
	}
	w.violate(Unheard, "%s, which is %s, was last reported %s ago", b.uuid, row.Phase, w.now-b.heard)
}

// hampers reports whether a fault keeps reports from the server, or the bridge from knowing that they
// arrived.
func (k Kind) hampers() bool {
	switch k { //nolint:exhaustive // the others do not
	case CheckInLost, CheckInLate, AnswerLost, AnswerLate, ServerDown, ServerRestored, Restaged, ConfirmFails, ClaimFails, UploadFails,
		Crash, CrashSaving, Twin, LedgerOld:
		return true
	}
	return false
}

// checkClaim checks a claim that the server has granted. A row that still claims an earlier bundle of the
// UUID has not seen the offer of this one.
func (w *world) checkClaim(b *bundle) {
	row, ok := w.ledger.row(b.uuid)
	switch {
	case !ok || row.Run.Command == b.command:
	case row.Phase == plan.Claiming || row.Dropped:
		b.forgiven = true // see docs/reliability.md, I9, "Not promised"
	default:
		w.violate(Foreign, "%s is claimed for %s, and it is %s", b.uuid, row.Run.Command, b.command)
	}
}

// checkUpload checks results that go to the server.
func (w *world) checkUpload(b *bundle, run codalab.RunBundle, n int) {
	row, ok := w.ledger.row(b.uuid)
	a := w.disk.attempt(b.uuid, n)
	switch {
	case w.recovered:
	case run.Command != b.command:
		w.violate(Foreign, "results of %s are delivered to %s, which is %s", run.Command, b.uuid, b.command)
	case !ok || row.Attempt.Number != n:
		w.violate(Superseded, "results of attempt %d of %s are delivered, and its attempt is %d", n, b.uuid, row.Attempt.Number)
	case a.alive > 0 && !a.cut:
		w.violate(Undelivered, "results of attempt %d of %s are delivered while it runs", n, b.uuid)
	}
}

// checkResult checks the server's results when a bundle ends there.
func (w *world) checkResult(b *bundle) {
	row, ok := w.ledger.row(b.uuid)
	if !ok || w.recovered || b.forgiven {
		return
	}
	v := row.Verdict
	switch {
	case row.Run.Command != b.command:
		w.violate(Foreign, "%s is %s, and ended with the verdict of %s: %+v", b.uuid, b.command, row.Run.Command, v)
	case v == nil && b.returned && w.dice.happen[CheckInLate]: // a report on its way names the UUID only
		b.forgiven = true
	case v == nil:
		w.violate(FalseEnd, "%s ended at the server without a verdict", b.uuid)
	case (v.ExitCode == nil) != (b.exit == nil) || b.exit != nil && *v.ExitCode != *b.exit || v.Failure != b.failure:
		w.violate(Undelivered, "%s: the verdict is %+v, and the server has exit %v, failure %q", b.uuid, *v, b.exit, b.failure)
	case v.ExitCode == nil && row.Begun == nil:
	case b.lost != "": // checkEnd wants them back
	case b.upload == nil:
		w.violate(Undelivered, "%s ended without its results", b.uuid)
	case b.upload.attempt != row.Attempt.Number:
		w.violate(Superseded, "%s has the results of attempt %d, and its attempt is %d", b.uuid, b.upload.attempt, row.Attempt.Number)
	case !b.upload.complete && !w.disk.attempt(b.uuid, row.Attempt.Number).cut:
		w.violate(Undelivered, "%s has a part of its results", b.uuid)
	case b.upload.missing && !w.disk.attempt(b.uuid, row.Attempt.Number).purged:
		w.violate(Undelivered, "%s: the results were removed before they were delivered", b.uuid)
	}
}

// checkRelease checks that files are not needed before they are removed.
func (w *world) checkRelease(uuid string) {
	w.checkLedger("a removal")
	for _, a := range w.disk.bundle(uuid).attempts {
		if a.alive > 0 && !a.cut && !w.recovered {
			w.violate(DeletedEarly, "the files of %s are removed while attempt %d runs", uuid, a.number)
		}
	}
	row, ok := w.ledger.row(uuid)
	if !ok {
		return // another life of the bridge was quicker
	}
	if row.Phase != plan.Done {
		w.violate(DeletedEarly, "the files of %s are removed, and its row is %q", uuid, row.Phase)
	}
	if b := w.server.find(uuid); !row.Dropped && !w.recovered && b != nil && b.command == row.Run.Command && !b.state.Final() {
		w.violate(DeletedEarly, "the files of %s are removed, and the server has it %s", uuid, b.state)
	}
}

// checkForgotten checks a row that is about to be forgotten.
func (w *world) checkForgotten(r plan.Row) {
	if r.Phase != plan.Done {
		w.violate(Lost, "the row of %s is forgotten in %s", r.Bundle, r.Phase)
	}
}

// checkLedger checks that nothing is done on a ledger that is older than Slurm's
// jobs, as the bridge can see (I5).
func (w *world) checkLedger(what string) {
	if !w.ledger.restored || slices.ContainsFunc(w.dice.struck, func(f Fault) bool { return f.Kind == SubmitLate }) {
		return
	}
	snapshot, err := w.slurm.Observe(w.wall(), researcher)
	if err != nil {
		return
	}
	for _, j := range snapshot.Jobs {
		stamp, ok := plan.StampOf(j)
		if !ok || stamp.Bridge != w.policy.Bridge || stamp.Generation <= w.ledger.generation {
			continue
		}
		if row, ok := w.ledger.row(stamp.Bundle); ok && row.InFlight() && row.Attempt.Number == stamp.Attempt {
			continue
		}
		w.violate(Touched, "%s on a ledger of generation %d, and job %d has %d", what, w.ledger.generation, j.ID, stamp.Generation)
	}
}

// checkSubmission checks a submission.
func (w *world) checkSubmission(r sbatch.Request) {
	w.countRequest()
	w.checkLedger("a submission")
	if w.mayBeSubmittedAgain() {
		return
	}
	if a := w.attemptOf(r); a.job != 0 && !w.isUnknownToBridge(a) {
		w.violate(SubmittedTwice, "%s is submitted again, and job %d was made of it", r.Name, a.job)
	}
	for _, row := range w.ledger.rows {
		if string(row.SubmissionName) == r.Name && row.Phase != plan.Claiming && row.Phase != plan.Staging {
			return
		}
	}
	w.violate(SubmittedTwice, "%s is submitted, and no saved row is in that phase", r.Name) // I1
}

// checkMade checks a job that was made, which may be later than sbatch's answer.
func (w *world) checkMade(a *attempt, id sbatch.JobID) {
	if a.job != 0 && !a.unnamed && !w.mayBeSubmittedAgain() {
		w.violate(SubmittedTwice, "job %d was made of attempt %d, which has job %d", id, a.number, a.job)
	}
}

// mayBeSubmittedAgain reports whether the proof of absence may be wrong in this seed: a clock was set
// between two lives of the bridge, Slurm or the ledger lost its state, two bridges ran at once, or a late
// job is that of an earlier bundle of the UUID.
// It is still checked that of two jobs of one attempt only one begins.
func (w *world) mayBeSubmittedAgain() bool {
	return w.recovered || slices.ContainsFunc(w.dice.struck, func(f Fault) bool {
		return f.Kind == ClockSet || f.Kind == SlurmForgets || f.Kind == Twin || f.Kind == BundleReturns && w.dice.happen[SubmitLate]
	})
}

// isUnknownToBridge reports whether nothing tells the bridge which job an attempt has: a plugin of the
// site has rewritten its name, and sbatch's answer was lost.
func (w *world) isUnknownToBridge(a *attempt) bool {
	row, _ := w.ledger.row(a.bundle)
	return a.unnamed && row.Job.ID == 0
}

// checkCancel checks a cancellation.
func (w *world) checkCancel(id sbatch.JobID) {
	w.checkLedger("a cancellation")
	if slices.Contains(w.slurm.foreign, id) {
		w.violate(Touched, "job %d, which is not the bridge's, is cancelled", id)
	}
	a := w.slurm.attempts[id]
	if a == nil { // an orphan job
		return
	}
	if row, ok := w.ledger.row(a.bundle); ok && row.Run.Command == a.command && row.Attempt.Number == a.number && row.InFlight() && row.StopVerdict == nil && !w.recovered {
		w.violate(Touched, "job %d is cancelled while its row is %s", id, row.Phase)
	}
}

// checkBackOff checks that a controller that has not answered is left alone for a while,
// and for longer after each failure.
func (l *life) checkBackOff(command string) {
	if l.unanswered == 0 {
		return
	}
	least := min(observeEvery<<min(l.unanswered-1, 16), time.Minute)
	if since := l.w.now - l.failed; since < least || command != "squeue" {
		l.w.violate(TooManyRequests, "%s is run %s after squeue had no answer %d times", command, since, l.unanswered)
	}
}

// countRequest counts a request to the controller.
func (w *world) countRequest() {
	const window = time.Minute
	w.requests = append(w.requests, w.now)
	for len(w.requests) > 0 && w.now-w.requests[0] > window {
		w.requests = w.requests[1:]
	}
	if len(w.requests) == w.crowd.requests {
		w.violate(TooManyRequests, "%d requests to Slurm within %s", w.crowd.requests, window)
	}
}

// countStep counts a step of the bridge.
func (w *world) countStep() {
	w.steps++
	if w.rush++; w.now-w.rushed > time.Second {
		w.rushed, w.rush = w.now, 0
	}
	if w.rush == 300 {
		w.violate(Stuck, "the bridge went round in a circle")
	}
}

// checkEnd checks the site at the end.
func (w *world) checkEnd() {
	if len(w.violations) > 0 {
		return
	}
	for _, b := range w.server.bundles {
		if !b.state.Final() && !b.forgiven {
			w.violate(Lost, "%s is still %s at the server", b.uuid, b.state)
		}
		if b.lost != "" && !b.forgiven {
			w.violate(Undelivered, "the server has discarded the results of %s, and has no others", b.uuid)
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
		if !j.State.Ended() && j.Name != foreignJob && j.Name != neighbour {
			w.violate(Orphan, "job %d, %s, is still %s", j.ID, j.Name, j.State)
		}
	}
	for _, id := range w.slurm.foreign {
		if states[id] == sbatch.StateCancelled {
			w.violate(Touched, "job %d, which is not the bridge's, is %q", id, states[id])
		}
	}
}
