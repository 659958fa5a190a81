package bridge

import (
	"context"
	"errors"
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
	// answer answers an sbatch of so many tasks, 0 for a single job; nil for jobs with ids from 100 on.
	answer func(tasks int) plan.SbatchAnswer
	// begun has the started records that stand, by bundle.
	begun map[string]spool.Started
	// unprepared has the bundles whose specification cannot be written now.
	unprepared map[string]bool
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
	a.b = &Bridge{Config: Config{Policy: a.policy, Ledger: a.book, Scheduler: a, Log: slog.New(slog.DiscardHandler), Pace: Pace{PerSecond: 100, Burst: 100}}}
	if err := a.b.Open(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	a.observe()
}

func (a *arrays) observe() {
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
	for end := a.now.Add(d); !a.now.After(end); a.now = a.now.Add(time.Second) {
		a.observe()
		a.step()
	}
}

// step makes steps until nothing is wanted any more.
func (a *arrays) step() {
	a.t.Helper()
	for effects := a.wanted(); len(effects) > 0; effects = a.wanted() {
		for _, e := range effects {
			a.do(e)
		}
	}
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
		tell(func(n *plan.News) { n.Fenced = &c })
	case plan.Cancel:
		for _, r := range e.Rows() {
			a.cancelled = append(a.cancelled, r.Job.ID)
		}
		tell(func(n *plan.News) { n.Cancelled = &plan.Outcome{} })
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

func TestEqualBundlesOfAnOwnerGoAsArrays(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 10)
	rows[4].Resources.Memory++ // by one byte
	rows = append(rows, several("2", 20, 3)...)
	rows = append(rows, waiting("2", 23, func(r *plan.Row) { r.Attempt.Number = 1; r.OnDisk = "1-b1b2b3" }))
	a := newArrays(t, rows...)
	a.pass(2 * time.Second)
	a.want("tasks of the submissions", slices.Sorted(slices.Values(a.sizes())), []int{0, 0, 0, 3, 8})
	array, _, _ := a.row(0).Job.ID.ArrayTask()
	for i, row := range []int{0, 1, 2, 3, 5, 6, 7, 8} {
		a.want(fmt.Sprintf("the job of row %d", row), a.row(row).Job.ID, array.Task(i))
	}
	a.want("phases", append(a.phases(0, 10), a.phases(20, 4)...), all(14, plan.Queued))
	saved, err := a.book.Submissions(t.Context())
	if err != nil || len(saved) != 2 || saved[0].State != plan.Made || saved[0].Array != array || len(saved[0].Members) != 8 {
		t.Errorf("the ledger has %+v, %v", saved, err)
	}
	for i := range 3 {
		a.kill(20 + i)
	}
	a.jobs = nil
	a.pass(3 * time.Minute)
	if saved, err = a.book.Submissions(t.Context()); err != nil || len(saved) != 1 {
		t.Errorf("an array without rows in flight stays in the ledger: %+v, %v", saved, err)
	}
}

func TestKilledMemberIsFencedAndARepeatSubmitsTheSameList(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 5)...)
	a.answer = unclear
	a.pass(2 * time.Second)
	a.kill(2)
	a.pass(10 * time.Second)
	a.want("the killed one", a.row(2).Phase, plan.Finalizing) // its verdict does not wait for Slurm
	if !a.row(2).Fenced {
		t.Error("the killed member is not fenced")
	}
	a.want("the others", append(a.phases(0, 2), a.phases(3, 2)...), all(4, plan.Submitting))
	a.want("submissions", len(a.submitted), 1)
	a.pass(2 * time.Minute)
	if len(a.submitted) != 2 {
		t.Fatalf("%d submissions: want a repeat after the proof that there is no array", len(a.submitted))
	}
	first, second := a.submitted[0].Submission, a.submitted[1].Submission
	a.want("the list of the repeat", second.Members, first.Members)
	a.want("its name", second.Name, first.Name)
	a.answer = nil
	a.show(a.submitted[1], 7)
	a.pass(2 * time.Second)
	for i, want := range map[int]string{0: "7_0", 1: "7_1", 3: "7_3", 4: "7_4"} {
		a.want(fmt.Sprintf("the job of row %d", i), a.row(i).Job.ID.String(), want)
	}
	a.pass(20 * time.Second)
	a.want("cancelled", slices.Compact(a.cancelled), []sbatch.JobID{sbatch.JobID(7).Task(2)})
}

func TestArrayOfALostAnswerIsFoundByItsName(t *testing.T) {
	t.Parallel()
	for name, rewrite := range map[string]func(*sbatch.Job){
		"by its name":                   func(j *sbatch.Job) { j.Comment = "" },
		"by its comment, renamed":       func(j *sbatch.Job) { j.Name = "renamed" },
		"by the only task that is left": func(*sbatch.Job) {},
	} {
		a := newArrays(t, several("1", 0, 5)...)
		a.answer = unclear
		a.pass(2 * time.Second)
		a.show(a.submitted[0], 7)
		if name == "by the only task that is left" {
			a.jobs = a.jobs[3:4]
		}
		for i := range a.jobs {
			rewrite(&a.jobs[i])
		}
		a.pass(5 * time.Second)
		for i := range 5 {
			a.want(name+": job", a.row(i).Job.ID.String(), fmt.Sprint("7_", i))
		}
		a.pass(3 * time.Minute)
		a.want(name+": submissions", len(a.submitted), 1)
	}
}

