package bridge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// packs is a bridge whose queue has packs of up to eight runs, three of them side by side.
type packs struct{ *arrays }

func newPacks(t *testing.T, rows ...plan.Row) packs {
	t.Helper()
	for i := range rows {
		rows[i].Resources.Time = 300
	}
	p := packs{newArrays(t, rows...)}
	p.policy.Queues = map[string]plan.Queue{"cpu": {
		Name: "cpu", Tag: "cpu", MaxTime: 2 * time.Hour, TimeGrace: 5 * time.Minute, MemoryOverhead: 1 << 28, PackRuns: 8, PackSideBySide: 3, PackTime: time.Hour,
	}}
	p.answer = func(int) plan.SbatchAnswer {
		id := sbatch.JobID(99 + len(p.submitted))
		p.showPack(p.submitted[len(p.submitted)-1], id)
		return plan.SbatchAnswer{Job: id}
	}
	p.start()
	return p
}

// change changes the pack's job in Slurm.
func (p packs) change(state sbatch.State) {
	p.jobs[0].State = state
	p.jobs[0].Nodes = "n1"
	if state == sbatch.StateRunning {
		p.jobs[0].Start = p.now.Truncate(time.Second)
	}
}

// showPack makes Slurm show the job of a submitted pack.
func (p packs) showPack(e plan.Effect, id sbatch.JobID) {
	request := p.policy.Request(*e.Row)
	if e.Submission != nil {
		request = p.policy.SharedRequest(e.Submission, *e.Row)
	}
	p.jobs = append(p.jobs, sbatch.Job{
		ID: id, Name: request.Name, Comment: request.Comment, State: sbatch.StatePending, Reason: "Priority", Submitted: p.now.Truncate(time.Second),
	})
}

// begin is the begin of a member by the pack's worker, and end its end.
func (p packs) begin(i int) { p.beginAt(i, p.now) }

// beginAt is begin at this time of the node's clock.
func (p packs) beginAt(i int, at time.Time) {
	s := spool.Started{Token: fmt.Sprint("worker of ", i), Node: "n1", Job: p.jobs[0].ID.String(), Submission: p.policy.Submission(*p.row(i)), At: at}
	p.begun[p.row(i).Bundle] = s
	p.read(i, spool.Records{Started: &s})
}

func (p packs) end(i int, e spool.Exit) {
	e.Token, e.At = p.begun[p.row(i).Bundle].Token, p.now
	p.read(i, spool.Records{Exit: &e})
}

func (p packs) read(i int, r spool.Records) {
	attempt := p.row(i).Attempt.Number
	p.b.inbox.put(p.row(i).Bundle, func(n *plan.News) { n.AddRecords(plan.Records{Attempt: attempt, Read: p.now, Records: r}) })
}

// submitOne passes until a pack of all rows is in Slurm.
func (p packs) submitOne() {
	p.t.Helper()
	p.pass(2 * time.Second)
	if len(p.submitted) != 1 || !p.submitted[0].Submission.Pack {
		p.t.Fatalf("%d submissions of the sizes %v", len(p.submitted), p.sizes())
	}
	p.pass(time.Second)
}

// startOne is submitOne, and the pack's worker begins these members.
func (p packs) startOne(members ...int) {
	p.t.Helper()
	p.submitOne()
	p.change(sbatch.StateRunning)
	p.pass(time.Second)
	for _, i := range members {
		p.begin(i)
	}
}

