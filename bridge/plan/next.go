package plan

import (
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Next decides one row. It returns the next row, and the effects that the bridge starts once
// that row is saved. The bridge calls it when a row has news, when the row is due, and once for
// each row after a start.
func (p Policy) Next(now time.Time, r Row, n News) (Row, []Effect) {
	d := decision{policy: p, queue: p.Queues[r.Queue], now: now, from: r.Phase, row: r, news: n}
	d.clampClock()
	d.dropForeignJobs()
	if d.news.Held != nil {
		d.row.Held = *d.news.Held
	}
	if d.news.AtLimit != nil && d.row.Phase == Staging {
		d.row.AtLimit = *d.news.AtLimit
	}
	d.applyMessages()
	d.applyGiveBack()
	d.applyRecords()
	// A row that enters a phase is decided in it at once: that phase's effects start now.
	for before := Phase(""); before != d.row.Phase; {
		before = d.row.Phase
		d.decidePhase()
	}
	if n.Remark != "" {
		d.applyRemark(r.Reason)
	}
	if !d.waiting() {
		d.row.DueAt = time.Time{} // a pause that is over must not keep the row due
	}
	if d.row.Phase != r.Phase || d.row.Attempt.Number != r.Attempt.Number || d.row.Reason != r.Reason {
		d.row.DecidedAt = now
	}
	if len(d.effects) > 0 {
		next := d.row // the effects must not keep the whole decision in memory
		for i := range d.effects {
			d.effects[i].Row = &next
		}
	}
	return d.row, d.effects
}

// decision is the state of one call of Next.
type decision struct {
	policy  Policy
	queue   Queue
	now     time.Time
	from    Phase // the phase before this decision
	row     Row
	news    News
	effects []Effect
	// exitIsNew is set when this news brought the attempt's exit record.
	exitIsNew bool
}

// clampClock limits the damage if somebody set the clock. A time in the future was noted before the
// clock was set back: clampClock sets it to the present, and cuts the pause to the longest one of the phase.
// After a restart, earlier times may be of another setting of the clock. So the disk gets its whole time
// to settle again, a revoked job its whole patience, and results stay for a while longer.
func (d *decision) clampClock() {
	r := &d.row
	for _, t := range []*time.Time{&r.PhaseSince, &r.ReofferedAt, &r.SubmittedAt, &r.AbsentAsOf, &r.NoJobSince, &r.RecordsReadAt, &r.FailingSince, &r.FailureKindSince, &r.ImpossibleSince, &r.RefusedSince, &r.StartsFailSince, &r.RevokedSince, &r.CancelledAt, &r.RecordsGoneSince} {
		if t.After(d.now) {
			*t = d.now
		}
	}
	pause := max(d.policy.SubmitGrace, d.policy.Settle, longestBackoff)
	switch r.Phase {
	case Staging:
		pause = max(pause, longestRegistryPause)
	case Collecting:
		if r.Room != nil {
			pause = max(pause, longestRoomPause)
		}
		if r.Room != nil && r.Room.Since.After(d.now) {
			wait := *r.Room // other rows may share the old value
			wait.Since, wait.Until = d.now, d.now.Add(d.policy.QuotaPatience)
			r.Room = &wait
		}
	case Finalizing:
		pause = max(pause, d.policy.LongestAckPause)
	case Done:
		pause = max(pause, d.policy.KeepAfterAck)
		if latest := d.now.Add(d.policy.KeepAfterAck); r.KeepUntil.After(latest) {
			r.KeepUntil = latest
		}
	default: // other phases have short pauses
	}
	if latest := d.now.Add(pause); r.DueAt.After(latest) {
		r.DueAt = latest
	}
	if !d.news.Restarted {
		return
	}
	r.FailingSince, r.FailureKindSince, r.ImpossibleSince, r.RevokedSince = time.Time{}, time.Time{}, time.Time{}, time.Time{} // no bridge tried, so nothing failed
	if !r.RefusedSince.IsZero() {
		r.RefusedSince = d.now
	}
	if r.InFlight() && !r.NoJobSince.IsZero() && r.RecordsReadAt.Before(r.NoJobSince.Add(d.policy.Settle)) {
		r.NoJobSince = d.now
	}
	if r.Begun != nil && r.Exit == nil && !r.Job.State.Ended() {
		r.RecordsReadAt = time.Time{} // the worker's status is lost (mayLive)
	}
	least := d.now.Add(min(d.policy.KeepAfterAck, keepAfterRestart))
	if r.Phase == Done && !r.Dropped && !r.Releasing && r.KeepUntil.Before(least) && r.KeepUntil.Sub(r.PhaseSince) < d.policy.KeepAfterAck+keptAfterRestarts {
		r.KeepUntil = least
	}
}

// After a start of the bridge, results that the server has acknowledged stay for keepAfterRestart: the
// server may have been restored from an older copy and offer the bundle again. keptAfterRestarts bounds
// the sum over all restarts, so that a bridge that restarts every minute still releases them.
const (
	keepAfterRestart  = time.Hour
	keptAfterRestarts = 24 * time.Hour
)

// dropForeignJobs drops observations of other submissions than the row's current one, because an answer
// may arrive after the row has moved on. It also drops jobs that are not the attempt's.
func (d *decision) dropForeignJobs() {
	d.news.Observation = d.withoutForeign(d.news.Observation)
	d.news.Accounting = d.withoutForeign(d.news.Accounting)
}

// withoutForeign returns the observation without foreign jobs; nil if it concerns another submission.
func (d *decision) withoutForeign(s *Observation) *Observation {
	if s == nil || d.row.SubmissionName == "" || s.SubmissionName != d.row.SubmissionName {
		return nil
	}
	foreign := func(j sbatch.Job) bool { return !d.owns(j) }
	if slices.ContainsFunc(s.Jobs, foreign) {
		own := *s
		own.Jobs = slices.DeleteFunc(slices.Clone(s.Jobs), foreign)
		return &own
	}
	return s
}

// owns reports whether a job is the attempt's.
//
// A comment that Request wrote decides (Row.Stamped), even for a job that has the submission's name,
// because a user may have copied the name. A job with the submission's name and no such comment is the
// attempt's: the site has rewritten the comment.
//
// A site may rewrite the name as well. Then the attempt's job is the one whose id sbatch printed, or
// whose worker began the attempt. But a controller that has lost its state reuses ids, and a wrapper
// of sbatch may print any number. So the time at which the controller accepted the job must fit:
//
//   - if the attempt has begun, that time is before the start, and not before the time that the row
//     knows (a requeue makes it later);
//   - but a member of a pack begins long after its job was accepted: a job of another time than the row
//     knows has to be on the node where the member began, or on none;
//   - else, if the row knows a time, the two are equal;
//   - else that time is about the time of sbatch.
func (d *decision) owns(j sbatch.Job) bool {
	r := &d.row
	stamp, stamped := StampOf(j)
	began := r.Begun != nil && r.Begun.Job == j.ID.String() // maybe for a submission that an older copy of the ledger does not know
	shared, isShared := SharedStampOf(j)
	_, index, isTask := j.ID.ArrayTask()
	switch {
	case isShared && began: // after a loss of Slurm's state, the task of another array may have the id
		return r.Begun.Submission == shared.Submission()
	case isShared:
		return shared.Bridge == d.policy.Bridge && r.Shared && shared.Generation == r.Generation && (r.Pack || isTask && index == r.Index)
	case r.Shared && !r.Pack && !began && (!isTask || index != r.Index):
		return false
	}
	switch {
	case stamped:
		return stamp.Bundle == r.Bundle && stamp.Bridge == d.policy.Bridge && r.Stamped(j, stamp)
	case commentValue(j.Comment, "bundle") != "":
		return false
	case j.Name == string(r.SubmissionName):
		return true
	case d.policy.isName(j.Name): // another submission's: sacct shows older jobs of the id too
		return false
	case j.ID != r.Job.ID || j.Submitted.IsZero():
		return false
	case began && r.Pack && !j.Submitted.Equal(r.Job.Submitted) && j.Nodes != "" && j.Nodes != r.Begun.Node:
		return false
	case began && !r.Begun.At.IsZero():
		return !j.Submitted.Before(r.Job.Submitted) && j.Submitted.Before(r.Begun.At.Add(ClockSlack))
	case !r.Job.Submitted.IsZero():
		return j.Submitted.Equal(r.Job.Submitted)
	}
	return j.Submitted.After(r.SubmittedAt.Add(-ClockSlack)) && j.Submitted.Before(r.SubmittedAt.Add(d.policy.SubmitGrace+ClockSlack))
}

// ClockSlack is the largest difference between the clocks of the bridge's and the controller's hosts, and between those of
// a node and the controller's.
const ClockSlack = time.Minute

func (d *decision) decidePhase() {
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
	case Collecting, Finalizing:
		d.ending()
	case Done:
		d.done()
	}
}

