package plan

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Next decides one row. It returns the next row and the effects that are to
// be started once that is saved. It is called when news has arrived, when the
// row is due, and once for each row after a start of the bridge.
func (p Policy) Next(now time.Time, r Row, n News) (Row, []Effect) {
	d := decision{policy: &p, queue: p.Queues[r.Queue], now: now, from: r.Phase, row: r, news: n}
	d.clampClock()
	d.dropForeignJobs()
	d.applyMessages()
	d.read()
	// A phase that ends hands on to the next one at once, so that its
	// effects start with this decision.
	for before := Phase(""); before != d.row.Phase; {
		before = d.row.Phase
		d.phase()
	}
	if n.Remark != "" {
		d.remark(r.Reason)
	}
	if !d.waiting() {
		d.row.Due = time.Time{} // a pause that is over must not make the row due for ever
	}
	if d.row.Phase != r.Phase || d.row.Attempt != r.Attempt || d.row.Reason != r.Reason {
		d.row.Decided = now
	}
	if len(d.effects) > 0 {
		next := d.row // what the effects share must not keep the whole decision
		for i := range d.effects {
			d.effects[i].Row = &next
		}
	}
	return d.row, d.effects
}

// decision is one call of Next in the making.
type decision struct {
	policy  *Policy
	queue   Queue
	now     time.Time
	from    Phase // where the row was before
	row     Row
	news    News
	effects []Effect
	// late says that this news brought the attempt's exit record.
	late bool
}

// clampClock keeps a clock that was set back or forth from doing harm. A time
// that has not come yet was noted before the clock was set back: it is taken
// for now, and a pause is cut to the longest that there is. What was noted in
// another life of the bridge cannot be measured against today's clock: the
// disk gets its whole time to settle once more, and results are kept for a
// while more.
func (d *decision) clampClock() {
	r := &d.row
	for _, t := range []*time.Time{&r.Since, &r.Offered, &r.Submitted, &r.Absent, &r.Ended, &r.Looked, &r.Troubled, &r.Turned, &r.Stuck, &r.Cancelled, &r.Gone} {
		if t.After(d.now) {
			*t = d.now
		}
	}
	pause := max(d.policy.SubmitGrace, d.policy.Settle, longestBackoff)
	switch r.Phase { //nolint:exhaustive // in the others a pause is short
	case Finalizing:
		pause = max(pause, d.policy.AckPatience)
	case Done:
		pause = max(pause, d.policy.KeepAfterAck)
		if latest := d.now.Add(d.policy.KeepAfterAck); r.KeepUntil.After(latest) {
			r.KeepUntil = latest
		}
	}
	if latest := d.now.Add(pause); r.Due.After(latest) {
		r.Due = latest
	}
	if !d.news.Restarted {
		return
	}
	r.Troubled, r.Turned = time.Time{}, time.Time{} // while nobody tried, nothing failed
	if r.InFlight() && !r.Ended.IsZero() && r.Looked.Before(r.Ended.Add(d.policy.Settle)) {
		r.Ended = d.now
	}
	least := d.now.Add(min(d.policy.KeepAfterAck, keepAfterRestart))
	if r.Phase == Done && !r.Dropped && !r.Releasing && r.KeepUntil.Before(least) && r.KeepUntil.Sub(r.Since) < d.policy.KeepAfterAck+keptAfterRestarts {
		r.KeepUntil = least
	}
}

// keepAfterRestart is how long results that the server has are kept after a
// start of the bridge: the server may have been restored from an older copy
// meanwhile, and offer the bundle again. keptAfterRestarts bounds what all restarts
// together may add: a bridge that is started every minute must release the results
// in the end.
const (
	keepAfterRestart  = time.Hour
	keptAfterRestarts = 24 * time.Hour
)

// dropForeignJobs drops what Slurm said of another submission than the row's current
// one: an answer may arrive after the row has gone on. A job that has the
// submission's name but names another one in its comment is somebody else's,
// who copied the name, or of an earlier life of the bundle. The one that took
// the attempt is the row's all the same: a bridge with an old copy of its
// ledger has submitted the attempt a second time.
func (d *decision) dropForeignJobs() {
	d.news.Observation = d.ours(d.news.Observation)
	d.news.Accounting = d.ours(d.news.Accounting)
}