func TestSmallBundlesShareOneJob(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 10)
	p := newPacks(t, append(rows, several("2", 20, 1)...)...)
	p.pass(2 * time.Second)
	p.want("members of the submissions", slices.Sorted(slices.Values(p.sizes())), []int{0, 2, 8})
	i := slices.IndexFunc(p.submitted, func(e plan.Effect) bool { return e.Submission != nil && len(e.Submission.Members) == 8 })
	request := p.policy.SharedRequest(p.submitted[i].Submission, *p.submitted[i].Row)
	p.want("its processors", request.CPUs, int64(3))
	p.want("its memory", request.MemoryMiB, int64(3*1024+3*256))
	p.want("its time", request.Time, 20*time.Minute)
	p.want("its tasks", request.Tasks, 0)
	if !strings.HasSuffix(request.Script, ".json' --side-by-side=3 --time=20m0s\n") {
		t.Errorf("the script is %q", request.Script)
	}
	job := p.row(0).Job.ID
	for i := range 8 {
		p.want(fmt.Sprintf("the job of row %d", i), p.row(i).Job.ID, job)
	}
	p.want("phases", p.phases(0, 10), all(10, plan.Queued))
	if spec := p.policy.Spec(*p.row(3)); !spec.Pack {
		t.Error("the specification of a member is not one of a pack")
	}
	if spec := p.policy.Spec(*p.row(20)); spec.Pack {
		t.Error("a bundle alone is specified as a member of a pack")
	}
}

func TestBundleThatNeedsMoreTimeGoesInNoPack(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 3)...)
	for _, r := range []plan.Row{waiting("1", 0), waiting("1", 1)} {
		r.Resources.Time = 3600
		if p.policy.MayShare(&r) {
			t.Error("a run of an hour shares an allocation of an hour")
		}
	}
}

func TestMembersOfAPackEndOneByOne(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 5)...)
	p.startOne(0, 1)
	p.pass(time.Second)
	p.want("two run", p.phases(0, 5), []plan.Phase{plan.Running, plan.Running, plan.Queued, plan.Queued, plan.Queued})
	code := 0
	p.end(0, spool.Exit{Cause: spool.CauseSucceeded, ExitCode: &code})
	p.pass(time.Second)
	p.want("one has ended, and its job runs", p.phases(0, 3), []plan.Phase{plan.Collecting, plan.Running, plan.Queued})
	c, ok := p.row(0).Charge()
	if !ok || c.Start != p.row(0).Begun.At || c.Job != 100 {
		t.Errorf("its cost is %+v, %v", c, ok)
	}
	p.want("cancelled", p.cancelled, []sbatch.JobID(nil))
}

// A kill ends the member, and never the job that others need.
func TestKillOfAMemberSparesTheOthers(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 4)...)
	p.startOne(0, 1)
	p.pass(time.Second)
	p.kill(1)
	p.kill(3)
	p.pass(25 * time.Second)
	p.want("the others", []plan.Phase{p.row(0).Phase, p.row(2).Phase}, []plan.Phase{plan.Running, plan.Queued})
	p.want("the one that waited", p.row(3).Phase, plan.Finalizing)
	p.want("the one that runs", p.row(1).Phase, plan.Stopping)
	if n := len(p.stopped); n < 3 || slices.ContainsFunc(p.stopped, func(bundle string) bool { return bundle != p.row(1).Bundle }) {
		t.Errorf("the worker was told to end %v: want row 1, again each ten seconds", p.stopped)
	}
	p.end(1, spool.Exit{Cause: spool.CausePlatform, Terminated: true})
	p.pass(time.Second)
	if r := p.row(1); r.Phase != plan.Collecting || r.Verdict.Failure != "Kill requested" {
		t.Errorf("the killed one is %s, %+v", r.Phase, r.Verdict)
	}
	p.change(sbatch.StateCompleted)
	p.pass(time.Minute)
	p.want("cancelled", p.cancelled, []sbatch.JobID(nil))
}

