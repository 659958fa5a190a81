package bridge

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Settings are asked for after an answer of squeue: again each hour, since an administrator may
// change them, and each minute while there is no answer.
const (
	settingsEvery = time.Hour
	settingsRetry = time.Minute
)

// AskSettings asks Slurm for its settings when that is due, and returns when it is due next. The
// bridge goes on with what it knows if there is no answer.
func (b *Bridge) AskSettings(ctx context.Context, now, due time.Time) time.Time {
	if b.Settings == nil || now.Before(due) {
		return due
	}
	s, err := b.Settings(ctx)
	if ctx.Err() != nil {
		return due
	}
	b.beat.settings(s, err)
	if err != nil {
		b.Log.WarnContext(ctx, "Slurm's settings are not known; safe values are used", errorAttr(err))
		return now.Add(settingsRetry)
	}
	b.inbox.putSettings(s)
	return now.Add(settingsEvery)
}

// applySettings lets decisions and the pace follow Slurm's settings.
func (b *Bridge) applySettings(ctx context.Context, now time.Time, in *arrivals) {
	if in.settings == nil || b.followed != nil && *b.followed == *in.settings {
		return
	}
	b.followed = in.settings
	if b.Adapt != nil {
		b.Adapt(&b.deciding, *in.settings)
	}
	if b.TracePolicy != nil {
		b.TracePolicy(b.deciding)
	}
	b.setPace(now, in.settings.RateLimit)
	b.Log.InfoContext(ctx, "Slurm's settings", slog.String("cluster", in.settings.Cluster), slog.Bool("accounting", in.settings.Accounting),
		slog.Duration("min_job_age", in.settings.MinJobAge), slog.Float64("requests_per_second", in.settings.RateLimit.PerSecond))
}

// What commands use up of a bound on requests: sbatch one request, squeue observeRequests
// (sbatch.Client.Observe), scancel one for each job (sbatch.Client.Cancel). Where there is a bound, one
// scancel ends cancelRequests jobs at most.
const (
	cancelRequests  = 3
	observeRequests = 2
)

// setPace bounds submissions and cancellations by the controller's bound on the requests of one
// user. A quarter of it stays for the user's other commands. Where the rest is small, submissions
// and cancellations share it: each cancellation uses up submissions, half of them at most.
func (b *Bridge) setPace(now time.Time, site sbatch.RateLimit) {
	usual := cmp.Or(b.Pace, DefaultPace())
	submits, cancels := rate.Limit(usual.PerSecond), rate.Limit(usual.PerSecond)
	submitBurst, cancelBurst := usual.Burst, usual.Burst
	b.shared = false
	if site.PerSecond > 0 {
		left := rate.Limit(max(site.PerSecond*3/4-observeRequests/b.ObserveEvery.Seconds(), site.PerSecond/8))
		b.shared = left < 2*submits
		cancels = min(cancels, (left-submits)/cancelRequests)
		submits = min(submits, left)
		if b.shared {
			cancels = submits / 2 / cancelRequests
		}
		submitBurst, cancelBurst = min(submitBurst, max(cancelRequests, site.Burst*3/8)), min(cancelBurst, max(1, site.Burst/8))
	}
	b.submits.SetLimitAt(now, submits)
	b.submits.SetBurstAt(now, submitBurst)
	b.cancels.SetLimitAt(now, cancels)
	b.cancels.SetBurstAt(now, cancelBurst)
}

// allowCancel counts a cancellation, if the pace allows one now.
func (b *Bridge) allowCancel(now time.Time) bool {
	if !b.cancels.AllowN(now, 1) {
		return false
	}
	if b.shared {
		b.submits.ReserveN(now, cancelRequests) // submissions wait for it
	}
	return true
}
