package bridge

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// memory is a ledger that forgets.
type memory struct {
	rows       []plan.Row
	shared     map[plan.SubmissionName]plan.Submission
	generation int64
	failure    error // of Save
}

func (m *memory) Take(context.Context) error { return nil }

func (m *memory) Outline(context.Context) (plan.Outline, error) {
	o := plan.Outline{Done: map[string]string{}}
	for _, r := range m.rows {
		if r.Phase == plan.Done {
			o.Done[r.Bundle] = r.Queue
		} else {
			o.Rows = append(o.Rows, r)
		}
	}
	return o, nil
}

func (m *memory) Row(_ context.Context, bundle string) (plan.Row, error) {
	for _, r := range m.rows {
		if r.Bundle == bundle {
			return r, nil
		}
	}
	return plan.Row{}, errors.New("there is none")
}
func (m *memory) Generation(context.Context) (int64, error) { return m.generation, nil }
func (m *memory) Delete(context.Context, plan.Row) error    { return nil }
func (m *memory) Submissions(context.Context) ([]plan.Submission, error) {
	return slices.Collect(maps.Values(m.shared)), nil
}

func (m *memory) Save(_ context.Context, rows []plan.Row, shared ...plan.Submission) error {
	if m.failure != nil {
		return m.failure
	}
	for i := range rows {
		rows[i].Version++
	}
	for _, s := range shared {
		if m.shared == nil {
			m.shared = map[plan.SubmissionName]plan.Submission{}
		}
		if m.shared[s.Name] = s; s.State == plan.Over {
			delete(m.shared, s.Name)
		}
	}
	return nil
}

// opened is a bridge with these rows that has not stepped yet.
func opened(t *testing.T, rows ...plan.Row) *Bridge {
	t.Helper()
	return openedWith(t, Config{}, rows)
}

// openedWith is opened with more of a configuration.
func openedWith(t *testing.T, c Config, rows []plan.Row) *Bridge {
	t.Helper()
	for i := range rows {
		rows[i].Queue, rows[i].Version, rows[i].Run = "cpu", 1, &codalab.RunBundle{}
	}
	c.Policy = plan.Policy{Bridge: "b1b2b3", OrphanGrace: time.Minute, CancelOrphans: true, Queues: map[string]plan.Queue{"cpu": {Name: "cpu"}}}
	c.Ledger, c.Log = &memory{rows: rows, generation: 7}, slog.New(slog.DiscardHandler)
	b := &Bridge{Config: c}
	if err := b.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// wanted steps, and returns the kinds of the effects of each bundle.
func wanted(t *testing.T, b *Bridge, now time.Time) map[string][]plan.Kind {
	t.Helper()
	effects, _, err := b.Step(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string][]plan.Kind{}
	for _, e := range effects {
		key := e.Row.Bundle
		if key == "" {
			key = "job " + e.Row.Job.ID.String()
		}
		kinds[key] = append(kinds[key], e.Kind)
	}
	return kinds
}

func check(t *testing.T, what string, got, want map[string][]plan.Kind) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: effects (-want +got):\n%s", what, diff)
	}
}

type kinds = map[string][]plan.Kind

// hears brings a bundle empty news.
func hears(b *Bridge, bundle string) { b.inbox.put(bundle, func(*plan.News) {}) }

func TestEffectIsStartedOnceUntilItEnds(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	row := plan.Row{Bundle: "0x1", Phase: plan.Collecting, Attempt: plan.Attempt{Number: 1}, Verdict: &plan.Verdict{}}
	b := opened(t, row)
	check(t, "at the start", wanted(t, b, now), kinds{"0x1": {plan.Collect}})
	hears(b, "0x1")
	check(t, "while it runs", wanted(t, b, now), kinds{})
	b.decider.starter.active.end(plan.Effect{Kind: plan.Collect, Row: &row})
	hears(b, "0x1")
	check(t, "when it has ended", wanted(t, b, now), kinds{"0x1": {plan.Collect}})
}