// Members that a pack did not begin go into a smaller one, with nothing on their account.
func TestMembersWithoutATurnGoIntoASmallerPack(t *testing.T) {
	t.Parallel()
	for _, state := range []sbatch.State{sbatch.StateCompleted, sbatch.StateTimeout, sbatch.StateOutOfMemory, sbatch.StateFailed} {
		p := newPacks(t, several("1", 0, 8)...)
		p.startOne(0)
		p.change(state)
		if state == sbatch.StateFailed {
			p.jobs[0].Exit = "0:9" // its worker was killed
		}
		p.settle()
		if r := p.row(0); r.Verdict == nil || r.Verdict.Cause != spool.CausePlatform {
			t.Errorf("the one that had begun is %s after %s, %+v", r.Phase, state, r.Verdict)
		}
		p.want("submissions after "+string(state), slices.Sorted(slices.Values(p.sizes())), []int{3, 4, 8})
		for i := 1; i < 8; i++ {
			r := p.row(i)
			if r.Attempt.Number != 2 || r.FailedAttempts != 0 || r.FailedStarts != 0 || r.SickNodes != "" {
				t.Errorf("row %d after %s: attempt %d, %d failed attempts, %d failed starts, without %q (%s)", i, state, r.Attempt.Number, r.FailedAttempts, r.FailedStarts, r.SickNodes, r.Reason)
			}
		}
	}
}

// settle passes until all rows whose pack has ended are decided.
func (p packs) settle() {
	for range 60 {
		for i := range len(p.b.decider.rows.byBundle) {
			if r := p.row(i); !r.NoJobSince.IsZero() {
				p.read(i, spool.Records{})
			}
		}
		p.pass(time.Second)
	}
}

func TestNodeOfAPackThatFailsIsAvoided(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 8)...)
	p.startOne(0)
	p.change(sbatch.StateNodeFail)
	p.settle()
	p.want("submissions", slices.Sorted(slices.Values(p.sizes())), []int{3, 4, 8})
	if r := p.row(5); r.Attempt.Number != 2 || r.FailedAttempts != 0 || r.Exclude != "n1" {
		t.Errorf("attempt %d, %d failed, without %q (%s)", r.Attempt.Number, r.FailedAttempts, r.Exclude, r.Reason)
	}
	if r := p.row(0); r.Verdict == nil || r.Verdict.Cause != spool.CausePlatform {
		t.Errorf("the one that had begun is %s, %+v", r.Phase, r.Verdict)
	}
}

func TestPackThatCanNeverStartLetsItsMembersGoAlone(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 4)...)
	p.submitOne()
	p.jobs[0].Reason = "PartitionConfig"
	p.pass(5 * time.Minute)
	p.want("submissions", slices.Sorted(slices.Values(p.sizes())), []int{0, 0, 0, 0, 4})
	p.want("questions about its queue", p.asked, 1)
	p.pass(p.policy.OrphanGrace)
	p.want("the pack without members", slices.Compact(p.cancelled), []sbatch.JobID{100})
}

// All bundles of a pack that waits are killed: no member begins, and the job goes.
func TestPackWithoutMembersLeaves(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 4)...)
	p.submitOne()
	for i := range 4 {
		p.kill(i)
	}
	p.pass(5 * time.Second)
	p.want("phases", p.phases(0, 4), all(4, plan.Finalizing))
	p.pass(p.policy.OrphanGrace + time.Minute)
	p.want("cancelled", slices.Compact(p.cancelled), []sbatch.JobID{100})
}

// TestPackSurvivesACrashBetweenAnyTwoLines crashes after each save.
func TestPackSurvivesACrashBetweenAnyTwoLines(t *testing.T) {
	t.Parallel()
	for crashAt := range 24 {
		p := newPacks(t, several("1", 0, 4)...)
		made := map[sbatch.JobID]bool{}
		answer := p.answer
		p.answer = func(n int) plan.SbatchAnswer {
			a := answer(n)
			made[a.Job] = true
			return a
		}
		p.passWithACrash(4*time.Minute, crashAt)
		for i := range 4 {
			if r := p.row(i); r.Phase != plan.Queued || r.Attempt.Number != 1 || r.Job.ID != sbatch.JobID(99+len(p.submitted)) {
				t.Errorf("crash at %d: row %d is %s with job %s, attempt %d (%s)", crashAt, i, r.Phase, r.Job.ID, r.Attempt.Number, r.Reason)
			}
		}
		if len(made) != 1 {
			t.Errorf("crash at %d: %d packs were made", crashAt, len(made))
		}
	}
}

