package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// checkReports checks the ends that a check-in reports.
func (w *world) checkReports(in codalab.CheckIn) {
	for i := range in.Reports {
		report := &in.Reports[i]
		if report.State != codalab.StateFinalizing {
			w.checkState(report)
			continue
		}
		now := reported{exit: -1}
		if report.ExitCode != nil {
			now.exit = *report.ExitCode
		}
		if report.FailureMessage != nil {
			now.failure = *report.FailureMessage
		}
		row, ok := w.ledger.row(report.UUID)
		if !ok {
			continue
		}
		if first, ok := w.verdicts[row.Run.Command]; ok && first != now && !w.isUnknown(row.Run.Command) {
			w.violate(VerdictChanged, "%s was reported as %+v, and then as %+v", report.UUID, first, now)
		}
		w.verdicts[row.Run.Command] = now
	}
}

// checkState compares the reported state of a run that has not ended with the truth. While faults strike, the
// bridge may learn of the begin of a command late. After that it reads the records of two runs in each turn.
func (w *world) checkState(report *codalab.RunReport) {
	row, ok := w.ledger.row(report.UUID)
	if !ok || w.isUnknown(row.Run.Command) || row.Phase != plan.Running && row.Phase != plan.Stopping {
		return
	}
	a := w.disk.attempt(report.UUID, row.Attempt.Number)
	switch report.State {
	case codalab.StateRunning:
		if a.commandBegan == 0 {
			w.violate(FalseState, "%s is reported as running, and the command of attempt %d has not begun", report.UUID, a.number)
		}
	case codalab.StatePreparing:
		shown := max(a.status.seen, calm+2*time.Minute)
		bound := time.Minute + time.Duration(len(w.ledger.rows))*readTurnEvery
		if status := a.status.record; status != nil && !status.CommandStarted.IsZero() && w.now-shown > bound {
			w.violate(FalseState, "%s is reported as preparing, and the command of attempt %d began %s ago", report.UUID, a.number, w.now-a.commandBegan)
		}
	default: // only these two are reported in these phases
	}
}

// checkReported checks a run that the server is about to call offline. A fault that kept this run's reports
// from the server excuses the bridge.
func (w *world) checkReported(b *bundle) {
	row, ok := w.ledger.row(b.uuid)
	if !w.bridgeRuns() || !ok || !row.Reportable() || row.Phase == plan.Finalizing || b.forgiven || w.isUnknown(b.command) {
		return
	}
	const reported = 45 * time.Second // the bridge reports each live run within that time: report.RefreshEvery, and slowAnswer of package bridge
	// If the answer to its claim was lost, the bridge knows of the run only since its next try.
	known := row.Times.Preparing.Sub(epoch) - w.offset
	if w.now-b.lastReport <= workerTimeout || w.now-max(b.lastReport, b.hampered, w.hampered, w.server.downUntil, known) <= reported+b.delayed {
		return
	}
	w.violate(Unheard, "%s, which is %s, was last reported %s ago", b.uuid, row.Phase, w.now-b.lastReport)
}

// hamper notes that the server gets no reports of a check-in's runs for a while, and that the bridge does
// not notice earlier. If the server limits the runs of a check-in, the queue's other runs wait too.
func (w *world) hamper(in *checkIn, while time.Duration) {
	for _, b := range w.server.bundles {
		carried := slices.ContainsFunc(in.Reports, func(r codalab.RunReport) bool { return r.UUID == b.uuid })
		if carried || w.server.mostRuns > 0 && b.wants.queue == in.Tag {
			b.hampered = max(b.hampered, w.now+while)
		}
	}
}

// delay notes that a fault takes one of the bridge's places for check-ins of a queue for a while. Where the server limits the runs of a
// check-in, reports wait for a place, and each waits longer by that place's share of the time: twenty runs fill the four places, of one
// run each, for half of a minute. Elsewhere one check-in reports all runs, and a place that is taken excuses nothing.
func (w *world) delay(queue string, while time.Duration) {
	if w.server.mostRuns == 0 {
		return
	}
	for _, b := range w.server.bundles {
		if b.wants.queue == queue {
			b.delayed += while / mostUnanswered
		}
	}
}