func TestNothingIrrevocableIsStartedBeforeSlurmWasSeen(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	stop := &plan.Verdict{Failure: codalab.KillRequested}
	live := sbatch.Job{ID: 2, Name: "m2", State: sbatch.StatePending, Submitted: now}
	b := opened(t,
		plan.Row{Bundle: "0x1", Phase: plan.Submitting, Attempt: plan.Attempt{Number: 1, SubmissionName: "m1", Prepared: true}},
		plan.Row{Bundle: "0x2", Phase: plan.Stopping, Attempt: plan.Attempt{Number: 1, SubmissionName: "m2", Job: live}, StopVerdict: stop},
		plan.Row{Bundle: "0x3", Phase: plan.Done, Attempt: plan.Attempt{Number: 1}, Releasing: true},
		plan.Row{Bundle: "0x4", Phase: plan.Submitting, Attempt: plan.Attempt{Number: 1, SubmissionName: "m4", Prepared: true}},
		plan.Row{Bundle: "0x5", Phase: plan.Staging, Staged: &spool.Inputs{}},
	)
	hears(b, "0x3") // which rests
	check(t, "at the start", wanted(t, b, now), kinds{"0x2": {plan.Fence}})
	hears(b, "0x2")
	check(t, "again", wanted(t, b, now), kinds{})
	b.inbox.put("0x4", func(n *plan.News) { n.Messages = []codalab.Message{{Type: codalab.MessageKill}} })
	b.inbox.putSnapshot(sbatch.Snapshot{Asked: now, Jobs: []sbatch.Job{live}})
	check(t, "when Slurm was seen, and one was killed meanwhile", wanted(t, b, now), kinds{
		"0x1": {plan.Submit}, "0x2": {plan.Cancel}, "0x3": {plan.Release}, "0x4": {plan.Fence}, "0x5": {plan.Prepare},
	})
	if len(b.decider.starter.held) != 0 || len(b.decider.starter.active.effects) != 6 {
		t.Errorf("%d held, running %v", len(b.decider.starter.held), b.decider.starter.active.effects)
	}
}

// A controller that has lost its state uses ids again, so a job is cancelled only by a fresh snapshot
// that shows it (SEED=2644349).
func TestOnlyTheRowsOwnJobIsCancelled(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	earlier := now.Add(-time.Hour)
	job := func(submitted time.Time) sbatch.Job {
		return sbatch.Job{ID: 2, Name: "m1", State: sbatch.StatePending, Submitted: submitted}
	}
	killed := func(submitted time.Time) plan.Row {
		return plan.Row{
			Bundle: "0x1", Phase: plan.Done, KeepUntil: now.Add(time.Hour),
			Attempt: plan.Attempt{Number: 1, SubmissionName: "m1", SubmittedAt: submitted, Job: job(submitted), Fenced: true},
		}
	}
	other := plan.Row{Bundle: "0x2", Phase: plan.Queued, Attempt: plan.Attempt{Number: 1, SubmissionName: "m2", SubmittedAt: now, Job: job(now)}}
	for name, c := range map[string]struct {
		rows  []plan.Row
		asked time.Time
		jobs  []sbatch.Job
		want  bool
	}{
		"its own":               {[]plan.Row{killed(earlier)}, now, []sbatch.Job{job(earlier)}, true},
		"another of the id":     {[]plan.Row{killed(earlier)}, now, []sbatch.Job{job(now)}, false},
		"none of the id":        {[]plan.Row{killed(earlier)}, now, nil, false},
		"too early for a proof": {[]plan.Row{killed(now)}, now, nil, false},
		"another row's":         {[]plan.Row{killed(now), other}, now, []sbatch.Job{job(now)}, false},
		"an old snapshot":       {[]plan.Row{killed(earlier)}, now.Add(-fresh - time.Second), []sbatch.Job{job(earlier)}, false},
	} {
		b := opened(t, c.rows...)
		hears(b, "0x1") // which rests
		b.inbox.putSnapshot(sbatch.Snapshot{Asked: c.asked, Jobs: c.jobs})
		if got := slices.Contains(wanted(t, b, now)["0x1"], plan.Cancel); got != c.want {
			t.Errorf("%s: cancelled %t, want %t", name, got, c.want)
		}
	}
}

// TestJobKnownFromARecordIsNotAnothers has a row that knows its job's id from a worker's record alone,
// since the ledger was restored. The controller, which lost its state too, has given the id to another
// job.
func TestJobKnownFromARecordIsNotAnothers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	row := plan.Row{
		Bundle: "0x1", Phase: plan.Stopping, StopVerdict: &plan.Verdict{},
		Attempt: plan.Attempt{Number: 1, SubmissionName: "m1", SubmittedAt: now.Add(-time.Hour), Job: sbatch.Job{ID: 2}},
	}
	b := opened(t, row)
	d := &b.decider
	d.jobs.submitted = map[sbatch.JobID]time.Time{2: now}
	if !d.jobs.mayBeAnothers(&row, d.rows, 0) {
		t.Error("another's job of the same id would be cancelled")
	}
	row.Job.Submitted = now
	if d.jobs.mayBeAnothers(&row, d.rows, 0) {
		t.Error("the row's own job would not be cancelled")
	}
}

