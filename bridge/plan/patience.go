package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
)

// tryLater notes that the work of the phase failed, and sets the time of the next try.
func (d *decision) tryLater(failure string) {
	d.row.FailedTries++
	d.row.LastFailure = failure
	d.row.DueAt = d.now.Add(pauseAfter(d.row.FailedTries))
	d.row.Reason = fmt.Sprintf("try %d failed: %s", d.row.FailedTries, failure)
}

// wantUnlessFailed wants an effect that may be repeated at will. After a failure it wants the effect again
// after a pause.
func (d *decision) wantUnlessFailed(k Kind, failure string) {
	switch {
	case failure != "":
		d.tryLater(failure)
	case !d.waiting():
		d.wantEffect(k)
	}
}

// waiting reports whether the row is in a pause.
func (d *decision) waiting() bool { return d.row.DueAt.After(d.now) }

// decideBy makes the row due at t or earlier.
func (d *decision) decideBy(t time.Time) {
	if d.row.DueAt.IsZero() || t.Before(d.row.DueAt) || !d.row.DueAt.After(d.now) {
		d.row.DueAt = t
	}
}

// patienceOver reports whether the work of the phase has failed for longer than patience, and in at least
// leastTries tries. The number of tries counts because somebody may have set the clock. Patience begins
// with the first failure, because before it the work may have gone well for days, or waited for its turn.
func (d *decision) patienceOver(patience time.Duration) bool {
	if d.row.FailingSince.IsZero() {
		d.row.FailingSince = d.now
	}
	return d.now.Sub(d.row.FailingSince) > patience && d.row.FailedTries >= leastTries
}

// leastTries is the least number of failures before the work of a phase is given up.
const leastTries = 5

const longestBackoff = time.Minute

// pauseAfter returns the pause after n failures of a row in a row. It has no random part, because rows
// fail at different moments.
func pauseAfter(n int) time.Duration { return backoff.After(n, time.Second, longestBackoff) }

// longestRegistryPause bounds the pause that a registry asks for.
const longestRegistryPause = 6 * time.Hour

// fullPatience is the longest time that staging waits for room on a disk. It is bounded because a bundle
// that is too large for the whole disk must not keep it full forever.
const fullPatience = 3 * 24 * time.Hour

// stagingPatienceOver reports whether to give up staging that fails. Patience begins with the first
// failure, because staging may have worked for hours before it. An outage or a full disk does not use up
// the patience with the bundle's own failures, and these do not use up the patience with outages; but a
// bundle that fails for both in turns is given up in the end. Nothing is given up while the disk is below
// its low water.
func (d *decision) stagingPatienceOver(o Outcome) bool {
	patience, outage := d.policy.StagePatience, o.Outage || o.Full
	if o.Outage {
		patience = max(patience, d.policy.OutagePatience)
	}
	if o.Full {
		patience = max(patience, fullPatience)
	}
	r := &d.row
	switch {
	case r.FailingSince.IsZero():
		r.FailingSince = d.now
	case r.FailedByOutage != outage:
		r.FailureKindSince = d.now
	}
	r.FailedByOutage = outage
	since := r.FailingSince
	if r.FailureKindSince.After(since) {
		since = r.FailureKindSince
	}
	if tries := d.policy.StageTries; tries > 0 && !outage && r.FailedTries+1 >= tries {
		return r.DiskLow == ""
	}
	inAll := max(d.policy.StagePatience, d.policy.OutagePatience, fullPatience)
	long := d.now.Sub(since) > patience || d.now.Sub(r.FailingSince) > inAll
	return long && r.FailedTries >= leastTries && r.DiskLow == ""
}