// ending collects the results of a bundle that still belongs to this bridge, and reports its verdict.
func (d *decision) ending() {
	switch {
	case d.row.Dropped:
		d.dropRow(d.row.Reason)
	case d.row.Phase == Collecting:
		d.collecting()
	case d.row.GivesBack():
		d.restaging()
	default:
		d.finalizing()
	}
}

// applyMessages applies the server's messages to the row.
func (d *decision) applyMessages() {
	for _, m := range d.news.Messages {
		switch m.Type {
		case codalab.MessageKill:
			if d.row.Phase == Collecting && d.row.Room != nil {
				d.killWaiting(m.KillMessage)
				continue
			}
			if d.row.Phase == Collecting {
				d.killUpload(m.KillMessage)
				continue
			}
			if stop := d.row.StopVerdict; stop != nil && stop.Restage {
				d.row.StopVerdict = nil // a bundle that was killed does not begin again
			}
			d.setStopVerdict(killVerdict(m.KillMessage), "the server asked to kill it")
		case codalab.MessageRun:
			if m.Bundle != nil && !d.row.Run.Identity().Same(m.Bundle.Identity()) {
				d.replaced()
				continue
			}
			d.applyLocation(m.Bundle)
			d.offeredAgain()
		case codalab.MessageMarkFinalized:
			if d.row.Phase == Finalizing {
				d.endReporting("the server acknowledged the verdict")
			}
		default: // package bridge replies to reads and does writes; unknown messages change no row
		}
	}
}

