package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/spool"
)

// commandLimit is the time limit of a command.
//
// The specification has the limit that the bundle asked for. The job has a longer one in Slurm, which ends the job if this
// worker does not. An administrator may change the job's limit while it runs, and the bridge records that
// (spool.TimeLimit):
//
//   - The time by which the job's limit is longer than at first is a gift: the command's limit is as much longer.
//   - If the job's limit is shorter than at first, Slurm ends the command. But a command that gets TERM ahead of its limit
//     gets it ahead of the shorter one.
type commandLimit struct {
	// asked is the limit of the specification, and now the present one.
	asked, now time.Duration
	// signal is the run time at which the command gets TERM. It is now, or earlier.
	signal time.Duration
}

// limitOf returns the limit of a specification's command after a change of the job's limit; nil for no change.
func limitOf(spec spool.Spec, changed *spool.TimeLimit) commandLimit {
	asked := longestIfNone(spec.Seconds)
	l := commandLimit{asked: asked, now: asked}
	if changed != nil && asked < longestLimit {
		first, job := longestIfNone(changed.FirstSeconds), longestIfNone(changed.Seconds)
		switch {
		case job >= first:
			l.now = min(asked+job-first, longestLimit)
		case spec.SignalSeconds > 0 || spec.KillGraceSeconds > 0:
			l.now = min(asked, max(job-signalEarly, job/2))
		}
	}
	ahead := time.Duration(max(0, spec.SignalSeconds) * float64(time.Second))
	if l.now < l.asked {
		ahead = min(ahead, l.now/2)
	}
	l.signal = l.now - ahead
	return l
}

// signalEarly is the longest time from Slurm's own signal to the job's time limit (sbatch(1): --signal), and a margin. A
// command that Slurm has signalled does not fail for its time limit.
const signalEarly = 2 * time.Minute

// longestLimit is longer than any job's run time.
const longestLimit = 100 * 365 * 24 * time.Hour

// longestIfNone returns a time limit in seconds as a duration, and longestLimit for none.
func longestIfNone(seconds float64) time.Duration {
	if !(seconds > 0) || seconds > longestLimit.Seconds() {
		return longestLimit
	}
	return time.Duration(seconds * float64(time.Second))
}

// sentence is about a command that has used up its time, or got TERM ahead of the limit, at this uptime. It begins like that
// of CodaLab's own worker (codalab/worker/worker_run_state.py: check_resource_utilization).
func (l commandLimit) sentence(uptime time.Duration) string {
	limit, advice := codalab.FormatDuration(l.now), "Ask for more with --request-time."
	switch {
	case l.now > l.asked:
		limit += ", which the site has lengthened from " + codalab.FormatDuration(l.asked)
	case l.now < l.asked:
		limit += ", which the site has shortened from " + codalab.FormatDuration(l.asked)
		advice = "Run it again, or ask the site's administrators."
	}
	if uptime < l.now {
		return fmt.Sprintf("Time limit exceeded. (TERM at container uptime %s, %s before the time limit %s) %s",
			codalab.FormatDuration(uptime), codalab.FormatDuration(l.now-uptime), limit, advice)
	}
	return fmt.Sprintf("Time limit exceeded. (Container uptime %s > time limit %s) %s", codalab.FormatDuration(roundUp(uptime)), limit, advice)
}

// changingLimit is a command's time limit while followTimeLimit follows it.
type changingLimit struct {
	present atomic.Pointer[commandLimit]
	// ran is the time for which the command has run so far.
	ran atomic.Int64
}

func newLimit(spec spool.Spec) *changingLimit {
	l := &changingLimit{}
	l.set(limitOf(spec, nil))
	return l
}

func (l *changingLimit) limit() commandLimit { return *l.present.Load() }

func (l *changingLimit) set(limit commandLimit) { l.present.Store(&limit) }

// followTimeLimit reads the record of the job's time limit until ctx ends. It reads as often as it writes status records, and
// more often when the limit comes near: a change helps only if it is read before. It runs in the background, so a shared
// disk that hangs delays nothing else.
func (r *attemptRun) followTimeLimit(ctx context.Context) {
	if r.time.limit().asked == longestLimit || r.place != nil { // a pack's job is longer than a member
		return
	}
	began := time.Now()
	for {
		left := r.time.limit().signal - time.Duration(r.time.ran.Load())
		if pause.For(ctx, min(max(left/2, samplePause), nextStatus(time.Since(began)))) != nil {
			return
		}
		r.readTimeLimit(ctx)
	}
}

// readTimeLimit reads the record of the job's time limit once.
func (r *attemptRun) readTimeLimit(ctx context.Context) {
	record, err := r.attempt.ReadTimeLimit()
	switch {
	case errors.Is(err, spool.ErrNone):
		return
	case err != nil:
		r.Log.WarnContext(ctx, "cannot read the job's time limit", slog.Any("error", err))
		return
	}
	before, now := r.time.limit(), limitOf(r.spec, &record)
	if now != before {
		r.time.set(now)
		r.Log.InfoContext(ctx, "the job's time limit was changed", slog.String("reason",
			fmt.Sprintf("the command may run for %s, and could run for %s before", codalab.FormatDuration(now.now), codalab.FormatDuration(before.now))))
	}
}

// runTime is the time for which a command has run. Slurm suspends a job by stopping its processes,
// including the worker (slurm.conf(5): PreemptMode, SUSPEND), and no clock omits the time of the
// stop. So the worker counts the time in parts of a second. A part that took two seconds or more
// contains a stop, and counts as one second.
type runTime struct {
	total   time.Duration
	counted time.Time // the end of the last part
}

const runTimePart = time.Second

// next returns the length of the next part.
func (r *runTime) next(limit time.Duration) time.Duration {
	return min(runTimePart, limit-r.total)
}

// count ends a part.
func (r *runTime) count(now time.Time) {
	part := now.Sub(r.counted)
	if part >= 2*runTimePart {
		part = runTimePart
	}
	r.total += part
	r.counted = now
}