func TestRefusedArrayFailsNoMember(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]plan.SbatchAnswer{
		"a limit":         {Refused: true, Retry: true, Words: "QOSMaxSubmitJobPerUserLimit"},
		"a final refusal": {Refused: true, Words: "Invalid job array specification"},
	} {
		a := newArrays(t, several("1", 0, 8)...)
		a.answer = func(tasks int) plan.SbatchAnswer {
			if tasks > 2 {
				return refusal
			}
			return plan.SbatchAnswer{Job: sbatch.JobID(100 + len(a.submitted))}
		}
		a.pass(2 * time.Minute)
		a.want(name+": phases", a.phases(0, 8), all(8, plan.Queued))
		a.want(name+": tasks of the submissions", a.sizes(), []int{8, 4, 4, 2, 2, 2, 2})
		for i := range 8 {
			if r := a.row(i); r.Attempt.Number != 1 || r.FailedAttempts > 0 {
				t.Errorf("%s: row %d is at attempt %d", name, i, r.Attempt.Number)
			}
		}
	}
}

func TestMembersAreFencedBeforeTheyLeaveADoubtfulArray(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 4)...)
	answers := []plan.SbatchAnswer{{Words: "Socket timed out"}, {Refused: true, Words: "Invalid qos specification"}}
	a.answer = func(int) plan.SbatchAnswer {
		if len(answers) == 0 {
			return plan.SbatchAnswer{Job: sbatch.JobID(200 + len(a.submitted))}
		}
		next := answers[0]
		answers = answers[1:]
		return next
	}
	a.pass(2 * time.Second)
	array := sbatch.JobID(7)
	a.begun[a.row(3).Bundle] = spool.Started{Token: "w", Node: "n1", Job: array.Task(3).String(), At: a.now}
	a.pass(3 * time.Minute)
	// The lost answer had made an array after all, and the worker of one member had begun before the bridge could fence it.
	a.want("the one that had begun", a.row(3).Job.ID.String(), "7_3")
	a.want("its phase", a.row(3).Phase, plan.Running)
	for i := range 3 {
		r := a.row(i)
		a.want("the others' attempts", r.Attempt.Number, 2)
		if r.Shared {
			t.Errorf("row %d shares a submission again", i)
		}
	}
	a.want("tasks of the submissions", a.sizes(), []int{4, 4, 0, 0, 0})
}

func TestTaskBeginsFromEitherOfTwoArrays(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.answer = unclear
	a.pass(2 * time.Minute)
	if len(a.submitted) < 2 {
		t.Fatalf("%d submissions", len(a.submitted))
	}
	a.show(a.submitted[0], 7) // squeue had not shown the first one
	a.show(a.submitted[0], 8)
	a.pass(2 * time.Second)
	for i, want := range []string{"7_0", "7_1", "7_2"} {
		a.want("adopted", a.row(i).Job.ID.String(), want)
	}
	started := spool.Started{Token: "w", Node: "n1", Job: sbatch.JobID(8).Task(1).String(), At: a.now}
	a.b.inbox.put(a.row(1).Bundle, func(n *plan.News) {
		n.AddRecords(plan.Records{Attempt: 1, Read: a.now, Records: spool.Records{Started: &started}})
	})
	a.step()
	a.want("the job of the one that began", a.row(1).Job.ID.String(), "8_1")
	a.want("its phase", a.row(1).Phase, plan.Running)
	a.want("the others", []string{a.row(0).Job.ID.String(), a.row(2).Job.ID.String()}, []string{"7_0", "7_2"})
}

func TestMemberWithoutASpecificationIsLeftBehind(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 4)...)
	a.unprepared[a.row(1).Bundle] = true
	a.pass(5 * time.Second)
	a.want("submissions while the others wait for it", len(a.submitted), 0)
	a.pass(10 * time.Second)
	a.want("tasks of the submissions", a.sizes()[:1], []int{3})
	for i, want := range map[int]string{0: "100_0", 2: "100_1", 3: "100_2"} {
		a.want(fmt.Sprintf("the job of row %d", i), a.row(i).Job.ID.String(), want)
	}
	a.unprepared = nil
	a.pass(time.Minute)
	a.want("the one that was left behind", a.row(1).Job.ID.String(), "101")
	a.want("its attempt", a.row(1).Attempt.Number, 1)
}

