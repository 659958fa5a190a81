package worker

import (
	"context"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/spool"
)

// changes runs a container whose command runs until TERM ends it. After some time the bridge records another time limit
// of the job, which had 65 minutes at first.
func changes(s *site, after, limit time.Duration) runner {
	return func(ctx context.Context, c container.Container) (container.Exit, error) {
		c.OnStart(container.Running{PID: 1})
		select {
		case <-ctx.Done():
		case <-time.After(after):
			if err := s.attempt.WriteTimeLimit(spool.NewTimeLimit(65*time.Minute, limit)); err != nil {
				return container.Exit{}, err
			}
			<-ctx.Done()
		}
		return container.Exit{Code: 143, Signal: 15}, nil
	}
}

func TestCommandRunsAsMuchLongerAsItsJobMay(t *testing.T) {
	t.Parallel()
	hour := func(s *spool.Spec) { s.Seconds = 3600 }
	ahead := func(s *spool.Spec) { s.Seconds, s.SignalSeconds, s.KillGraceSeconds = 3600, 600, 600 }
	grace := func(s *spool.Spec) { s.Seconds, s.KillGraceSeconds = 3600, 600 }
	const lengthened, shortened = ", which the site has lengthened from 1h0m) Ask for more with --request-time.",
		", which the site has shortened from 1h0m) Run it again, or ask the site's administrators."
	for name, test := range map[string]struct {
		spec         func(*spool.Spec)
		after, limit time.Duration
		ends         time.Duration // 0 for never: Slurm ends it
		want         string
	}{
		"lengthened":                      {hour, time.Minute, 185 * time.Minute, 3 * time.Hour, "Time limit exceeded. (Container uptime 3h1m > time limit 3h0m" + lengthened},
		"lengthened ten seconds before":   {hour, time.Hour - 10*time.Second, 66 * time.Minute, 61 * time.Minute, "Time limit exceeded. (Container uptime 1h2m > time limit 1h1m" + lengthened},
		"TERM follows the longer limit":   {ahead, time.Minute, 185 * time.Minute, 170 * time.Minute, "Time limit exceeded. (TERM at container uptime 2h50m, 10m0s before the time limit 3h0m" + lengthened},
		"TERM follows the shorter limit":  {ahead, time.Minute, 32 * time.Minute, 20 * time.Minute, "Time limit exceeded. (TERM at container uptime 20m0s, 10m0s before the time limit 30m0s" + shortened},
		"the shorter limit leaves no ten": {ahead, time.Minute, 10 * time.Minute, 4 * time.Minute, "Time limit exceeded. (TERM at container uptime 4m0s, 4m0s before the time limit 8m0s" + shortened},
		"the limit is shorter than TERM":  {ahead, 30 * time.Minute, 10 * time.Minute, 0, "Time limit exceeded. (Container uptime"},
		"a grace follows a shorter limit": {grace, time.Minute, 32 * time.Minute, 30 * time.Minute, "Time limit exceeded. (Container uptime 30m1s > time limit 30m0s" + shortened},
		"a little shorter":                {ahead, time.Minute, 64 * time.Minute, 50 * time.Minute, "Time limit exceeded. (TERM at container uptime 50m0s, 10m0s before the time limit 1h0m) Ask for more with --request-time."},
		"Slurm ends it":                   {hour, time.Minute, 30 * time.Minute, time.Hour, "Time limit exceeded. (Container uptime 1h1m > time limit 1h0m) Ask for more with --request-time."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var of site
			onSite(t, changes(&of, test.after, test.limit), test.spec, func(t *testing.T, s site, w Worker) {
				of = s
				began := time.Now()
				e := s.run(t, w)
				ran := time.Since(began)
				if test.ends == 0 { // its time was over when the change came
					if late := ran - test.after; late > time.Minute+time.Second || e.Cause != spool.CauseLimit || !e.TimedOut {
						t.Errorf("TERM %v after the change: %+v", late, e)
					}
					return
				}
				if ran != test.ends || e.Failure != test.want || e.Cause != spool.CauseLimit || !e.TimedOut {
					t.Errorf("ended after %v, want %v: %s\nwant %s", ran, test.ends, e.Failure, test.want)
				}
			})
		})
	}
}

// An administrator may lengthen a job more than once, or take its limit away.
func TestCommandHasNoLimitOfAJobWithoutOne(t *testing.T) {
	t.Parallel()
	var of site
	year := func(ctx context.Context, c container.Container) (container.Exit, error) {
		c.OnStart(container.Running{PID: 1})
		for _, limit := range []time.Duration{65 * time.Minute, 70 * time.Minute, 1<<63 - 1} {
			time.Sleep(50 * time.Minute / 4)
			if err := of.attempt.WriteTimeLimit(spool.NewTimeLimit(65*time.Minute, limit)); err != nil {
				return container.Exit{}, err
			}
		}
		select {
		case <-ctx.Done():
			return container.Exit{Code: 143, Signal: 15}, nil
		case <-time.After(48 * time.Hour):
			return container.Exit{}, nil
		}
	}
	onSite(t, year, func(s *spool.Spec) { s.Seconds = 3600 }, func(t *testing.T, s site, w Worker) {
		of = s
		if e := s.run(t, w); e.Cause != spool.CauseSucceeded {
			t.Errorf("recorded %+v", e)
		}
	})
}

func TestDamagedRecordOfATimeLimitChangesNothing(t *testing.T) {
	t.Parallel()
	for _, l := range []spool.TimeLimit{{}, {FirstSeconds: 60}, {Seconds: 60}, {FirstSeconds: -1, Seconds: 60}} {
		onSite(t, obeys, func(s *spool.Spec) { s.Seconds = 60 }, func(t *testing.T, s site, w Worker) {
			must(t, s.attempt.WriteTimeLimit(l))
			if e := s.run(t, w); e.Failure != "Time limit exceeded. (Container uptime 1m1s > time limit 1m0s) Ask for more with --request-time." {
				t.Errorf("%+v: %s", l, e.Failure)
			}
		})
	}
}