func TestEachOrphanJobIsCancelledOnceAGrace(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	b := opened(t)
	cancelled := map[string]int{}
	for range 10 { // every 15 s, with a grace of a minute
		var jobs []sbatch.Job
		for id := range sbatch.JobID(3) {
			jobs = append(jobs, sbatch.Job{ID: id + 1, Name: "m", State: sbatch.StateRunning, Comment: "codalab bundle=0x9 attempt=1 bridge=b1b2b3 generation=3"})
		}
		b.inbox.putSnapshot(sbatch.Snapshot{Asked: now, Jobs: jobs})
		effects, _, err := b.Step(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range effects {
			if e.Kind != plan.Cancel || e.Row.Job.Name != "m" {
				t.Errorf("wanted %+v", e)
			}
			for _, r := range e.Rows() {
				cancelled[r.Job.ID.String()]++
			}
			b.inbox.putEnded(e, none)
		}
		now = now.Add(15 * time.Second)
	}
	if diff := cmp.Diff(map[string]int{"1": 2, "2": 2, "3": 2}, cancelled); diff != "" {
		t.Errorf("cancellations in 135 s (-want +got):\n%s", diff)
	}
}

// TestI1AFailedSaveStartsNothing: what was decided and not saved may have been
// decided otherwise by another bridge.
func TestI1AFailedSaveStartsNothing(t *testing.T) {
	t.Parallel()
	b := opened(t, plan.Row{Bundle: "0x1", Phase: plan.Queued, Attempt: plan.Attempt{Number: 1, SubmissionName: "m1", Job: sbatch.Job{ID: 1}}})
	book, _ := b.Ledger.(*memory)
	book.failure = errors.New("no space left on device")
	b.inbox.put("0x1", func(n *plan.News) { n.Messages = []codalab.Message{{Type: codalab.MessageKill}} })
	effects, _, err := b.Step(t.Context(), time.Unix(1_800_000_000, 0))
	if !errors.Is(err, book.failure) || len(effects) != 0 {
		t.Errorf("effects %v, error %v; want none, and the ledger's", effects, err)
	}
}

// deaf is a Slurm that does not answer.
type deaf struct{ sbatch.Scheduler }

func (deaf) Observe(context.Context, time.Time) (sbatch.Snapshot, error) {
	return sbatch.Snapshot{}, errors.New("Unable to contact slurm controller")
}

func TestI3AFailedObservationSaysNothing(t *testing.T) {
	t.Parallel()
	b := opened(t, plan.Row{Bundle: "0x1", Phase: plan.Queued, Attempt: plan.Attempt{Number: 1, SubmissionName: "m1", Job: sbatch.Job{ID: 1}}})
	b.slurm.scheduler = deaf{}
	b.inbox.drain()
	err := b.Observe(t.Context(), time.Unix(1_800_000_000, 0))
	if in := b.inbox.drain(); err == nil || len(in.news) != 0 || in.snapshot != nil || b.contact.observed.Load() {
		t.Errorf("error %v, %d pieces of news, snapshot %v", err, len(in.news), in.snapshot)
	}
}

// TestI1NothingBeginsOnALedgerThatIsTaken: a bridge that only repeats what it
// wants, and has nothing to write, learns all the same that another one has
// taken its ledger.
func TestI1NothingBeginsOnALedgerThatIsTaken(t *testing.T) {
	t.Parallel()
	begun := func() plan.Row {
		return plan.Row{Bundle: "0x1", Phase: plan.Collecting, Attempt: plan.Attempt{Number: 1}}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	b := opened(t, begun())
	check(t, "ours", wanted(t, b, now), map[string][]plan.Kind{"0x1": {plan.Collect}})
	if v := b.decider.rows.get("0x1").Version; v != 1 {
		t.Fatalf("the row was saved as version %d: there is something to write, and this test shows nothing", v)
	}

	b = opened(t, begun())
	b.decider.ledger = &memory{failure: ledger.ErrConflict}
	if effects, _, err := b.Step(t.Context(), now); !errors.Is(err, ledger.ErrConflict) || len(effects) > 0 {
		t.Errorf("taken: %d effects, %v; want none, and %v", len(effects), err, ledger.ErrConflict)
	}

	b = opened(t, plan.Row{Bundle: "0x1", Phase: plan.Submitting, Attempt: plan.Attempt{Number: 1, SubmissionName: "cl-x-1.1-b1b2b3", Generation: 7, Prepared: true}})
	check(t, "Slurm was not seen yet", wanted(t, b, now), map[string][]plan.Kind{})
	b.decider.ledger = &memory{failure: ledger.ErrConflict}
	b.inbox.putSnapshot(sbatch.Snapshot{Asked: now})
	if effects, _, err := b.Step(t.Context(), now); !errors.Is(err, ledger.ErrConflict) || len(effects) > 0 {
		t.Errorf("taken while a submission was held back: %d effects, %v; want none, and %v", len(effects), err, ledger.ErrConflict)
	}
}

// An effect that hangs would outlive its bundle's row, and another bundle of the UUID would get what it
// staged. The number of a refused attempt is used again, so the effect may be of a higher attempt than
// the row.
func TestI9RowIsForgottenOnlyOnceItsEffectsHaveEnded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for attempt := range 2 {
		b := opened(t, plan.Row{Bundle: "0x1", Phase: plan.Done, Dropped: true, Releasing: true})
		stage := plan.Effect{Kind: plan.Stage, Row: &plan.Row{Bundle: "0x1", Phase: plan.Staging, Attempt: plan.Attempt{Number: attempt}}}
		b.decider.starter.active.begin(stage)
		released := func(n *plan.News) { n.Released = &plan.Outcome{} }
		b.inbox.put("0x1", released)
		wanted(t, b, now)
		if !b.decider.rows.has("0x1") {
			t.Errorf("the row is forgotten while an effect of attempt %d runs", attempt)
		}
		b.inbox.putEnded(stage, none)
		b.inbox.put("0x1", released)
		wanted(t, b, now)
		if b.decider.rows.has("0x1") {
			t.Errorf("the row stays after its last effect, of attempt %d, has ended", attempt)
		}
	}
}

// One command of Slurm is for a hundred jobs at most, and one scancel for three where the site bounds
// requests: its command line is bounded, and each job costs the controller a request.
func TestOneCommandIsForABoundedNumberOfJobs(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		kind    plan.Kind
		bounded sbatch.RateLimit
		want    int
	}{
		{plan.QueryAccounting, sbatch.RateLimit{}, 100},
		{plan.Cancel, sbatch.RateLimit{}, 100},
		{plan.Cancel, sbatch.RateLimit{PerSecond: 2, Burst: 30}, cancelRequests},
	} {
		b := opened(t)
		jobs := b.decider.jobs
		jobs.observed, jobs.asked, jobs.submitted, b.decider.pace.bounded = true, now, map[sbatch.JobID]time.Time{}, c.bounded.PerSecond > 0
		var wanted []plan.Effect
		for id := range sbatch.JobID(250) {
			jobs.submitted[id] = now
			wanted = append(wanted, plan.Effect{Kind: c.kind, Row: &plan.Row{Bundle: id.String(), Attempt: plan.Attempt{Job: sbatch.Job{ID: id, Submitted: now}}}})
			b.decider.starter.active.begin(wanted[id])
		}
		started := b.decider.starter.startNow(now, wanted)
		if len(started) != 1 || len(started[0].Rows()) != c.want || len(b.decider.starter.held) != len(wanted)-c.want {
			t.Errorf("%s with %+v: %d commands, the first for %d jobs, and %d are held", c.kind, c.bounded, len(started), len(started[0].Rows()), len(b.decider.starter.held))
		}
	}
}