// applyLocation notes the location at which the server wants the results. The server makes a new one each
// time it gives a bundle to a worker.
func (d *decision) applyLocation(offered *codalab.RunBundle) {
	if offered == nil || offered.Location == nil || d.row.Run.Location != nil && *d.row.Run.Location == *offered.Location {
		return
	}
	run := *d.row.Run // other rows may share the old value
	run.Location = offered.Location
	d.row.Run = &run
}

// offeredAgain applies an offer of a bundle that has a row: the server has lost the
// claim, or was restored from an older copy.
func (d *decision) offeredAgain() {
	switch {
	case d.row.Phase == Claiming:
		d.row.ReofferedAt = d.now
	case d.row.Releasing, d.row.Dropped: // its files are being removed; the server will offer the bundle again, and it gets a new row
	case d.row.GivesBack():
		d.dropRow("the server has staged the bundle again")
	case d.row.Phase == Done && !d.row.HasFiles():
		d.wantEffect(Claim)
		d.finalize("the server offered the bundle again after its end: the verdict is reported again")
	case d.row.Phase == Done, d.row.Phase == Finalizing && d.row.HasFiles():
		// The server may have lost the results too.
		d.wantEffect(Claim)
		d.enter(Collecting, "the server offered the bundle again after its end: the results are collected again")
	case d.row.Phase == Finalizing: // the verdict may be lost: Confirm asks the server soon
		d.wantEffect(Claim)
		d.row.Reason = "the server offered the bundle again: claimed again"
		d.decideBy(d.now.Add(firstAckPause))
	default:
		d.wantEffect(Claim)
		d.row.Reason = "the server offered the bundle again: claimed again"
	}
}

// replaced gives the row's bundle up, because the server has another bundle of its UUID. The new bundle
// gets a row when the server offers it after this row is forgotten. The bridge reports and collects
// nothing of the old bundle. It stops the old job first, because the files go with the row.
func (d *decision) replaced() {
	const reason = "the server has another bundle of this UUID: the earlier one was deleted"
	switch {
	case d.row.Releasing, d.row.Dropped:
	case d.row.InFlight():
		d.row.Dropped = true
		d.setStopVerdict(Verdict{Cause: spool.CauseUser, Failure: "The bundle was deleted."}, reason)
	default:
		d.dropRow(reason)
	}
}

// setStopVerdict notes a verdict that replaces the run's own. The first one counts. A bundle that has a verdict,
// or does not belong to this bridge, gets none.
func (d *decision) setStopVerdict(v Verdict, reason string) {
	if d.row.Verdict != nil || d.row.StopVerdict != nil || d.row.Phase == Done {
		return
	}
	d.row.StopVerdict = &v
	d.row.Reason = reason
}

// applyRecords applies the records of the current attempt, in any phase. It ignores records of another
// attempt, and records with another token than the owner's. It also ignores those of an attempt that was
// given up for the next one, which has no submission name yet.
func (d *decision) applyRecords() {
	if d.row.SubmissionName == "" {
		return
	}
	if c := d.news.Fenced; c != nil && c.Attempt == d.row.Attempt.Number {
		d.applyFencing(*c)
	}
	rec := d.news.Records
	if rec == nil || rec.Attempt != d.row.Attempt.Number {
		return
	}
	if !d.row.NoJobSince.IsZero() && rec.Read.After(d.row.RecordsReadAt) {
		d.row.RecordsReadAt, d.row.OutputTail = rec.Read, lastLine(rec.Output)
	}
	if !rec.Read.IsZero() {
		d.row.UsageUnread = false
	}
	if rec.Started != nil {
		d.applyStarted(*rec.Started)
	}
	if d.row.Begun == nil {
		return
	}
	if rec.Status != nil && rec.Status.Token == d.row.Begun.Token {
		d.applyStatus(*rec.Status)
	}
	if rec.Exit != nil && rec.Exit.Token == d.row.Begun.Token && d.row.Exit == nil {
		d.row.Exit, d.exitIsNew = rec.Exit, true
	}
	if exit := d.row.Exit; exit != nil && (exit.ExitCode != nil || !exit.CommandStarted.IsZero()) {
		d.noteCommand()
	}
}

