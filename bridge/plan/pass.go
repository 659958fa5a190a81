package plan

import "time"

// AtWork reports whether the bridge itself has something to do for the row within a time. It has nothing to do while the job
// waits or runs in Slurm, while the row pauses for longer, and when it is done.
func (r Row) AtWork(now time.Time, within time.Duration) bool {
	paused := r.DueAt.After(now.Add(within))
	switch r.Phase {
	case Claiming, Submitting, Stopping, Finalizing:
		return !paused
	case Staging:
		return r.NeedsDisk() && !paused && r.DiskLow == "" // else it waits for its turn, which depends on other rows
	case Queued:
		return !r.NoJobSince.IsZero() && !paused
	case Running:
		return (r.Exit != nil || !r.NoJobSince.IsZero() || r.UsageUnread) && !paused
	case Collecting:
		return !paused
	case Done:
	}
	return false
}

// Ails reports whether the row goes on only after a failure has been mended: the bridge has tried something in vain, or its
// queue is held up.
func (r Row) Ails() bool {
	switch r.Phase {
	case Claiming, Staging, Submitting, Collecting, Finalizing:
		return r.FailedTries > 0 || r.DiskLow != "" || r.Held != ""
	case Queued, Running, Stopping, Done:
	}
	return false
}
