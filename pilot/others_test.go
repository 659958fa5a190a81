package pilot_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// CodaLab's manager of AWS Batch counts all jobs that its filter matches (aws_batch_worker_manager.py: get_worker_jobs).
func TestWorkersOfOthersCountAgainstTheBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ pending, active, min, max, staged, want int }{
		"those that run, against the maximum":    {active: 3, max: 4, staged: 5, want: 1},
		"those that run take no bundles":         {active: 3, max: 10, staged: 2, want: 2},
		"those that wait take bundles":           {pending: 2, max: 10, staged: 3, want: 1},
		"both, towards the minimum":              {pending: 1, active: 1, min: 3, max: 10, want: 1},
		"more than the maximum end nobody":       {active: 9, max: 4, staged: 5},
		"without them as many as bundles are":    {max: 10, staged: 5, want: 5},
		"those that wait, against the maximum 1": {pending: 1, max: 1, staged: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.Min, s.Max, s.othersPending, s.othersActive = test.min, test.max, test.pending, test.active
			s.stage(test.staged, nil)
			s.pass(0, test.want)
			if n := test.pending + test.active; n > 0 {
				s.logged(fmt.Sprintf("%d of them not of this manager", n), 1)
			}
			if len(s.stopped) > 0 {
				t.Errorf("ended are %v", s.stopped)
			}
		})
	}
}

// A lost pilot frees its place under the maximum, and a worker of others keeps its own.
func TestLostPilotAndWorkersOfOthersShareTheMaximum(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Max, s.othersActive = 3, 1
	s.stage(5, nil)
	s.pass(0, 2)
	for i := range s.pilots {
		s.pilots[i].Phase, s.pilots[i].Since = pilot.Active, s.now
	}
	s.checkIn(true, 0, 1)
	s.pass(time.Minute, 0)
	s.pilots[0].Phase = pilot.Lost
	s.pass(time.Minute, 0) // the server hears it: three workers live
	s.workers = s.workers[1:]
	s.othersActive = 2
	s.pass(time.Minute, 0) // another worker of others has taken its place
	s.othersPending, s.othersActive = 1, 0
	s.pass(time.Minute, 1)
	s.pass(time.Minute, 0)
	s.othersPending = 0
	s.pass(time.Minute, 1)
}
