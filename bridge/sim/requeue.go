package sim

import (
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// quickSite is the cluster of some seeds in which packs are requeued. An administrator lets them start again at once, so that a pack may
// be back and run again between two snapshots (scontrol update StartTime=now).
var quickSite = newQuickSite()

func newQuickSite() *slurmtest.Site {
	s := newSlurmSite()
	s.RequeueDelay = 5 * time.Second
	return s
}

// smallSite returns the cluster of a seed that has no large world.
func (d *dice) smallSite() *slurmtest.Site {
	if d.packs() && d.happen[PackRequeued] && d.throw(ofSeed, 0, 16)%2 == 0 {
		return quickSite
	}
	return slurmSite
}

// mayBeRequeued takes a chance for a requeue of a pack of which members have ended, others run and others wait. In some seeds the owner of a
// run that lost its worker kills that run later.
func (p *pack) mayBeRequeued() {
	s, w := p.script, p.script.w
	if s.ended || p.concluded == 0 || len(s.workers) == 0 || len(p.waiting()) == 0 || !w.fault(PackRequeued) {
		return
	}
	n := w.dice.asked[PackRequeued]
	abrupt, kills := w.dice.coin(PackRequeued), w.dice.throw(PackRequeued, n, 6)%3 == 0
	killed := time.Duration(w.dice.throw(PackRequeued, n, 7) % uint64(3*time.Minute))
	s.at(w.dice.faultDuration(PackRequeued, 0, 30*time.Second), func() {
		lost := p.requeue(abrupt)
		if kills && len(lost) > 0 {
			w.at(killed, func() { w.server.kill(lost[0].bundle, lost[0].command) })
		}
	})
}

// requeue puts the pack back into the queue, like an administrator. Its workers get TERM; abruptly they are gone, as if Slurm killed them
// before they could write a record. requeue returns the attempts that ran.
func (p *pack) requeue(abruptly bool) (lost []*attempt) {
	s, w := p.script, p.script.w
	if w.slurm.down || s.cut || s.forgotten {
		return nil
	}
	w.update(s.launch.Job, slurmtest.Change{Requeue: true})
	if w.slurm.Requeue(w.wall(), s.launch.Job) != nil {
		return nil
	}
	w.logf("slurm", "puts pack %s back into the queue", s.launch.Job)
	for _, wk := range s.workers {
		if wk.owns {
			wk.attempt.notePlatformCause("its pack was requeued")
			lost = append(lost, wk.attempt)
		}
	}
	for _, a := range w.slurm.struck(s.launch.Job) {
		if a.exit.record != nil && !a.shownEnded { // an administrator has cancelled the job, and nothing shows that any more
			a.notePlatformCause("its pack was requeued after that")
		}
	}
	if abruptly {
		s.end(slurmtest.End{Signal: 9})
	}
	w.slurm.settle()
	return lost
}

// noteKnown notes that the bridge has saved the begin of a pack's member, and a time of submission from before any requeue since. A later
// requeue changes that time, and so the bridge can tell it.
func (w *world) noteKnown(r *plan.Row) {
	if !r.Pack || r.Begun == nil || r.Job.Submitted.IsZero() {
		return
	}
	a := w.disk.attempt(r.Bundle, r.Attempt.Number)
	a.known = a.known || a.begun > 0 && w.requeuedAt(a) < a.beganAt
}

// requeuedAt returns the time of the last requeue of the job that ran the attempt; a negative time for none.
func (w *world) requeuedAt(a *attempt) time.Duration { return w.slurm.LastRequeue(a.ran).Sub(epoch) }

// wasLeft reports whether a requeue of its pack has ended the attempt's worker, and the bridge can tell that. Slurm shows the next start of
// the job, or the time at which it was cancelled before that. So soon after the begin of the attempt this may be its own start, by another clock.
func (w *world) wasLeft(a *attempt) bool {
	back := w.requeuedAt(a)
	next := min(back+w.crowd.site.RequeueDelay, w.now)
	return a.known && a.alive == 0 && back > a.beganAt && next-a.beganAt > plan.ClockSlack+time.Second
}

// leftWithin is the longest time for which a member of a pack waits for its conclusion after a requeue that has ended its worker: ten
// minutes (docs/operators/many-runs.md, Packs), and two for the snapshots and for the last reading of its records.
const leftWithin = 12 * time.Minute

// leftRecorded is the same for one whose worker has recorded that it was terminated: a snapshot has to show the requeue, or the next start,
// and the bridge has to read the record in its turn.
const leftRecorded = 4 * time.Minute

// checkLeft checks that time. It begins anew with each start of the bridge, with a kill, and with each squeue that fails.
func (w *world) checkLeft(before, after *plan.Row) {
	runs := func(r *plan.Row) bool { return r.Phase == plan.Running || r.Phase == plan.Stopping }
	if !before.Pack || !runs(before) || runs(after) || !w.bridgeRuns() {
		return
	}
	a := w.disk.attempt(before.Bundle, before.Attempt.Number)
	end := a.exit.record
	switch {
	case !w.wasLeft(a), end != nil && !end.Terminated:
		return
	case w.clockSet > 0, w.offset != 0, w.isUnknown(a.command), a.hidden, a.unnamed, w.slurm.revoked[a.ran] != nil:
		return // the bridge may take the job for one that is gone, or its clock is wrong
	case !slices.Contains(w.slurm.attempts[a.ran], a):
		return // Slurm has forgotten the job
	}
	until, bound := w.now, leftWithin
	if end != nil {
		bound = min(bound, leftRecorded+time.Duration(len(w.ledger.rows))*readTurnEvery)
	}
	if (before.Phase == plan.Stopping || end != nil) && !before.NoJobSince.IsZero() { // since then it waits for the accounting database to tell how the job ended
		until = before.NoJobSince.Sub(epoch)
	}
	l := w.lives[len(w.lives)-1]
	since := max(w.requeuedAt(a), a.leftAt.Sub(epoch), before.PhaseSince.Sub(epoch), l.began, l.failed)
	if until-since > bound {
		w.violate(LeftWaiting, "attempt %d of %s has waited %s after a requeue of its pack has ended its worker (%s)", a.number, a.bundle, until-since, after.Reason)
	}
}
