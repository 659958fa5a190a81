package energy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/energy"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// site has what a Watch works with.
type site struct {
	*testing.T
	*energy.Watch

	now     time.Time
	charges []ledger.Charge
	known   []sbatch.Charge
	// refusal is the server's answer, and outage the database's.
	refusal, outage error
	asked           [][]sbatch.JobID
	told            []string // worker, bundle and joules
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, now: noon}
	s.Watch = &energy.Watch{
		Charges: s, Ask: s.ask, Tell: s.tell, WorkerID: func(queue string) string { return "b-" + queue },
		Now: func() time.Time { return s.now }, Log: slog.New(slog.DiscardHandler),
	}
	s.Follow(sbatch.Settings{Energy: true})
	s.passes(nil) // recalls nothing
	return s
}

func (s *site) EachCharge(_ context.Context, since, until time.Time, do func(ledger.Charge) error) error {
	for _, c := range s.charges {
		if !c.Ended.Before(since) && c.Ended.Before(until) {
			if err := do(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *site) ChargesOf(_ context.Context, bundles ...string) ([]ledger.Charge, error) {
	var found []ledger.Charge
	for _, c := range s.charges {
		if slices.Contains(bundles, c.Bundle) {
			found = append(found, c)
		}
	}
	return found, nil
}

func (s *site) ask(_ context.Context, _ time.Time, ids ...sbatch.JobID) ([]sbatch.Charge, error) {
	s.asked = append(s.asked, ids)
	var found []sbatch.Charge
	for _, k := range s.known {
		if slices.Contains(ids, k.ID) {
			found = append(found, k)
		}
	}
	return found, s.outage
}

func (s *site) tell(_ context.Context, worker string, runs []codalab.RunEnergy) error {
	for _, r := range runs {
		s.told = append(s.told, fmt.Sprintf("%s %s %d", worker, r.UUID, r.Joules))
	}
	return s.refusal
}

// passes lets time go by and makes a pass, which may tell no more than these.
func (s *site) passes(want []string) {
	s.Helper()
	s.now, s.told = s.now.Add(15*time.Second), nil
	if err := s.Pass(s.Context()); err != nil {
		s.Fatal(err)
	}
	if diff := cmp.Diff(want, s.told); diff != "" {
		s.Errorf("told (-want +got):\n%s", diff)
	}
}

// ends lets an attempt of a bundle end.
func (s *site) ends(bundle string, attempt int, job sbatch.JobID) {
	before := plan.Row{Bundle: bundle, Queue: "gpu", Phase: plan.Running}
	before.Attempt = plan.Attempt{
		Number: attempt, Generation: int64(attempt), SubmittedAt: s.now.Add(-time.Hour), Job: sbatch.Job{ID: job},
		Begun: &spool.Started{Node: "n1", At: s.now.Add(-time.Minute)},
	}
	after := before
	after.EndedAt = s.now
	s.charges = append(s.charges, ledger.Charge{Bundle: bundle, Attempt: attempt, Queue: "gpu", Job: job, Submitted: after.SubmittedAt, Started: after.Begun.At, Ended: s.now})
	s.Note(&before, &after)
}

// knows lets the accounting database learn of an allocation that has ended.
func (s *site) knows(job sbatch.JobID, joules int64) {
	s.known = append(s.known, sbatch.Charge{ID: job, Start: s.now.Add(-time.Minute), End: s.now, EnergyJoules: joules})
}

func TestEnergyIsToldOnceTheDatabaseKnowsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.passes(nil)
	if len(s.asked) > 0 {
		t.Errorf("no attempt has ended, and it asks for %v", s.asked)
	}
	s.ends("0x1", 1, 7)
	s.passes(nil)
	s.known = append(s.known, sbatch.Charge{ID: 7, Start: s.now.Add(-time.Minute), End: s.now}) // without its energy yet
	s.passes(nil)
	s.known = nil
	s.knows(7, 1200)
	s.now = s.now.Add(time.Minute)
	s.passes([]string{"b-gpu 0x1 1200"})
	asked := len(s.asked)
	s.passes(nil)
	if len(s.asked) != asked {
		t.Errorf("asked again: %v", s.asked)
	}
}

// A preempted run that is resumed has several jobs, and a job that Slurm puts back into the queue several allocations.
func TestEnergyIsOfAllAttemptsTogether(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ends("0x1", 1, 7)
	s.knows(7, 1000)
	s.knows(7, 200)
	s.passes([]string{"b-gpu 0x1 1200"})
	s.now = s.now.Add(10 * time.Hour)
	s.ends("0x1", 2, 8)
	s.knows(8, 30)
	s.passes([]string{"b-gpu 0x1 1230"})
	s.now = s.now.Add(100 * 24 * time.Hour)
	s.ends("0x2", 1, 7) // Slurm uses ids again
	s.knows(7, 5)
	s.passes([]string{"b-gpu 0x2 5"})
}

func TestEnergyOfAnAttemptThatIsGivenUpIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.charges = append(s.charges, ledger.Charge{Bundle: "0x1", Attempt: 1, Queue: "gpu", Job: 7, Submitted: s.now.Add(-time.Hour), Ended: s.now})
	s.knows(7, 40)
	before := plan.Row{Bundle: "0x1", Phase: plan.Running}
	after := plan.Row{Bundle: "0x1", Phase: plan.Staging, Spent: plan.Spent{Last: &plan.Charge{Generation: 3, Attempt: 1, Job: 7}}}
	s.Note(&before, &after)
	s.passes([]string{"b-gpu 0x1 40"})
	s.Note(&after, &after)
	s.passes(nil)
}

// Earlier lives of the bridge may have told them, or not. The server keeps the sum, so that it may be told again.
func TestEnergyOfBundlesThatEndedBeforeAStartIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ends("0x1", 1, 7)
	s.knows(7, 40)
	s.now = s.now.Add(23 * time.Hour)
	again := &energy.Watch{Charges: s, Ask: s.ask, Tell: s.tell, WorkerID: s.WorkerID, Now: s.Now, Log: s.Log}
	s.Watch = again
	s.passes(nil) // Slurm's settings are not known
	again.Follow(sbatch.Settings{Energy: true})
	s.passes([]string{"b-gpu 0x1 40"})
	s.passes(nil)
}

