package sim

import (
	"fmt"
	"time"
)

// Broken is a kind of broken promise.
type Broken string

// The promises that are checked.
const (
	// Lost: a bundle of the server's never came to its end.
	Lost Broken = "lost"
	// Stuck: a row stayed forever, or the bridge stepped in a circle.
	Stuck Broken = "stuck"
	// BegunTwice: an attempt began twice, or after the bridge gave it up.
	BegunTwice Broken = "begun_twice"
	// BegunAgain: a bundle began again without a recorded platform cause, or although its queue
	// does not allow it.
	BegunAgain Broken = "begun_again"
	// SharedDirectory: an attempt got a run directory that another attempt has.
	SharedDirectory Broken = "shared_directory"
	// FilesLost: an attempt of a bundle that is resumed did not go on with the bundle's files.
	FilesLost Broken = "files_lost"
	// ResumedTooOften: a bundle was resumed more often than it asks for.
	ResumedTooOften Broken = "resumed_too_often"
	// Superseded: results of an attempt that was given up were delivered.
	Superseded Broken = "superseded"
	// SubmittedTwice: an attempt was submitted again although it had a job.
	SubmittedTwice Broken = "submitted_twice"
	// Orphan: a job outlived its row.
	Orphan Broken = "orphans"
	// Foreign: a bundle got a claim, an end or results of another bundle with its UUID.
	Foreign Broken = "foreign"
	// Touched: the bridge ended a job that it must not end.
	Touched Broken = "touched"
	// PackEnded: a member of a pack was ended although only another one was killed or failed.
	PackEnded Broken = "packs_ended"
	// Undelivered: a result did not arrive, or arrived changed.
	Undelivered Broken = "undelivered"
	// VerdictChanged: a verdict changed after it was reported final.
	VerdictChanged Broken = "verdict_changed"
	// FalseEnd: a bundle's verdict was wrong.
	FalseEnd Broken = "false_ends"
	// DeletedEarly: files were removed that were still needed.
	DeletedEarly Broken = "deleted_early"
	// TooManyRequests: the bridge asked Slurm more often than the site allows, or too soon after Slurm had
	// not answered.
	TooManyRequests Broken = "too_many_requests"
	// FalseState: a run was reported as running before its command began, or as preparing long after.
	FalseState Broken = "false_states"
	// FalseLimit: a worker was told a time limit that its job never had.
	FalseLimit Broken = "false_limits"
	// Unheard: a bridge that could reach the server did not report a live run for a minute, and
	// the server called the run offline.
	Unheard Broken = "unheard"
	// Starved: others got more turns or places before a waiting bundle than is fair (I11).
	Starved Broken = "starved"
	// KillWaits: a bundle was killed before it began, and the bridge did not report that at once.
	KillWaits Broken = "kill_waits"
	// LeftWaiting: a run whose pack was requeued was not concluded in time.
	LeftWaiting Broken = "left_waiting"
	// Rivals: two bridges with different ledgers worked on one shared directory at the same time.
	Rivals Broken = "rivals"
	// Panicked: the bridge panicked.
	Panicked Broken = "panicked"
)

// AllBroken lists the promises that are checked.
func AllBroken() []Broken {
	return []Broken{
		Lost, Foreign, BegunTwice, SharedDirectory, FilesLost, ResumedTooOften, Stuck, Orphan, FalseEnd, SubmittedTwice, BegunAgain, Superseded, Touched, PackEnded, Undelivered, VerdictChanged, DeletedEarly, TooManyRequests, KillWaits, LeftWaiting, FalseState, FalseLimit, Unheard, Starved, Rivals, Panicked,
	}
}

// Violation is a promise that a seed broke.
type Violation struct {
	Broken Broken
	// At is the time of the check that found it. Words describe it.
	At    time.Duration
	Words string
}

func (w *world) violate(b Broken, format string, args ...any) {
	v := Violation{b, w.now, fmt.Sprintf(format, args...)}
	w.logf("BROKEN", "%s: %s", v.Broken, v.Words)
	w.violations = append(w.violations, v)
}
