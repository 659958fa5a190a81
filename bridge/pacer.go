package bridge

import "time"

// pacer keeps requests of a kind, submissions or cancellations, to what a
// controller bears: two a second in the long run, and a handful at once for who
// asks little. Step owns it.
type pacer struct {
	tokens float64
	at     time.Time
}

const (
	submissionsPerSecond = 2.0
	submissionBurst      = 20.0
)

// budget is how many submissions may be made now.
func (p *pacer) budget(now time.Time) int {
	if p.at.IsZero() {
		p.tokens = submissionBurst
	} else if gone := now.Sub(p.at); gone > 0 {
		p.tokens = min(p.tokens+gone.Seconds()*submissionsPerSecond, submissionBurst)
	}
	p.at = now
	return int(p.tokens)
}

func (p *pacer) spend(n int) { p.tokens -= float64(n) }

// empty says whether no submission may be made now.
func (p *pacer) empty() bool { return p.tokens < 1 }

// refill is how long it takes until an empty pacer allows another submission.
func (p *pacer) refill() time.Duration {
	missing := max(1-p.tokens, 0.05)
	return time.Duration(missing / submissionsPerSecond * float64(time.Second))
}