// A submission that waits for the pace has the next place: a row that took it would become too late.
func TestHeldSubmissionsUseUpThePace(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	b := opened(t,
		plan.Row{Bundle: "0x1", Phase: plan.Submitting, Attempt: plan.Attempt{Number: 1, SubmissionName: "m1", Prepared: true}},
		plan.Row{Bundle: "0x2", Phase: plan.Staging, Staged: &spool.Inputs{}},
	)
	b.decider.pace.submits.AllowN(now, DefaultPace().Burst)
	b.inbox.putSnapshot(sbatch.Snapshot{Asked: now})
	check(t, "without budget", wanted(t, b, now), kinds{})
	now = now.Add(500 * time.Millisecond) // of which one comes back
	check(t, "with a budget of one", wanted(t, b, now), kinds{"0x1": {plan.Submit}})
	if phase := b.decider.rows.get("0x2").Phase; phase != plan.Staging {
		t.Errorf("the other row is %s", phase)
	}
}

// unreadable is a ledger that fails when it is read.
type unreadable struct{ memory }

func (u *unreadable) Outline(context.Context) (plan.Outline, error) {
	return plan.Outline{}, errors.New("the disk of the ledger failed")
}

func TestBridgeIsNotOpenUntilItHasReadItsLedger(t *testing.T) {
	t.Parallel()
	b := &Bridge{Config: Config{Ledger: &unreadable{}, Log: slog.New(slog.DiscardHandler)}}
	if err := b.Open(t.Context()); err == nil {
		t.Fatal("it has read a ledger that cannot be read")
	}
	if rows := b.Rows(); b.Condition().Open || rows != nil {
		t.Errorf("open %v, rows %v", b.Condition().Open, rows)
	}
}