func (d *decision) ours(s *Observation) *Observation {
	if s == nil || d.row.SubmissionName == "" || s.SubmissionName != d.row.SubmissionName {
		return nil
	}
	foreign := func(j sbatch.Job) bool {
		bundle := commentValue(j.Comment, "bundle")
		if d.row.Begun != nil && d.row.Begun.Job == j.ID.String() && bundle == d.row.Bundle {
			return false
		}
		return bundle != "" && (bundle != d.row.Bundle || commentValue(j.Comment, "generation") != strconv.FormatInt(d.row.Generation, 10))
	}
	if slices.ContainsFunc(s.Jobs, foreign) {
		own := *s
		own.Jobs = slices.DeleteFunc(slices.Clone(s.Jobs), foreign)
		return &own
	}
	return s
}

func (d *decision) phase() {
	switch d.row.Phase {
	case Claiming:
		d.claiming()
	case Staging:
		d.staging()
	case Submitting:
		d.submitting()
	case Queued:
		d.queued()
	case Running:
		d.running()
	case Stopping:
		d.stopping()
	case Collecting:
		d.collecting()
	case Finalizing:
		d.finalizing()
	case Done:
		d.done()
	}
}

// applyMessages takes the server's messages in.
func (d *decision) applyMessages() {
	for _, m := range d.news.Messages {
		switch m.Type { //nolint:exhaustive // reads and writes are answered elsewhere; unknown messages say nothing to a row
		case codalab.MessageKill:
			d.stop(killed(m.KillMessage), "the server asked to kill it")
		case codalab.MessageRun:
			d.relocate(m.Bundle)
			d.offeredAgain()
		case codalab.MessageMarkFinalized:
			if d.row.Phase == Finalizing {
				d.acknowledged("the server acknowledged the result")
			}
		}
	}
}

// relocate takes over where the server wants the results now: each time that it
// gives a bundle to a worker it makes a place anew.
func (d *decision) relocate(offered *codalab.RunBundle) {
	if offered == nil || offered.Location == nil || d.row.Run.Location != nil && *d.row.Run.Location == *offered.Location {
		return
	}
	run := *d.row.Run // what is shared is not changed
	run.Location = offered.Location
	d.row.Run = &run
}

// offeredAgain answers a run message for a bundle that has a row already: the
// server lost our claim, or its memory.
func (d *decision) offeredAgain() {
	switch {
	case d.row.Phase == Claiming:
		d.row.Offered = d.now
	case d.row.Releasing, d.row.Dropped: // what is being removed is not begun anew; the server offers the bundle again
	case d.row.Phase == Done && d.row.Begun == nil:
		d.want(Claim)
		d.finalize("the server offered again what was done: the verdict is reported again")
	case d.row.Phase == Done, d.row.Phase == Finalizing && d.row.Begun != nil:
		// What the server has of the results may have gone with its memory.
		d.want(Claim)
		d.enter(Collecting, "the server offered again what was done: the result is delivered again")
	case d.row.Phase == Finalizing: // the verdict may have been lost: the server is asked soon
		d.want(Claim)
		d.row.Reason = "the server offered again what is ours: claimed again"
		d.wake(d.now.Add(leastAckPatience))
	default:
		d.want(Claim)
		d.row.Reason = "the server offered again what is ours: claimed again"
	}
}

// stop notes the verdict that is wanted instead of the run's own. The first
// one stands, and none is taken once the bundle has a verdict or is not ours.
func (d *decision) stop(v Verdict, reason string) {
	if d.row.Verdict != nil || d.row.Stop != nil || d.row.Phase == Done {
		return
	}
	d.row.Stop = &v
	d.row.Reason = reason
}

// read takes the records of the current attempt in, whatever the phase.
// Records of another attempt, or under another token than the one that
// stands, are nothing; so are those of an attempt that was given up for the
// next one, which has no mark yet.
func (d *decision) read() {
	if d.row.SubmissionName == "" {
		return
	}
	if c := d.news.Fenced; c != nil && c.Attempt == d.row.Attempt {
		d.fenced(*c)
	}
	rec := d.news.Records
	if rec == nil || rec.Attempt != d.row.Attempt {
		return
	}
	if !d.row.Ended.IsZero() && rec.Read.After(d.row.Looked) {
		d.row.Looked, d.row.LastWords = rec.Read, lastLine(rec.Output)
	}
	if rec.Started != nil {
		d.taken(*rec.Started)
	}
	if d.row.Begun == nil {
		return
	}
	if rec.Status != nil && rec.Status.Token == d.row.Begun.Token {
		d.row.Status = rec.Status
	}
	if rec.Exit != nil && rec.Exit.Token == d.row.Begun.Token && d.row.Exit == nil {
		d.row.Exit, d.late = rec.Exit, true
	}
}