// A ledger that was restored from a copy older than a pack: the list of its members tells the bundles, and all take the one job up.
func TestPackIsTakenUpByItsBundlesAfterAnOldCopyOfTheLedger(t *testing.T) {
	t.Parallel()
	a, disk, list := strayArray(t, 3)
	a.jobs = a.jobs[:1]
	a.jobs[0].ID, a.jobs[0].Comment = 55, "codalab pack=3 owner=1 bridge=b1b2b3 generation=5"
	list.Attempts[1].Identity = "0123456789abcdef" // an earlier bundle of this UUID
	if err := disk.WriteMembers(list); err != nil {
		t.Fatal(err)
	}
	a.look(2)
	for _, i := range []int{0, 2} {
		if r := a.row(i); r.Phase != plan.Queued || r.Job.ID != 55 || !r.Pack || r.Index != i || r.Generation != 5 {
			t.Errorf("row %d is %s with job %s, in a pack %v at %d (%s)", i, r.Phase, r.Job.ID, r.Pack, r.Index, r.Reason)
		}
	}
	a.look(10)
	a.want("cancelled", a.cancelled, []sbatch.JobID(nil))
}

// A ledger that was restored from an older copy submits a member once more, with a job of its own, and the pack has begun it meanwhile.
func TestBundleThatAnUnknownPackBeganSparesTheOthers(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 1)...)
	p.pass(4 * time.Second)
	p.want("members of the submissions", p.sizes(), []int{0})
	p.jobs[0].ID, p.jobs[0].Name, p.jobs[0].Comment = 55, "cl-ann-pack", "codalab pack=3 owner=1 bridge=b1b2b3 generation=0"
	p.jobs[0].TimeLimit = 2 * time.Hour
	p.change(sbatch.StateRunning)
	p.read(0, spool.Records{Started: &spool.Started{Token: "worker", Node: "n1", Job: "55", Submission: "b1b2b3.0", At: p.now}})
	p.pass(3 * time.Minute)
	if r := p.row(0); r.Phase != plan.Running || r.Job.ID != 55 || r.Job.State.Ended() || r.TimeLimits.Now == 2*time.Hour {
		t.Errorf("the row is %s with job %s, %s, of %s (%s)", r.Phase, r.Job.ID, r.Job.State, r.TimeLimits.Now, r.Reason)
	}
	p.kill(0)
	p.pass(25 * time.Second)
	p.want("cancelled", p.cancelled, []sbatch.JobID(nil))
	if len(p.stopped) == 0 {
		t.Error("the pack's worker is not told to end it")
	}
}

// A pack that can never start has a member that is killed, and whose records somebody has removed.
func TestKilledMemberWithoutRecordsWaitsForNoPackThatWaits(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 2)...)
	p.submitOne()
	p.pass(5 * time.Second)
	p.gone = true
	p.kill(0)
	p.pass(p.policy.Settle + time.Minute)
	p.want("the one that was killed", p.row(0).Phase, plan.Finalizing)
	p.want("the other one", p.row(1).Phase, plan.Queued)
	p.want("cancelled", p.cancelled, []sbatch.JobID(nil))
}

// The bridge has not read the start of a member before somebody removed its records.
func TestI4MemberThatMayHaveBegunDoesNotBeginAgain(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 2)...)
	p.startOne()
	p.gone = true
	p.change(sbatch.StateCompleted)
	p.settle()
	if r := p.row(0); r.Attempt.Number != 1 || r.Verdict == nil || r.Verdict.Cause != spool.CausePlatform {
		t.Errorf("attempt %d, %s, %+v (%s)", r.Attempt.Number, r.Phase, r.Verdict, r.Reason)
	}
}