func TestNothingIsAskedWhereSlurmMeasuresNoEnergy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Follow(sbatch.Settings{})
	s.ends("0x1", 1, 7)
	s.knows(7, 40)
	for range 3 {
		s.passes(nil)
	}
	if len(s.asked) > 0 {
		t.Errorf("asked for %v", s.asked)
	}
}

func TestServerWithoutEnergyIsToldOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.refusal = fmt.Errorf("tell: %w", errors.ErrUnsupported)
	s.ends("0x1", 1, 7)
	s.knows(7, 40)
	s.passes([]string{"b-gpu 0x1 40"})
	asked := len(s.asked)
	s.ends("0x2", 1, 7)
	s.passes(nil)
	if len(s.asked) != asked {
		t.Error("it goes on to ask")
	}
}

func TestOutagesOfServerAndDatabaseAreSurvived(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ends("0x1", 1, 7)
	s.knows(7, 40)
	down := errors.New("connection refused")
	for _, fail := range []*error{&s.outage, &s.refusal} {
		*fail = down
		s.now = s.now.Add(time.Minute)
		if err := s.Pass(t.Context()); !errors.Is(err, down) {
			t.Errorf("%v", err)
		}
		*fail = nil
	}
	s.passes([]string{"b-gpu 0x1 40"})
}

// A token may be for other workers, and a queue may be gone.
func TestQueueWhoseEnergyIsRefusedHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ends("0x1", 1, 7)
	s.ends("0x2", 1, 8)
	s.charges[0].Queue = "cpu"
	s.knows(7, 40)
	s.knows(8, 50)
	s.refusal = &codalab.Error{Status: http.StatusForbidden}
	s.passes([]string{"b-cpu 0x1 40", "b-gpu 0x2 50"})
	s.passes(nil)
}

// The database may never learn of a job, and a node may have no sensor. Others must not wait for it, however many there are,
// and it is given up after a few questions.
func TestJobsThatTheDatabaseDoesNotKnowHoldNobodyUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 1000 {
		s.ends(fmt.Sprintf("0xlost%d", i), 1, sbatch.JobID(1000+i))
	}
	s.passes(nil)
	if len(s.asked) != 5 || len(s.asked[0]) != 100 {
		t.Errorf("%d questions, the first for %d jobs", len(s.asked), len(s.asked[0]))
	}
	s.ends("0x1", 1, 7)
	s.knows(7, 40)
	s.passes([]string{"b-gpu 0x1 40"}) // and four hundred of the others
	for range 4 * 60 {
		s.passes(nil)
	}
	if n := len(s.asked); n > 80 { // for a thousand bundles
		t.Errorf("%d questions", n)
	}
	asked := len(s.asked)
	s.passes(nil)
	if len(s.asked) != asked {
		t.Error("it still asks after an hour")
	}
}

// A bridge runs for months, and a server may keep no energy, or be away.
func TestBundlesWhoseEnergyNobodyTakesAreForgotten(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *site){
		"a server that keeps none": func(s *site) {
			s.refusal = fmt.Errorf("tell: %w", errors.ErrUnsupported)
			s.passes([]string{"b-gpu 0x1 40"})
			s.ends("0x2", 1, 8)
		},
		"an outage of a day": func(s *site) {
			s.outage = errors.New("connection refused")
			s.now = s.now.Add(25 * time.Hour)
			s.passes(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.ends("0x1", 1, 7)
			s.knows(7, 40)
			end(s)
			if n := energy.Waiting(s.Watch); n > 0 {
				t.Errorf("%d bundles are remembered", n)
			}
		})
	}
}

// The bridge notes a decision before it saves it, and a slow disk may take long.
func TestEnergyOfAnEndThatIsSavedLateIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ends("0x1", 1, 7)
	s.knows(7, 40)
	saved := s.charges
	s.charges = nil
	s.passes(nil)
	s.charges = saved
	s.passes([]string{"b-gpu 0x1 40"})
}

// A pass of run --once recalls a day, and has time for a few hundred bundles.
func TestBundlesThatEndedLastAreToldFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 600 {
		s.now = s.now.Add(time.Second)
		s.ends(fmt.Sprintf("0x%d", i), 1, sbatch.JobID(1000+i))
	}
	s.now = s.now.Add(time.Minute)
	s.Watch = &energy.Watch{Charges: s, Ask: s.ask, Tell: s.tell, WorkerID: s.WorkerID, Now: s.Now, Log: s.Log}
	s.Follow(sbatch.Settings{Energy: true})
	s.passes(nil)
	if len(s.asked) != 5 || !slices.Contains(s.asked[0], 1599) || slices.Contains(s.asked[4], 1000) {
		t.Errorf("%d questions, the first for %v", len(s.asked), s.asked[0])
	}
}

// Slurm measures the energy of a pack's job, and no run's part of it.
func TestRunsOfAPackHaveNoEnergy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ends("0x1", 1, 7)
	s.charges[0].Pack = true
	s.knows(7, 1000)
	s.passes(nil)
	s.passes(nil)
	for _, ids := range s.asked {
		if len(ids) > 0 {
			t.Errorf("asked for %v", ids)
		}
	}
}
