package bridge

import (
	"log/slog"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// bucket is a controller's bound on the requests of one user (Slurm src/slurmctld/rate_limit.c:
// rate_limit_exceeded).
type bucket struct {
	size, tokens, rate int
	last               int64
}

// ask takes a token for each request. It is false if there were too few.
func (b *bucket) ask(now time.Time, requests int) bool {
	b.tokens = min(b.size, b.tokens+int(now.Unix()-b.last)*b.rate)
	b.last = now.Unix()
	b.tokens -= requests
	return b.tokens >= 0
}

// observedDecider returns the decider of a bridge that has seen Slurm and knows nothing of its settings.
func observedDecider() *decider {
	b := &Bridge{Config: Config{ObserveEvery: 6 * time.Second, Log: slog.New(slog.DiscardHandler)}}
	b.assemble()
	b.board.init()
	b.decider.jobs.observed = true
	return &b.decider
}

func TestRequestsStayBelowTheSitesBucket(t *testing.T) {
	t.Parallel()
	epoch := time.Unix(1_800_000_000, 0)
	for _, site := range []struct{ rate, size int }{{2, 30}, {1, 30}, {2, 10}, {10, 50}} {
		d := observedDecider()
		d.rules.follow(t.Context(), epoch, &sbatch.Settings{RateLimit: sbatch.RateLimit{PerSecond: float64(site.rate), Burst: site.size}}, d.pace)
		controller := bucket{size: site.size, tokens: site.size, rate: site.rate, last: epoch.Unix()}
		made := map[plan.Kind]int{}
		for tick := range 36000 { // an hour of submissions, with cancellations in its first half
			now := epoch.Add(time.Hour).Add(time.Duration(tick) * 100 * time.Millisecond)
			if tick%60 == 0 && !controller.ask(now, 2) {
				t.Errorf("%+v: squeue has to wait after %s: %v", site, now.Sub(epoch), made)
			}
			d.jobs.asked = now
			if tick < 18000 && d.starter.mayStart(now, plan.Effect{Kind: plan.Cancel, Row: &plan.Row{Attempt: plan.Attempt{SubmittedAt: now}}}) {
				made[plan.Cancel]++
				if !controller.ask(now, 3) {
					t.Fatalf("%+v: scancel has to wait after %s: %v", site, now.Sub(epoch), made)
				}
			}
			if d.starter.mayStart(now, plan.Effect{Kind: plan.Submit, Row: &plan.Row{Attempt: plan.Attempt{SubmittedAt: now}}}) {
				made[plan.Submit]++
				if !controller.ask(now, 1) {
					t.Fatalf("%+v: sbatch has to wait after %s: %v", site, now.Sub(epoch), made)
				}
			}
		}
		// Each kind gets a sixth of the site's requests while it is wanted, or the usual pace.
		if least := min(site.rate*1800/6, 3600); made[plan.Submit] < least || made[plan.Cancel]*3 < least {
			t.Errorf("%+v: %v in an hour, want %d requests for each", site, made, least)
		}
	}
}

// A site that stops bounding the requests gets the usual pace again.
func TestPaceFollowsTheSettings(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	d := observedDecider()
	burst := func() (n int) {
		now = now.Add(time.Hour)
		for d.starter.mayStart(now, plan.Effect{Kind: plan.Submit, Row: &plan.Row{Attempt: plan.Attempt{SubmittedAt: now}}}) {
			n++
		}
		return n
	}
	if n := burst(); n != DefaultPace().Burst {
		t.Errorf("%d submissions at once before the settings are known, want %d", n, DefaultPace().Burst)
	}
	d.rules.follow(t.Context(), now, &sbatch.Settings{RateLimit: sbatch.RateLimit{PerSecond: 2, Burst: 30}}, d.pace)
	if n := burst(); n != 11 {
		t.Errorf("%d submissions at once, want 11 of the bucket's 30 requests", n)
	}
	d.rules.follow(t.Context(), now, &sbatch.Settings{}, d.pace)
	if n := burst(); n != DefaultPace().Burst {
		t.Errorf("%d submissions at once without a bound, want %d", n, DefaultPace().Burst)
	}
}