// checkClaim checks a claim that the server has granted. The row may be of an earlier bundle of the UUID and
// still claim that one, or claim it again for an offer that came late: then the bridge has not seen the
// offer of the new bundle.
func (w *world) checkClaim(b *bundle) {
	row, ok := w.ledger.row(b.uuid)
	switch {
	case !ok || row.Run.Command == b.command:
	case row.Phase == plan.Claiming || row.Dropped || w.offeredLate[row.Run.Command]:
		b.forgiven = true // see docs/contributors/reliability.md, I9, "Not promised"
	default:
		w.violate(Foreign, "%s is claimed for %s, and it is %s", b.uuid, row.Run.Command, b.command)
	}
}

// checkUpload checks results that go to the server.
func (w *world) checkUpload(b *bundle, run codalab.RunBundle, n int) {
	row, ok := w.ledger.row(b.uuid)
	a := w.disk.attempt(b.uuid, n)
	switch {
	case run.Command != b.command:
		w.violate(Foreign, "results of %s are delivered to %s, which is %s", run.Command, b.uuid, b.command)
	case w.isUnknown(b.command):
	case !ok || w.filesIn(row).number != n:
		w.violate(Superseded, "results of attempt %d of %s are delivered, and its files are of attempt %d", n, b.uuid, w.filesIn(row).number)
	case a.alive > 0 && !a.cut:
		w.violate(Undelivered, "results of attempt %d of %s are delivered while it runs", n, b.uuid)
	}
}

// checkResult checks the server's results when a bundle ends there.
func (w *world) checkResult(b *bundle) {
	row, ok := w.ledger.row(b.uuid)
	if !ok || w.isUnknown(b.command) || b.forgiven {
		return
	}
	v := row.Verdict
	b.awaited = row.Phase == plan.Collecting && !row.Times.Finalizing.IsZero() && w.wasHeld(b.uuid) && (b.noRoom || b.upload != nil && b.upload.onlyOutput)
	switch {
	case row.Run.Command != b.command:
		w.violate(Foreign, "%s is %s, and ended with the verdict of %s: %+v", b.uuid, b.command, row.Run.Command, v)
	case b.misreported: // a report that is under way names the UUID only
		b.forgiven = true
	case v == nil:
		w.violate(FalseEnd, "%s ended at the server without a verdict", b.uuid)
	case (v.ExitCode == nil) != (b.exit == nil) || b.exit != nil && *v.ExitCode != *b.exit || v.Failure != b.failure:
		w.violate(Undelivered, "%s: the verdict is %+v, and the server has exit %v, failure %q", b.uuid, *v, b.exit, b.failure)
	case v.ExitCode == nil && !row.HasFiles():
	case b.lost != "", b.awaited: // checkEnd checks that they come back
	case b.upload == nil && strings.Contains(v.Failure, "The end of stdout and stderr is at the server.") && !b.noRoom:
		w.violate(Undelivered, "%s ended as %+v, and nothing is at the server", b.uuid, *v)
	case row.Uncollected && w.wasHeld(b.uuid): // the verdict tells where they are
	case b.upload == nil && row.GivesUp && w.wasHeld(b.uuid): // nor had the quota room for the output
	case b.upload == nil:
		w.violate(Undelivered, "%s ended without its results", b.uuid)
	case b.upload.onlyOutput != row.GivesUp && !w.mayHaveWhole(b, row), row.GivesUp && !w.killed[row.Run.Command]:
		w.violate(Undelivered, "%s has only the output: %t; its upload was given up: %t", b.uuid, b.upload.onlyOutput, row.GivesUp)
	case b.upload.attempt != w.filesIn(row).number:
		w.violate(Superseded, "%s has the results of attempt %d, and its files are of attempt %d", b.uuid, b.upload.attempt, w.filesIn(row).number)
	case !b.upload.complete && !w.filesIn(row).cut:
		w.violate(Undelivered, "%s has a part of its results", b.uuid)
	case b.upload.missing && !w.filesIn(row).purged:
		w.violate(Undelivered, "%s: the results were removed before they were delivered", b.uuid)
	}
}

// mayHaveWhole reports whether the server may have the whole results of a bundle whose upload was given up: they arrived
// before that and the bridge did not learn it, and then the quota had no room for the output in their place.
func (w *world) mayHaveWhole(b *bundle, row plan.Row) bool {
	return row.GivesUp && !b.upload.onlyOutput && w.wasHeld(b.uuid)
}

// wasHeld reports whether the results of a bundle have exceeded their owner's disk quota.
func (w *world) wasHeld(uuid string) bool {
	b := w.server.bundleByID(uuid)
	return b == nil || b.held || w.disk.bundle(uuid).overQuota
}
