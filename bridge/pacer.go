package bridge

import (
	"time"

	"golang.org/x/time/rate"
)

// What a controller bears of one kind of request, submissions or cancellations: two a second
// in the long run, and twenty at once after a pause.
const (
	requestsPerSecond = 2
	requestBurst      = 20
)

func newPacer() *rate.Limiter { return rate.NewLimiter(requestsPerSecond, requestBurst) }

// budget is how many requests may be made now.
func budget(pace *rate.Limiter, now time.Time) int { return int(pace.TokensAt(now)) }

// refill is how long it takes until a pacer without budget allows another request.
func refill(pace *rate.Limiter, now time.Time) time.Duration {
	missing := max(1-pace.TokensAt(now), 0.05)
	return time.Duration(missing / requestsPerSecond * float64(time.Second))
}
