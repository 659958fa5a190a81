package bridge

import (
	"cmp"
	"time"

	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Pace bounds one kind of request to a controller, submissions or cancellations: so many a second in the long
// run, and so many at once after a pause.
type Pace struct {
	PerSecond float64
	Burst     int
}

// DefaultPace is a pace that any controller bears.
func DefaultPace() Pace { return Pace{PerSecond: 2, Burst: 20} }

// pace bounds the submissions and cancellations of a bridge. Only Step uses it.
type pace struct {
	usual        Pace          // where the site has no bound
	observeEvery time.Duration // the pause between two snapshots, which are requests too
	submits      *rate.Limiter
	cancels      *rate.Limiter
	// bounded is set if the controller bounds the requests of a user. shared is set if submissions and
	// cancellations share a small bound.
	bounded, shared bool
}

func newPace(usual Pace, observeEvery time.Duration) *pace {
	p := &pace{usual: cmp.Or(usual, DefaultPace()), observeEvery: observeEvery}
	p.submits = rate.NewLimiter(rate.Limit(p.usual.PerSecond), p.usual.Burst)
	p.cancels = rate.NewLimiter(rate.Limit(p.usual.PerSecond), p.usual.Burst)
	return p
}

// Requests of commands, of which a controller may bound the number: sbatch is one request, squeue
// observeRequests (sbatch.Client.Observe), scancel one for each single job and for all tasks of an array
// (sbatch.Client.Cancel). Where there is a bound, one scancel costs cancelRequests at most.
const (
	cancelRequests  = 3
	observeRequests = 2
)

// follow bounds submissions and cancellations by the controller's bound on the requests of one
// user. A quarter of it stays for the user's other commands. Where the rest is small, submissions
// and cancellations share it: each cancellation uses up submissions, half of them at most.
func (p *pace) follow(now time.Time, site sbatch.RateLimit) {
	submits, cancels := rate.Limit(p.usual.PerSecond), rate.Limit(p.usual.PerSecond)
	submitBurst, cancelBurst := p.usual.Burst, p.usual.Burst
	p.shared, p.bounded = false, site.PerSecond > 0
	if p.bounded {
		left := rate.Limit(max(site.PerSecond*3/4-observeRequests/p.observeEvery.Seconds(), site.PerSecond/8))
		p.shared = left < 2*submits
		cancels = min(cancels, (left-submits)/cancelRequests)
		submits = min(submits, left)
		if p.shared {
			cancels = submits / 2 / cancelRequests
		}
		submitBurst, cancelBurst = min(submitBurst, max(cancelRequests, site.Burst*3/8)), min(cancelBurst, max(1, site.Burst/8))
	}
	p.submits.SetLimitAt(now, submits)
	p.submits.SetBurstAt(now, submitBurst)
	p.cancels.SetLimitAt(now, cancels)
	p.cancels.SetBurstAt(now, cancelBurst)
}

// allowSubmit counts a submission, if the pace allows one now.
func (p *pace) allowSubmit(now time.Time) bool { return p.submits.AllowN(now, 1) }

// allowCancel counts a cancellation, if the pace allows one now.
func (p *pace) allowCancel(now time.Time) bool {
	if !p.cancels.AllowN(now, 1) {
		return false
	}
	if p.shared {
		p.submits.ReserveN(now, cancelRequests) // submissions wait for it
	}
	return true
}

// mostCancels bounds the requests that one scancel costs.
func (p *pace) mostCancels() int {
	if p.bounded {
		return cancelRequests
	}
	return mostInOneCall
}

// budget returns how many requests a limiter allows now.
func budget(l *rate.Limiter, now time.Time) int { return max(0, int(l.TokensAt(now))) }

// refill returns how long it takes until a limiter without budget allows another request.
func refill(l *rate.Limiter, now time.Time) time.Duration {
	missing := max(1-l.TokensAt(now), 0.05)
	return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
}