// fenced takes in the answer to the attempt's closing. Records that stay away
// for as long as the disk may take to show them were removed by somebody: with
// them went the specification, so that no worker can begin.
func (d *decision) fenced(c Fencing) {
	switch {
	case c.Failure == "":
		d.row.Gone = time.Time{}
		if d.row.Begun == nil && !c.Standing.Fenced {
			d.row.Looked = time.Time{} // what did not show the start may not have shown the end
		}
		d.taken(c.Standing)
	case !c.Gone:
	case d.row.Gone.IsZero():
		d.row.Gone = d.now
	case d.now.Sub(d.row.Gone) >= d.policy.Settle:
		d.row.Fenced = true
	}
}

// taken takes in which record stands in the current attempt's started.
func (d *decision) taken(s spool.Started) {
	switch {
	case s.Fenced:
		d.row.Fenced = true
	case d.row.Begun == nil:
		d.row.Begun = &s
		d.beganAs(s)
	}
}

// beganAs has the row follow the job that began the attempt, where it followed
// another one: of two jobs of one attempt the end of the other says nothing.
func (d *decision) beganAs(s spool.Started) {
	id, err := strconv.ParseInt(s.Job, 10, 64)
	if err != nil || sbatch.JobID(id) == d.row.Job.ID {
		return
	}
	d.row.Job = sbatch.Job{ID: sbatch.JobID(id), Name: string(d.row.SubmissionName), State: sbatch.StateRunning, Reason: "None", Nodes: s.Node}
	d.row.Ended, d.row.Looked, d.row.Cancelled, d.row.Due = time.Time{}, time.Time{}, time.Time{}, time.Time{}
}

// remark puts the remark into the row's reason: behind a reason that this decision
// has found, or in place of the one from before.
func (d *decision) remark(before string) {
	if d.row.Reason == before {
		d.row.Reason = d.news.Remark
		return
	}
	d.row.Reason += "; " + d.news.Remark
}

// want asks for an effect.
func (d *decision) want(k Kind) {
	for _, e := range d.effects {
		if e.Kind == k {
			return
		}
	}
	d.effects = append(d.effects, Effect{Kind: k})
}

// enter moves the row to another phase. Confirm's answer is dropped: it was given to
// a question of the phase before.
func (d *decision) enter(p Phase, reason string) {
	d.row.Phase, d.row.Since, d.row.Reason = p, d.now, reason
	d.row.Due, d.row.Tries, d.row.Trouble, d.row.Low, d.row.Progress = time.Time{}, 0, "", "", ""
	d.calm()
	d.news.Confirmed = nil
}

// calm forgets that what the phase is after has failed.
func (d *decision) calm() {
	d.row.Troubled, d.row.Turned, d.row.Outage = time.Time{}, time.Time{}, false
}

// again says that what the phase is after failed, and when to try it again.
func (d *decision) again(trouble string) {
	d.row.Tries++
	d.row.Trouble = trouble
	d.row.Due = d.now.Add(backoff(d.row.Tries))
	d.row.Reason = fmt.Sprintf("try %d failed: %s", d.row.Tries, trouble)
}

// ask wants what may be wanted at will, unless it has just failed: then it is
// wanted again after a pause.
func (d *decision) ask(k Kind, failure string) {
	switch {
	case failure != "":
		d.again(failure)
	case !d.waiting():
		d.want(k)
	}
}

// waiting says whether the row waits out a pause.
func (d *decision) waiting() bool { return d.row.Due.After(d.now) }

// wake makes sure that the row is decided again by t.
func (d *decision) wake(t time.Time) {
	if d.row.Due.IsZero() || t.Before(d.row.Due) || !d.row.Due.After(d.now) {
		d.row.Due = t
	}
}

// troubledFor says whether what the phase is after has failed for long enough to
// give up, and often enough: that much time may also have passed on a clock that
// was set. Patience begins with the first failure: before, it may have worked
// for days, or waited for its turn.
func (d *decision) troubledFor(patience time.Duration) bool {
	if d.row.Troubled.IsZero() {
		d.row.Troubled = d.now
	}
	return d.now.Sub(d.row.Troubled) > patience && d.row.Tries >= leastTries
}

// leastTries is how often a phase fails before it is given up.
const leastTries = 5

const longestBackoff = time.Minute

// backoff is the pause after the n-th failure in a row: 1 s, doubled up to a
// minute. Rows fail at different moments, which spreads them enough.
func backoff(n int) time.Duration {
	if n > 6 {
		return longestBackoff
	}
	return min(time.Second<<max(n-1, 0), longestBackoff)
}
