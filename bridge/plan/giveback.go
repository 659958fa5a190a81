package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/spool"
)

// A stand-alone worker that has to end gives its runs back: the server stages them again, for another
// worker (codalab/worker/worker.py: restage_bundles). The bridge stops their commands first. It collects the
// results of a run whose command has ended by itself, unless the worker has to leave before that.

// applyGiveBack applies the news that the worker gives its runs back.
func (d *decision) applyGiveBack() {
	if !d.news.GiveBack || d.row.Dropped {
		return
	}
	v := Verdict{Cause: spool.CausePlatform, Failure: "The worker gives the bundle back.", Restage: true}
	switch d.row.Phase {
	case Collecting:
		if d.news.Leave {
			d.giveBack(v, "the worker ends before the results are collected: given back to the server")
		}
	case Finalizing, Done: // the server has the results
	case Claiming, Staging, Submitting, Queued, Running, Stopping:
		d.setStopVerdict(v, "the worker ends: the bundle is to be given back to the server")
	}
}

// giveBack reports to the server that it has to stage the bundle again.
func (d *decision) giveBack(v Verdict, reason string) {
	d.row.Verdict = &v
	d.finalize(reason)
	d.row.DueAt = d.now.Add(restagedPause)
}

// restagedPause is the time for the server to stage a bundle again before the bridge asks for the bundle's
// state. It is short because the server may delay the answer to the check-in.
const restagedPause = time.Second

// GivesBack reports whether the row waits for the server to stage its bundle again.
func (r Row) GivesBack() bool {
	return r.Phase == Finalizing && r.Verdict != nil && r.Verdict.Restage
}

// restaging: the bridge reports that the server has to stage the bundle again. The server acknowledges
// nothing; the answer to the check-in, or the bundle's state, shows that it has staged the bundle. Files
// and row go at once, because the bundle may come back as a new one.
func (d *decision) restaging() {
	d.cancelLeftJob()
	c := d.news.Confirmed
	switch {
	case d.news.Restaged:
		d.dropRow("the server has staged the bundle again")
	case c == nil:
		if !d.waiting() || d.news.Restarted || d.news.Unanswered {
			d.wantEffect(Confirm)
		}
	case c.Gone, c.Failure == "" && c.State.Final():
		d.dropRow("the bundle has ended at the server")
	case c.Failure != "":
		d.tryLater(c.Failure)
	case !d.askedSince(*c):
		d.row.DueAt = d.now.Add(restagedPause)
	case !withWorker(c.State):
		d.dropRow("the server has the bundle " + string(c.State))
	case !c.Carried:
		d.row.ReportCount++
		d.row.DueAt = d.now.Add(restagedPause)
	default:
		d.row.DueAt = d.now.Add(restagedPause)
	}
}
