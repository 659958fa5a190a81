package bridge

import (
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// readAll reads the records of the first rows that are in flight.
func (p packs) readAll(n int) {
	for i := range n {
		r := p.row(i)
		if !r.InFlight() {
			continue
		}
		var records spool.Records
		if s, ok := p.begun[r.Bundle]; ok {
			records.Started = &s
		}
		p.read(i, records)
	}
}

// Slurm puts a pack back and holds it: the worker is gone after ten minutes at most, and no row cancels the pack. The time of the
// submission may not show the requeue.
func TestKilledMemberOfAHeldPackEnds(t *testing.T) {
	t.Parallel()
	for _, shown := range []bool{true, false} {
		p := newPacks(t, several("1", 0, 2)...)
		p.startOne(0)
		p.pass(2 * time.Second)
		p.kill(0)
		p.pass(time.Second)
		p.jobs[0].State, p.jobs[0].Reason, p.jobs[0].Nodes = sbatch.StatePending, "job requeued in held state", ""
		if shown {
			p.jobs[0].Submitted = p.now.Add(2 * time.Minute).Truncate(time.Second)
		}
		p.passReading(9, 2)
		p.want("its worker may still write its record", p.row(0).Phase, plan.Stopping)
		p.pass(3 * time.Minute)
		p.want("until the disk is read once more", p.row(0).Phase, plan.Stopping)
		for range 15 {
			p.readAll(2)
			p.pass(2 * time.Minute)
		}
		if r := p.row(0); r.InFlight() || r.Verdict == nil || r.Verdict.Failure != "Kill requested" {
			t.Errorf("requeue shown %v: it is %s, %+v (%s)", shown, r.Phase, r.Verdict, r.Reason)
		}
		p.want("the other one", p.row(1).Phase, plan.Queued)
		p.want("cancelled", p.cancelled, []sbatch.JobID(nil))
	}
}

// A preemption, or a deadline of the site, is no failure of a run that waited for its turn.
func TestPreemptedPackCostsItsWaitingMembersNothing(t *testing.T) {
	t.Parallel()
	for _, state := range []sbatch.State{sbatch.StatePreempted, sbatch.StateDeadline} {
		p := newPacks(t, several("1", 0, 8)...)
		p.submitOne()
		for range 3 {
			for i := range p.jobs {
				if request := p.jobs[i]; !request.State.Ended() && request.Comment != "" {
					p.jobs[i].State, p.jobs[i].Nodes = state, "n1"
				}
			}
			p.settle()
		}
		for i := range 8 {
			if r := p.row(i); state == sbatch.StatePreempted && (r.Attempt.Number < 3 || r.Phase == plan.Finalizing) || r.FailedStarts != 0 {
				t.Errorf("row %d is %s after three times %s, attempt %d, %d failed attempts: %+v", i, r.Phase, state, r.Attempt.Number, r.FailedAttempts, r.Verdict)
			}
		}
	}
}

// Slurm refuses everything for now: several together are tried no more often than one.
func TestTemporaryRefusalsOfSeveralBackOff(t *testing.T) {
	t.Parallel()
	standby := func(int) plan.SbatchAnswer {
		return plan.SbatchAnswer{Refused: true, Retry: true, Words: "Slurm backup controller in standby mode"}
	}
	p, a := newPacks(t, several("1", 0, 8)...), newArrays(t, several("1", 0, 8)...)
	p.answer, a.answer = standby, standby
	p.pass(10 * time.Minute)
	a.pass(10 * time.Minute)
	if pack, array := len(p.submitted), len(a.submitted); pack > 30 || array > 30 {
		t.Errorf("a pack is tried %d times in ten minutes, an array %d times", pack, array)
	}
}

// A pack is one job for Slurm's limits on the number of jobs, and a smaller one needs the same room.
func TestPackCountsOnceBelowALimit(t *testing.T) {
	t.Parallel()
	rows := slices.Concat(several("1", 0, 8), several("2", 20, 8))
	p := newPacks(t, rows...)
	kind := p.policy.JobKind(&rows[0])
	p.b.inbox.putLimits(learntLimits{Limits: plan.Limits{kind: {{Kind: sbatch.MaxSubmitJobsPU, Most: 4}}}})
	p.pass(10 * time.Second)
	p.want("members of the submissions", p.sizes(), []int{8, 8})
	p.want("jobs", p.b.board.view.countJobs(p.policy.JobKind), plan.JobCounts{kind: 2})

	p = newPacks(t, several("1", 0, 8)...)
	p.answer = func(int) plan.SbatchAnswer {
		return plan.SbatchAnswer{Refused: true, Retry: true, Words: "Job violates accounting/QOS policy (QOSMaxSubmitJobPerUserLimit)"}
	}
	p.pass(time.Minute)
	if r := p.row(0); r.MostTogether != 0 || len(p.submitted) < 2 {
		t.Errorf("after %d refusals a pack has %d members at most", len(p.submitted), r.MostTogether)
	}
}

// A refusal that no list of fewer members mends leads soon to packs that ask for less.
func TestRefusedPackSoonAsksForLess(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 8)...)
	answer := p.answer
	p.answer = func(members int) plan.SbatchAnswer {
		if members > 0 {
			return plan.SbatchAnswer{Refused: true, Words: "Requested time limit is invalid (missing or exceeds some limit)"}
		}
		return answer(0)
	}
	p.pass(3 * time.Minute)
	p.want("phases", p.phases(0, 8), all(8, plan.Queued))
	p.want("submissions", slices.Sorted(slices.Values(p.sizes())), []int{0, 0, 0, 0, 0, 0, 0, 0, 8})
}

