package plan

import (
	"cmp"
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// A bundle may ask to be resumed up to N times (codalab.Metadata.Resumes). If the platform or a time limit has ended an
// attempt that has begun, such a bundle gets another attempt, with a copy of its files. It begins again in no other way
// after its command may have begun: the queue's RetryBegun does not count, which begins it with none.
//
// Each attempt has a directory of its own, because a process of the last one may still run on a node that Slurm has
// lost. The files are copied while the row is staged, before the next attempt is submitted.

// Resumption is the state of a bundle that asks to be resumed.
type Resumption struct {
	// Count is the number of times that it was resumed.
	Count int `json:"count,omitempty"`
	// From is the last attempt that was given up and whose command may have begun; empty for none. The bundle's files are
	// in its run directory until the next attempt has a copy of them and begins.
	From spool.AttemptName `json:"from,omitempty"`
	// Copied is the number of the attempt whose run directory is a copy of From's; 0 while there is none.
	Copied int `json:"copied,omitempty"`
	// Why is the sentence about the end of From.
	Why string `json:"why,omitempty"`
}

// resumes returns the number of times that the bundle may be resumed; 0 for a wrong number, for which refusal refuses the
// bundle.
func (r Row) resumes() int {
	n, _ := r.asksToResume() // see above
	return n
}

func (r Row) asksToResume() (times int, err error) {
	if r.Run == nil { // of an old row
		return 0, nil
	}
	return r.Run.Metadata.Resumes()
}

// FilesIn returns the attempt whose run directory has the bundle's files.
func (r Row) FilesIn() spool.AttemptName {
	if r.Begun == nil {
		return cmp.Or(r.Resumption.From, r.OnDisk)
	}
	return r.OnDisk
}

// HasFiles reports whether the bundle has files: an attempt has begun.
func (r Row) HasFiles() bool { return r.Begun != nil || r.Resumption.From != "" }

// awaitsFiles reports whether the next attempt has to get a copy of the bundle's files before it is submitted.
func (r Row) awaitsFiles() bool {
	return r.Resumption.From != "" && r.Resumption.Copied != r.Attempt.Number+1
}

// NeedsDisk reports whether the bridge has to put the bundle's inputs or a copy of its files onto the shared disk.
func (r Row) NeedsDisk() bool { return r.Phase == Staging && (r.Staged == nil || r.awaitsFiles()) }

// interrupted reports whether the platform or a time limit has ended an attempt that has begun. A command that ends with 0
// after TERM counts, too: it may have saved its state as it was told to. A failed start has a bound of its own.
func (d *decision) interrupted(v Verdict) bool {
	exit := d.row.Exit
	_, failedStart := d.failedStart()
	switch {
	case d.row.Begun == nil, d.row.StopVerdict != nil, failedStart:
		return false
	case v.Cause == spool.CausePlatform, exit != nil && exit.TimedOut:
		return true
	case v.Cause == spool.CauseSucceeded:
		return exit != nil && exit.Terminated
	}
	return v.Cause == spool.CauseLimit && d.row.Job.State == sbatch.StateTimeout && (exit == nil || exit.Terminated)
}

// worksOnNode reports whether the queue's commands work on the nodes' own disks. Their files come to the shared disk at
// their end, perhaps in part, so no attempt can go on with them.
func (d *decision) worksOnNode() bool { return d.queue.WorkingDirDisk == spool.WorkingDirLocal }

// resume gives an interrupted bundle another attempt if it asks for that, and reports whether it did.
func (d *decision) resume(v Verdict) bool {
	if !d.interrupted(v) || d.row.Resumption.Count >= d.row.resumes() || d.worksOnNode() {
		return false
	}
	number, why := d.row.Attempt.Number, cmp.Or(v.Failure, "The job was terminated before the command had ended.")
	d.nextAttempt(why)
	r := &d.row
	r.Resumption.Count++
	r.Resumption.Why = why
	r.Reason = fmt.Sprintf("attempt %d was interrupted, and the bundle is resumed (%d of %d): %s", number, r.Resumption.Count, r.resumes(), why)
	r.DueAt = d.now.Add(resumePause)
	// The failures before the begin of the command are of days ago, perhaps.
	r.FailedAttempts, r.FailedStarts, r.StartsFailSince = 0, 0, time.Time{}
	r.FailedNode, r.FailedSurely, r.SickNodes = "", false, ""
	return true
}

// resumePause is the pause before the files of an interrupted attempt are copied. It is as short as the one after the first
// failed attempt, because the number of resumptions is bounded.
const resumePause = time.Second

// keepFiles notes that the files of the attempt that is given up are the bundle's.
func (d *decision) keepFiles() {
	if d.row.resumes() > 0 && d.row.Begun != nil && !d.notStarted() {
		d.row.Resumption.From, d.row.Resumption.Copied = d.row.OnDisk, 0
	}
}

// explainResumption adds to the sentence about an interruption why the bundle is not resumed once more.
func (d *decision) explainResumption(v Verdict) Verdict {
	n := d.row.resumes()
	switch {
	case n == 0 || v.Failure == "" || !d.interrupted(v):
	case d.worksOnNode():
		v.Failure += fmt.Sprintf(" It is not resumed, because the runs of queue %s work on the nodes' own disks.", d.queue.Tag)
	case d.row.Resumption.Count >= n:
		v.Failure += fmt.Sprintf(" The run was resumed %s before, as often as it asks for (--resume %d).", termtext.Count(d.row.Resumption.Count, "time"), n)
		switch last, known := d.row.lastTried(mostNamed); {
		case known > mostNamed:
			v.Failure += fmt.Sprintf(" Its last %d attempts before ran on %s.", mostNamed, last)
		case known > 0:
			v.Failure += " Its attempts before ran on " + last + "."
		}
	}
	return v
}

// mostNamed bounds the earlier attempts that a sentence names. The history at the server has more.
const mostNamed = 10

// carrying: the next attempt gets a copy of the bundle's files, unless it has one.
func (d *decision) carrying() {
	if !d.row.awaitsFiles() {
		return
	}
	d.applyDiskSpace()
	end := d.news.Carried
	if end != nil || d.news.Progress != "" {
		d.row.Progress = d.news.Progress
	}
	switch {
	case end == nil:
		if !d.waiting() && d.row.DiskLow == "" {
			d.wantEffect(Carry)
		}
	case end.Failure == "":
		d.row.Resumption.Copied = d.row.Attempt.Number + 1
		d.row.DueAt, d.row.Retry, d.row.Progress, d.row.DiskLow = time.Time{}, Retry{}, "", ""
		d.row.Reason = fmt.Sprintf("attempt %d has a copy of the files", d.row.Resumption.Copied)
	case end.Final && !end.Full || d.stagingPatienceOver(*end):
		d.endUnbegun(platform("%s The run could not be resumed: %s", codalab.Sentence(d.row.Resumption.Why), codalab.Sentence(end.Failure)),
			"the files could not be copied for the next attempt")
	default:
		d.tryLater(end.Failure)
	}
}

// resumingStatus returns the sentence about a bundle whose next attempt is being prepared.
func (r Row) resumingStatus() string {
	return fmt.Sprintf("Interrupted, and resumed with a copy of its files (%d of %d): %s", r.Resumption.Count, r.resumes(), codalab.Sentence(r.Resumption.Why))
}