// noteCommand notes that a record shows the begin of the attempt's command.
func (d *decision) noteCommand() {
	if d.row.CommandBegan {
		return
	}
	d.row.CommandBegan = true
	if d.row.RunningAt.IsZero() { // earlier versions noted the begin of the attempt
		d.row.RunningAt = d.now
	}
	if d.row.Phase == Running && d.row.Exit == nil {
		d.row.Reason = "the command began on " + d.row.Node()
	}
}

// applyFencing applies the outcome of fencing the attempt. If the records stay missing for as long as the
// disk may take to show them, somebody removed them. The specification is gone too, so no worker can
// begin.
func (d *decision) applyFencing(c Fencing) {
	switch {
	case c.Failure == "":
		d.row.RecordsGoneSince = time.Time{}
		if d.row.Begun == nil && !c.Started.Fenced {
			d.row.RecordsReadAt = time.Time{} // a reading that missed the start may have missed the end
		}
		d.applyStarted(c.Started)
	case !c.Gone:
	case d.row.RecordsGoneSince.IsZero():
		d.row.RecordsGoneSince = d.now
	case d.now.Sub(d.row.RecordsGoneSince) >= d.policy.Settle:
		d.row.Fenced = true
	}
}

// applyStarted applies the current attempt's started record.
func (d *decision) applyStarted(s spool.Started) {
	switch {
	case s.Fenced:
		d.row.Fenced = true
	case d.row.Begun == nil:
		d.row.Begun, d.row.SlurmVersion = &s, d.policy.SlurmVersion
		if d.row.Pack = begunByPack(s); d.row.Pack {
			d.row.TimeLimits = TimeLimits{} // an older copy of the ledger may know a job of its own, and the pack's limit is not a member's
		}
		d.followJob(s)
		switch j := &d.row.Job; {
		case d.row.Shared && j.State == sbatch.StateCancelled && j.Nodes == "":
			j.State = sbatch.StatePending // it was only missing beside the other tasks, and was not cancelled while it waited
		case d.row.Pack && endsOneRun(j.State) && d.now.Sub(s.At) < silentFor:
			*j = sbatch.Job{ID: j.ID, Cluster: j.Cluster, Name: j.Name, State: sbatch.StatePending, Reason: "None"} // it may run again
		}
		d.row.SubmittedAsBegun = d.row.Job.Submitted
		// As for a new status record: a member of a pack may begin long after a snapshot lacked the pack. A revoked job gets its patience anew.
		if d.livesUnseen(s.At) || d.row.Job.State == sbatch.StateRevoked {
			d.row.NoJobSince = time.Time{}
		}
	}
}

// followJob makes the row follow the job that began the attempt. If the attempt has two jobs, the other
// one's end does not count.
func (d *decision) followJob(s spool.Started) {
	id, err := sbatch.ParseJobID(s.Job)
	if err != nil || id == d.row.Job.ID {
		return
	}
	d.row.Job = sbatch.Job{ID: id, Name: string(d.row.SubmissionName), State: sbatch.StateRunning, Reason: "None", Nodes: s.Node}
	d.row.NoJobSince, d.row.RecordsReadAt, d.row.CancelledAt, d.row.DueAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
}

// applyRemark adds the remark to the reason of this decision. It replaces a reason that did not change.
func (d *decision) applyRemark(before string) {
	if d.row.Reason == before {
		d.row.Reason = d.news.Remark
		return
	}
	d.row.Reason += "; " + d.news.Remark
}

// wantEffect adds an effect to the decision, once.
func (d *decision) wantEffect(k Kind) {
	for _, e := range d.effects {
		if e.Kind == k {
			return
		}
	}
	d.effects = append(d.effects, Effect{Kind: k})
}

// enter moves the row to another phase. It drops Confirm's answer, which belongs to a question of the
// previous phase.
func (d *decision) enter(p Phase, reason string) {
	d.row.Phase, d.row.PhaseSince, d.row.Reason = p, d.now, reason
	d.row.DueAt, d.row.Retry, d.row.DiskLow, d.row.Progress = time.Time{}, Retry{}, "", ""
	d.row.AtLimit = ""
	d.news.Confirmed = nil
}