// The time limit of a pack is none that the queue's bundles need.
func TestPackWithTooMuchTimeHoldsNoQueueUp(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 4)
	p := newPacks(t, rows...)
	for i := range 4 { // they ask for no time
		r := *p.row(i)
		r.Resources.Time = 0
		if err := p.book.Save(t.Context(), []plan.Row{r}); err != nil {
			t.Fatal(err)
		}
	}
	q := p.policy.Queues["cpu"]
	q.DefaultTime = 5 * time.Minute
	p.policy.Queues["cpu"] = q
	p.start()
	p.submitOne()
	p.jobs[0].Reason = "PartitionTimeLimit"
	p.pass(20 * time.Minute)
	p.want("submissions", slices.Sorted(slices.Values(p.sizes())), []int{0, 0, 0, 0, 4})
	for i := range 4 {
		if r := p.row(i); r.Held != "" || r.Phase != plan.Queued {
			t.Errorf("row %d is %s, held up by %q", i, r.Phase, r.Held)
		}
	}
}

// A command that gets TERM long before its limit has that time before KILL, too.
func TestRunWithASignalFitsInAPackAsItsWorkerCounts(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 1)...)
	q := p.policy.Queues["cpu"]
	q.Signal = 10 * time.Minute
	p.policy.Queues["cpu"] = q
	for minutes := range 60 {
		r := waiting("1", 0)
		r.Resources.Time = int64(minutes+1) * 60
		spec := p.policy.Spec(r)
		needs := time.Duration((spec.Seconds + spec.KillGraceSeconds) * float64(time.Second))
		if p.policy.MayShare(&r) && needs+time.Minute > q.PackTime {
			t.Errorf("a run of %d minutes needs %s of a pack of %s", minutes+1, needs, q.PackTime)
		}
	}
}

// A pack whose list is closed asks for what it was made for, after a change of the configuration, too.
func TestReloadLeavesAPackThatIsSubmitted(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 8)...)
	p.submitOne()
	e := p.submitted[0]
	before := p.policy.SharedRequest(e.Submission, *e.Row)
	q := p.policy.Queues["cpu"]
	q.PackRuns, q.PackSideBySide, q.PackTime = 0, 0, 0
	p.policy.Queues = map[string]plan.Queue{"cpu": q}
	p.want("its request", p.policy.SharedRequest(e.Submission, *e.Row), before)
}

// The exit status of a pack's script is no member's: one that has begun and left no record of its end is lost.
func TestEndOfAPackIsNoMembersEnd(t *testing.T) {
	t.Parallel()
	for exit, state := range map[string]sbatch.State{"0:0": sbatch.StateCompleted, "3:0": sbatch.StateFailed} {
		p := newPacks(t, several("1", 0, 8)...)
		p.startOne(0)
		p.change(state)
		p.jobs[0].Exit = exit
		p.settle()
		if r := p.row(0); r.Verdict == nil || r.Verdict.Cause != spool.CausePlatform || r.Verdict.ExitCode != nil {
			t.Errorf("after %s it is %s, %+v", exit, r.Phase, r.Verdict)
		}
	}
}
