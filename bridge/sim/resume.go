package sim

import (
	"context"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Each command counts: it writes a number into its run directory, and begins with the number that it finds there. It ends
// when it has counted to steps. So the results of a bundle that is resumed show whether its attempts went on with their
// own files.

// steps is the number to which each command counts.
const steps = 8

// runDir is the run directory of an attempt. Nothing makes it before the preparation, or the copy of an earlier one.
type runDir struct {
	there bool
	// counted is the number in it. carried is the attempt of which it is a copy; nil for none.
	counted int
	carried *attempt
}

// count lets a command count from the number in its run directory, and then calls end. The command of a bundle that is
// not resumed writes its last number only, which takes fewer events.
func (wk *worker) count(w wants, end func()) {
	dir, step := &wk.attempt.dir, 1
	if w.resumes == 0 {
		step = steps
	}
	if dir.counted >= steps {
		end()
		return
	}
	wk.at(w.seconds*time.Duration(step)/steps, func() {
		if wk.terminated {
			return
		}
		dir.counted += step
		wk.count(w, end)
	})
}

// newResumes returns the number of times that a new bundle may be resumed.
func (w *world) newResumes() int {
	if w.dice.below(ofResumes, 3) > 0 {
		return 0
	}
	return 1 + int(w.dice.below(ofResumes, 4))
}

// Carry copies a run directory for the next attempt.
func (m mount) Carry(_ context.Context, uuid string, from, to spool.AttemptName, _ func(int)) error {
	w := m.w
	if m.crashes() {
		return errCrashed
	}
	b := w.disk.bundle(uuid)
	source, target := b.attempt(number(string(from))), b.attempt(number(string(to)))
	if target.dir.there {
		return nil
	}
	w.checkCarry(uuid, source, target)
	for _, a := range b.attempts[:target.number-1] {
		if a != source {
			a.dir = runDir{}
		}
	}
	if w.fault(CarryFails) {
		if w.dice.coin(CarryFails) {
			return errFull
		}
		return &diskError{syscall.EIO}
	}
	if m.crashes() {
		return errCrashed
	}
	if !source.dir.there {
		return &spool.CarryError{Attempt: from}
	}
	target.dir = runDir{there: true, counted: source.dir.counted, carried: source}
	if m.crashes() {
		return errCrashed
	}
	return nil
}

// checkCarry checks that a copy is made of the files of the last attempt whose command has begun, for an attempt that nobody
// has used. If the records of an attempt are gone, the bridge may not know that it has begun.
func (w *world) checkCarry(uuid string, source, target *attempt) {
	row, ok := w.ledger.row(uuid)
	if !ok || w.isUnknown(row.Run.Command) {
		return
	}
	if target.there || target.begun > 0 {
		w.violate(SharedDirectory, "files of attempt %d of %s are copied to attempt %d, which is in use", source.number, uuid, target.number)
	}
	for _, a := range w.disk.bundle(uuid).attempts[source.number : target.number-1] {
		if a.commandBegan > 0 && !a.purged && !w.isUnknown(a.command) {
			w.violate(FilesLost, "attempt %d of %s gets the files of attempt %d, and attempt %d has counted to %d since", target.number, uuid, source.number, a.number, a.dir.counted)
		}
	}
	if source.dir.there || source.released {
		return
	}
	w.violate(FilesLost, "the files of attempt %d of %s are gone before attempt %d has them", source.number, uuid, target.number)
}

// checkResumed checks the begin of an attempt of a bundle that may be resumed.
func (w *world) checkResumed(wk *worker) {
	a, n := wk.attempt, w.wants[wk.attempt.command].resumes
	if n == 0 || w.isUnknown(a.command) {
		return
	}
	begun := 0
	for _, other := range wk.bundle.attempts[:a.number-1] {
		notStarted := other.failedStart > 0 || other.commandBegan == 0 && other.exit.record != nil && other.exit.record.NotStarted
		if other.begun == 0 || notStarted || w.isUnknown(other.command) || other.purged {
			continue
		}
		if begun++; a.dir.carried == nil || !a.resumed {
			w.violate(FilesLost, "attempt %d of %s begins without the files of attempt %d", a.number, wk.bundle.uuid, other.number)
		}
	}
	if begun > n {
		w.violate(ResumedTooOften, "%s asks to be resumed %d times, and begins for the %d. time", wk.bundle.uuid, n, begun+1)
	}
}

// checkCounted checks the results of a command that has ended by itself: they are those of an undisturbed run.
func (w *world) checkCounted(a *attempt) {
	if a.ended != nil && a.dir.counted != steps && !a.purged && !w.isUnknown(a.command) {
		w.violate(FilesLost, "attempt %d of %s ended by itself, and has counted to %d", a.number, a.bundle, a.dir.counted)
	}
}

// mayBeResumed reports whether a bundle may go on after an attempt; r is the bundle's row.
func (w *world) mayBeResumed(a *attempt, r *plan.Row) bool {
	timedOut := a.limited && !a.outOfMemory && a.cancelled != a.ran // of two jobs of an attempt, the other one may be cancelled
	return w.wants[a.command].resumes > 0 && (w.platformEnded(a, r) || timedOut)
}

// filesIn returns the attempt of the files of a row's bundle.
func (w *world) filesIn(r plan.Row) *attempt {
	return w.disk.attempt(r.Bundle, number(string(r.FilesIn())))
}

// tagsOf returns the tags of a bundle.
func tagsOf(w wants) []string {
	if w.resumes == 0 {
		return nil
	}
	return []string{codalab.ResumeTag(w.resumes)}
}
