package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
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

// arrays is a bridge whose queue has arrays, with a Slurm and a disk that answer at once. The test tells Slurm's jobs.
type arrays struct {
	sbatch.Scheduler

	t      *testing.T
	b      *Bridge
	book   *ledger.Ledger
	policy plan.Policy
	now    time.Time

	jobs      []sbatch.Job // of Slurm
	submitted []plan.Effect
	cancelled []sbatch.JobID
	asked     int // the questions about the queue
	// stopped has the bundles that workers of packs were told to end.
	stopped []string
	// answer answers an sbatch of so many tasks, 0 for a single job; nil for jobs with ids from 100 on.
	answer func(tasks int) plan.SbatchAnswer
	// begun has the started records that stand, by bundle.
	begun map[string]spool.Started
	// unprepared has the bundles whose specification cannot be written now.
	unprepared map[string]bool
	// gone is set if somebody has removed all records.
	gone bool
}

func (a *arrays) Observe(_ context.Context, now time.Time) (sbatch.Snapshot, error) {
	jobs := slices.Clone(a.jobs)
	slices.SortFunc(jobs, byJobID)
	return sbatch.Snapshot{Asked: now, Jobs: jobs}, nil
}

func newArrays(t *testing.T, rows ...plan.Row) *arrays {
	t.Helper()
	a := &arrays{t: t, now: time.Unix(1_800_000_000, 0), begun: map[string]spool.Started{}, unprepared: map[string]bool{}}
	a.policy = plan.Policy{
		Bridge: "b1b2b3", Layout: "/shared", SubmitGrace: 90 * time.Second, OrphanGrace: 5 * time.Minute, RecordAge: 5 * time.Minute, Settle: 10 * time.Second,
		CancelOrphans: true, MaxAttempts: 3, MaxArraySize: 1001, OutagePatience: time.Hour, Queues: map[string]plan.Queue{"cpu": {Name: "cpu", Tag: "cpu", ArrayTasks: 8}},
	}
	var err error
	if a.book, err = ledger.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.book.Close() })
	if err := a.book.Save(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	a.start()
	return a
}

