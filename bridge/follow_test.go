package bridge_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// A controller that is down at the start of the bridge says later how long it shows ended jobs.
func TestSettingsAreReadAgainUntilSlurmAnswers(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		asked, followed := 0, plan.Policy{}
		s.alter = func(b *bridge.Bridge) {
			b.Settings = func(context.Context) (sbatch.Settings, error) {
				if asked++; asked < 3 {
					return sbatch.Settings{}, errors.New("Unable to contact slurm controller")
				}
				return sbatch.Settings{Cluster: "north", Accounting: true, MinJobAge: 42 * time.Second}, nil
			}
			b.Adapt = func(p *plan.Policy, known sbatch.Settings) { p.RecordAge = known.MinJobAge }
			b.TracePolicy = func(p plan.Policy) { followed = p }
		}
		s.start()
		time.Sleep(30 * time.Second)
		if h := s.bridge.Condition(); h.Settings != nil || h.SettingsFailure == "" || asked != 1 {
			s.Errorf("%+v after %d questions, want why they are not known", h, asked)
		}
		time.Sleep(5 * time.Minute)
		if h := s.bridge.Condition(); h.Settings == nil || h.Settings.Cluster != "north" || h.SettingsFailure != "" || asked != 3 {
			s.Errorf("%+v after %d questions", h, asked)
		}
		time.Sleep(2 * time.Hour)
		s.stop()
		if followed.RecordAge != 42*time.Second || followed.Bridge == "" || asked < 4 || asked > 5 {
			s.Errorf("decided with %s, after %d questions in two hours", followed.RecordAge, asked)
		}
	})
}

func TestSubmissionsKeepToTheSitesBoundOnRequests(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.slurm.held = true
		s.alter = func(b *bridge.Bridge) {
			b.Settings = func(context.Context) (sbatch.Settings, error) {
				return sbatch.Settings{RateLimit: sbatch.RateLimit{PerSecond: 2, Burst: 30}}, nil
			}
		}
		s.start()
		time.Sleep(time.Minute)
		for i := range 300 {
			s.offer(bundleID(i+1), "true")
		}
		time.Sleep(time.Minute)
		s.slurm.mu.Lock()
		defer s.slurm.mu.Unlock()
		if n := s.slurm.submits; n < 60 || n > 85 {
			s.Errorf("%d submissions in a minute, want about 70", n)
		}
	})
}