// TestArraySurvivesACrashBetweenAnyTwoLines crashes after each save.
func TestArraySurvivesACrashBetweenAnyTwoLines(t *testing.T) {
	t.Parallel()
	for crashAt := range 12 {
		a := newArrays(t, several("1", 0, 4)...)
		steps, made := 0, map[sbatch.JobID]bool{}
		a.answer = func(int) plan.SbatchAnswer {
			id := sbatch.JobID(50 + len(a.submitted))
			made[id] = true
			a.show(a.submitted[len(a.submitted)-1], id)
			return plan.SbatchAnswer{Job: id}
		}
		for end := a.now.Add(4 * time.Minute); a.now.Before(end); a.now = a.now.Add(time.Second) {
			a.observe()
			for {
				effects, _, err := a.b.Step(t.Context(), a.now)
				if err != nil {
					t.Fatal(err)
				}
				if steps++; steps == crashAt {
					a.start() // the effects of this step are lost
					continue
				}
				if len(effects) == 0 {
					break
				}
				for _, e := range effects {
					if steps+1 == crashAt && e.Kind == plan.Submit { // its answer is lost
						a.sbatch(e)
						continue
					}
					a.do(e)
				}
			}
		}
		for i := range 4 {
			if r := a.row(i); r.Phase != plan.Queued || r.Attempt.Number != 1 || r.Job.ID.String() != fmt.Sprintf("%d_%d", 50+len(a.submitted), i) {
				t.Errorf("crash at %d: row %d is %s with job %s, attempt %d (%s)", crashAt, i, r.Phase, r.Job.ID, r.Attempt.Number, r.Reason)
			}
		}
		if len(made) != 1 {
			t.Errorf("crash at %d: %d arrays were made", crashAt, len(made))
		}
	}
}

func TestOrphanTasksAreJudgedOneByOne(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.pass(2 * time.Second)
	a.show(a.submitted[0], 100)
	a.show(a.submitted[0], 99) // of the same submission
	stray := a.jobs[0]
	stray.ID = sbatch.JobID(98).Task(7) // no member has this place
	a.jobs = append(a.jobs, stray)
	a.pass(a.policy.OrphanGrace + 30*time.Second)
	a.want("cancelled", slices.Compact(a.cancelled), []sbatch.JobID{sbatch.JobID(98).Task(7)})
}

func TestLedgerThatIsOlderThanAnArrayStopsTheBridge(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.jobs = []sbatch.Job{{ID: sbatch.JobID(9).Task(0), Name: "cl-x", Comment: "codalab tasks=3 owner=1 bridge=b1b2b3 generation=900", State: sbatch.StatePending}}
	a.observe()
	if _, _, err := a.b.Step(t.Context(), a.now); !errors.Is(err, plan.ErrOutdated) {
		t.Errorf("Step: %v", err)
	}
}

func TestMembersOfAnArrayThatNobodyWantsAreForgotten(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.answer = unclear
	a.pass(2 * time.Second)
	for i := range 3 {
		a.kill(i)
	}
	a.pass(3 * time.Minute)
	a.want("phases", a.phases(0, 3), all(3, plan.Finalizing))
	a.want("submissions", len(a.submitted), 1)
	for i := range 3 {
		if a.row(i).InFlight() {
			t.Errorf("row %d still waits for a job", i)
		}
	}
	if saved, err := a.book.Submissions(t.Context()); err != nil || len(saved) > 0 {
		t.Errorf("the ledger still has %+v, %v", saved, err)
	}
}

// Rows wait for others of their lane that are coming, for a while; a row alone goes at once.
func TestRowsGatherForAnArray(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 4)
	for i := range rows[:3] {
		rows[i].Spent.StagedAt = time.Unix(1_800_000_000, 0)
	}
	rows[3].Staged, rows[3].Phase = nil, plan.Staging // it is coming
	alone := waiting("2", 9)
	a := newArrays(t, append(rows, alone)...)
	a.observe()
	a.step()
	a.want("submissions at once", a.sizes(), []int{0})
	a.want("the one that is alone", a.row(9).Phase, plan.Queued)
	a.pass(time.Second)
	a.want("submissions while another one is coming", len(a.submitted), 1)
	a.b.inbox.put(a.row(3).Bundle, func(n *plan.News) { n.Staged = &plan.StageEnd{} })
	a.pass(0)
	a.want("submissions when all are there", a.sizes(), []int{0, 4})

	late := several("1", 20, 2)
	late[0].Spent.StagedAt = time.Unix(1_800_000_000, 0)
	late[1].Staged = nil
	a = newArrays(t, late...)
	a.pass(gatherFor + time.Second)
	a.want("submissions after the longest time", a.sizes(), []int{0})
}

// The pace counts submissions, and not the bundles in them.
func TestPaceCountsAnArrayAsOneSubmission(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 16)...)
	a.b.decider.pace = newPace(Pace{PerSecond: 1, Burst: 1}, time.Minute)
	a.b.decider.starter.pace = a.b.decider.pace
	a.pass(3 * time.Second)
	a.want("tasks of the submissions", a.sizes(), []int{8, 8})
}