// start starts a bridge on the ledger, as after a crash.
func (a *arrays) start() {
	a.b = &Bridge{Config: Config{Policy: a.policy, Ledger: a.book, Scheduler: a, Spool: noLists{}, Log: slog.New(slog.DiscardHandler), Pace: Pace{PerSecond: 100, Burst: 100}}}
	if err := a.b.Open(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	a.observe()
}

// noLists is a disk without lists of members.
type noLists struct{ Spool }

func (noLists) Members(func(string) bool) ([]spool.Members, error) { return nil, nil }

func (a *arrays) observe() {
	_ = a.b.FindMembers() // what the disk does not tell is found later
	if err := a.b.Observe(a.t.Context(), a.now); err != nil {
		a.t.Fatal(err)
	}
}

// waiting is a row that waits for its submission.
func waiting(owner string, i int, change ...func(*plan.Row)) plan.Row {
	r := plan.Row{Bundle: fmt.Sprintf("0x%032d", i), Queue: "cpu", Phase: plan.Staging, Staged: &spool.Inputs{}, OfferedAt: time.Unix(int64(i), 0)}
	r.Run = &codalab.RunBundle{UUID: r.Bundle, OwnerID: owner, Command: fmt.Sprint("run ", i)}
	r.Resources = codalab.Resources{CPUs: 1, Memory: 1 << 30}
	for _, c := range change {
		c(&r)
	}
	return r
}

func several(owner string, first, n int) []plan.Row {
	rows := make([]plan.Row, n)
	for i := range rows {
		rows[i] = waiting(owner, first+i)
	}
	return rows
}

// pass lets time pass in steps of a second, with a snapshot before each.
func (a *arrays) pass(d time.Duration) {
	a.t.Helper()
	a.passWith(d, a.do)
}

// passWith is pass with another Slurm or disk.
func (a *arrays) passWith(d time.Duration, do func(plan.Effect)) {
	a.t.Helper()
	for end := a.now.Add(d); !a.now.After(end); a.now = a.now.Add(time.Second) {
		a.observe()
		a.stepWith(do)
	}
}

// step makes steps until nothing is wanted any more.
func (a *arrays) step() {
	a.t.Helper()
	a.stepWith(a.do)
}

func (a *arrays) stepWith(do func(plan.Effect)) {
	a.t.Helper()
	for effects := a.wanted(); len(effects) > 0; effects = a.wanted() {
		for _, e := range effects {
			do(e)
		}
	}
}

// passWithACrash is pass with a crash of the bridge in a step, counted from 1; an sbatch of the step before runs, and its answer is lost.
func (a *arrays) passWithACrash(d time.Duration, crashAt int) {
	a.t.Helper()
	steps := 0
	for end := a.now.Add(d); a.now.Before(end); a.now = a.now.Add(time.Second) {
		a.observe()
		for {
			effects := a.wanted()
			if steps++; steps == crashAt {
				a.start() // the effects of this step are lost
				continue
			}
			if len(effects) == 0 {
				break
			}
			for _, e := range effects {
				if steps+1 == crashAt && e.Kind == plan.Submit {
					a.sbatch(e)
					continue
				}
				a.do(e)
			}
		}
	}
}

// setQueue changes the queue of the bridge that runs.
func (a *arrays) setQueue(change func(*plan.Queue)) {
	p := &a.b.decider.rules.Policy
	q := p.Queues["cpu"]
	change(&q)
	p.Queues = map[string]plan.Queue{"cpu": q}
}

// wanted makes a step, and returns its effects.
func (a *arrays) wanted() []plan.Effect {
	a.t.Helper()
	effects, _, err := a.b.Step(a.t.Context(), a.now)
	if err != nil {
		a.t.Fatal(err)
	}
	return effects
}

func (a *arrays) do(e plan.Effect) {
	of := none
	tell := func(put func(*plan.News)) { of = func(*plan.Row) func(*plan.News) { return put } }
	switch e.Kind {
	case plan.Prepare:
		tell(func(n *plan.News) { n.Prepared = &plan.Outcome{Generation: e.Row.Generation} })
		if a.unprepared[e.Row.Bundle] {
			tell(func(n *plan.News) { n.Prepared = &plan.Outcome{Failure: "no space left on device"} })
		}
	case plan.Submit:
		answer := a.sbatch(e)
		tell(func(n *plan.News) { n.Submitted = &answer })
	case plan.Fence:
		c := plan.Fencing{Attempt: e.Row.Attempt.Number, Started: spool.Started{Token: "bridge", Fenced: true}}
		if s, ok := a.begun[e.Row.Bundle]; ok {
			c.Started = s
		}
		if a.gone {
			c = plan.Fencing{Attempt: e.Row.Attempt.Number, Gone: true, Failure: "no such directory"}
		}
		tell(func(n *plan.News) { n.Fenced = &c })
	case plan.Cancel:
		for _, r := range e.Rows() {
			a.cancelled = append(a.cancelled, r.Job.ID)
		}
		tell(func(n *plan.News) { n.Cancelled = &plan.Outcome{} })
	case plan.AskQueue:
		a.asked++
		tell(func(n *plan.News) { n.Canary = &plan.Canary{} })
	case plan.StopMember:
		a.stopped = append(a.stopped, e.Row.Bundle)
		tell(func(n *plan.News) { n.Stopped = &plan.Stopped{Attempt: e.Row.Attempt.Number} })
	default: // an effect without an outcome
		return
	}
	a.b.inbox.putEnded(e, of)
}

// sbatch is the fake Slurm's.
func (a *arrays) sbatch(e plan.Effect) plan.SbatchAnswer {
	a.submitted = append(a.submitted, e)
	tasks := 0
	if e.Submission != nil {
		tasks = len(e.Submission.Members)
	}
	if a.answer != nil {
		answer := a.answer(tasks)
		answer.Attempt = e.Row.Attempt.Number
		return answer
	}
	return plan.SbatchAnswer{Attempt: e.Row.Attempt.Number, Job: sbatch.JobID(99 + len(a.submitted))}
}

// sizes lists the submissions, by the numbers of their tasks.
func (a *arrays) sizes() []int {
	sizes := []int{}
	for _, e := range a.submitted {
		if e.Submission == nil {
			sizes = append(sizes, 0)
		} else {
			sizes = append(sizes, len(e.Submission.Members))
		}
	}
	return sizes
}

// show makes Slurm show the waiting tasks of an array of a submission.
func (a *arrays) show(e plan.Effect, array sbatch.JobID) {
	request := a.policy.SharedRequest(e.Submission, *e.Row)
	for i := range e.Submission.Members {
		a.jobs = append(a.jobs, sbatch.Job{
			ID: array.Task(i), Name: request.Name, Comment: request.Comment, State: sbatch.StatePending, Reason: "Priority", Submitted: a.now.Truncate(time.Second),
		})
	}
}

func (a *arrays) row(i int) *plan.Row {
	a.t.Helper()
	r := a.b.decider.rows.get(fmt.Sprintf("0x%032d", i))
	if r == nil {
		a.t.Fatalf("no row %d", i)
	}
	return r
}

func (a *arrays) kill(i int) {
	a.b.inbox.put(a.row(i).Bundle, func(n *plan.News) { n.Messages = []codalab.Message{{Type: codalab.MessageKill}} })
}

// phases returns the phases of rows from the first one on.
func (a *arrays) phases(first, n int) (phases []plan.Phase) {
	for i := range n {
		phases = append(phases, a.row(first+i).Phase)
	}
	return phases
}

func (a *arrays) want(what string, got, want any) {
	a.t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		a.t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func all(n int, p plan.Phase) []plan.Phase { return slices.Repeat([]plan.Phase{p}, n) }

func unclear(int) plan.SbatchAnswer { return plan.SbatchAnswer{Words: "Socket timed out"} }

// slowPrepare holds the outcome of Prepare of some bundles back, as a slow disk does; the effect then writes the specification
// of the row for which it was begun.
type slowPrepare struct {
	*arrays
	hold    func(e plan.Effect) bool
	held    []plan.Effect
	written map[string]int64 // bundle → the generation in spec.json
}

func (s *slowPrepare) pass(d time.Duration) {
	s.t.Helper()
	s.passWith(d, func(e plan.Effect) {
		switch {
		case e.Kind == plan.Prepare && s.hold(e):
			s.held = append(s.held, e)
		case e.Kind == plan.Prepare:
			s.write(e)
		default:
			s.do(e)
		}
	})
}

func (s *slowPrepare) write(e plan.Effect) {
	s.written[e.Row.Bundle] = e.Row.Generation
	s.do(e)
}
