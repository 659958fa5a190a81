package bridge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// requeue puts the pack back into the queue. The next snapshot may show that.
func (p packs) requeue() (at time.Time) {
	at = p.now.Truncate(time.Second)
	p.jobs[0].State, p.jobs[0].Reason, p.jobs[0].Nodes, p.jobs[0].Submitted = sbatch.StatePending, "BeginTime", "", at
	return at
}

// passReading passes, and reads the records of the first rows each minute.
func (p packs) passReading(minutes, rows int) {
	p.t.Helper()
	for range minutes {
		p.readAll(rows)
		p.pass(time.Minute)
	}
}

// Slurm puts a pack back and runs it again: the members of its first run have lost their worker, and the second run has others.
func TestMemberOfAnEarlierRunOfAPackDoesNotWaitForTheNextOne(t *testing.T) {
	t.Parallel()
	for _, seen := range []bool{true, false} { // whether a snapshot shows the pack in the queue
		p := newPacks(t, several("1", 0, 8)...)
		p.startOne(0, 1)
		p.pass(3 * time.Minute)
		requeued := p.requeue()
		if seen {
			p.pass(2 * time.Minute)
		} else {
			p.now = p.now.Add(2 * time.Minute)
		}
		p.change(sbatch.StateRunning)
		p.begin(2)
		p.passReading(12, 8)
		p.want("members of the second run", p.phases(2, 2), []plan.Phase{plan.Running, plan.Queued})
		for i := range 2 {
			r := p.row(i)
			if r.Verdict == nil || r.Verdict.Cause != spool.CausePlatform || r.Begun == nil {
				t.Fatalf("seen %v: row %d is %s (%s), %+v", seen, i, r.Phase, r.Reason, r.Verdict)
			}
			if c, ok := r.Charge(); !ok || !c.End.Equal(requeued) {
				t.Errorf("seen %v: row %d is billed until %s, and its run ended at %s", seen, i, c.End, requeued)
			}
		}
		p.want("cancelled", p.cancelled, []sbatch.JobID(nil))
	}
}

// The end of the second run is no end of a member of the first.
func TestEndOfALaterRunOfAPackIsNoEarlierMembersEnd(t *testing.T) {
	t.Parallel()
	for _, state := range []sbatch.State{sbatch.StateCancelled, sbatch.StateTimeout, sbatch.StateCompleted} {
		p := newPacks(t, several("1", 0, 2)...)
		p.startOne(0)
		p.pass(3 * time.Minute)
		requeued := p.requeue()
		p.now = p.now.Add(3 * time.Minute)
		p.change(sbatch.StateRunning)
		p.change(state)
		p.settle()
		r := p.row(0)
		if r.Verdict == nil || r.Verdict.Cause != spool.CausePlatform || r.Verdict.Failure != "Slurm job 100 was put back into the queue while it ran on n1: a run that has begun does not begin a second time in the same job." {
			t.Errorf("after %s it is %s, %+v", state, r.Phase, r.Verdict)
		}
		if c, ok := r.Charge(); !ok || !c.End.Equal(requeued) {
			t.Errorf("after %s it is billed until %s, and its run ended at %s", state, c.End, requeued)
		}
	}
}

// A requeue before the begin, of which the bridge hears after it, proves nothing, even if the node's clock is slow.
func TestMemberThatBeganAfterARequeueRunsOn(t *testing.T) {
	t.Parallel()
	for _, slow := range []time.Duration{0, plan.ClockSlack} {
		p := newPacks(t, several("1", 0, 2)...)
		p.submitOne()
		p.now = p.now.Add(2 * time.Minute)
		p.requeue()
		p.now = p.now.Add(2 * time.Minute)
		p.change(sbatch.StateRunning)
		p.beginAt(0, p.now.Add(-slow))
		p.passReading(15, 2)
		p.want("phases", p.phases(0, 2), []plan.Phase{plan.Running, plan.Queued})
	}
}

// A node whose clock is slow begins each member before the start of its pack.
func TestMemberOnANodeWithASlowClockRunsOn(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 2)...)
	p.submitOne()
	p.now = p.now.Add(time.Hour)
	p.change(sbatch.StateRunning)
	p.beginAt(0, p.now.Add(-4*time.Minute)) // munge lets no job start on a slower one
	p.passReading(15, 2)
	p.want("phases", p.phases(0, 2), []plan.Phase{plan.Running, plan.Queued})
}

// A node that a pack's worker found sick, or a disk that takes no further start: the members that are left go elsewhere, with nothing on
// their account.
func TestMembersThatASickNodeLeavesGoElsewhere(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 8)...)
	p.startOne(0, 1)
	p.pass(time.Second)
	for i := range 2 {
		p.end(i, spool.Exit{Cause: spool.CausePlatform, NotStarted: true, NodeAtFault: true, Failure: "No user namespaces on this node."})
	}
	p.change(sbatch.StateFailed)
	p.jobs[0].Exit = "125:0"
	p.settle()
	for i := 2; i < 8; i++ {
		if r := p.row(i); r.Attempt.Number != 2 || r.FailedStarts != 0 || r.FailedAttempts != 0 || r.Exclude != "n1" {
			t.Errorf("row %d: attempt %d, %d failed starts, without %q (%s)", i, r.Attempt.Number, r.FailedStarts, r.Exclude, r.Reason)
		}
	}
	if r := p.row(0); r.FailedStarts != 1 || r.SickNodes != "n1" {
		t.Errorf("row 0: %d failed starts, without %q", r.FailedStarts, r.SickNodes)
	}
	sick := p.b.decider.health.nodes["n1"]
	p.want("jobs that failed on the node", sick.Failures, 1)
}

// A pack that its node cannot launch is one failure of the node, and not one for each member.
func TestFailedPackCountsOnceAgainstItsNode(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 8)...)
	p.submitOne()
	p.change(sbatch.StateFailed)
	p.jobs[0].Exit = "1:0"
	p.settle()
	for i := range 8 {
		if r := p.row(i); r.FailedStarts != 1 || r.SickNodes != "n1" {
			t.Errorf("row %d: %d failed starts, without %q (%s)", i, r.FailedStarts, r.SickNodes, r.Reason)
		}
	}
	sick := p.b.decider.health.nodes["n1"]
	p.want("jobs that failed on the node", sick.Failures, 1)
	p.want("the node is avoided", p.b.decider.health.nodes.Avoided(p.now), []string(nil))
}

// slurmd cancels a job that it cannot launch as root. A pack that has begun a member was launched, so an administrator has cancelled it.
func TestPackThatWasLaunchedHasNoFailedLaunch(t *testing.T) {
	t.Parallel()
	for _, begun := range [][]int{nil, {0}} {
		p := newPacks(t, several("1", 0, 4)...)
		p.startOne(begun...)
		p.pass(time.Second)
		p.change(sbatch.StateCancelled)
		p.jobs[0].CancelledBy = "0"
		p.settle()
		_, sick := p.b.decider.health.nodes["n1"]
		r := p.row(3)
		again, cancelled := r.FailedStarts > 0, r.Verdict != nil && r.Verdict.Cause == spool.CauseUser
		if launched := begun != nil; sick == launched || again == launched || cancelled != launched {
			t.Errorf("begun %v: its node is sick %v; a member that waited is %s, %+v (%s)", begun, sick, r.Phase, r.Verdict, r.Reason)
		}
	}
}

// Slurm does not show a pack any more, and nothing shows its end: a wrapper of the site cuts squeue's answer short, or the controller has
// lost it. A member that goes on writing its status runs on. Those that waited have failed in nothing, however often that happens, if the pack
// has begun a member; else the node may not see the disk.
func TestPackThatSlurmStopsToShowCostsItsWaitingMembersNothing(t *testing.T) {
	t.Parallel()
	for _, begun := range [][]int{{0}, nil} {
		rows := several("1", 0, 4)
		for i := range rows {
			rows[i].FailedAttempts = 2 // one more failure is its last
		}
		p := newPacks(t, rows...)
		p.startOne(begun...)
		p.pass(time.Second)
		p.jobs = nil
		for range 60 {
			for i := range 4 {
				switch r := p.row(i); {
				case r.Begun != nil:
					p.read(i, spool.Records{Status: &spool.Status{Token: r.Begun.Token, At: p.now}})
				case !r.NoJobSince.IsZero():
					p.read(i, spool.Records{})
				}
			}
			p.pass(2 * time.Second)
		}
		if begun == nil {
			p.want("phases of a pack that began none", p.phases(0, 4), all(4, plan.Finalizing))
			continue
		}
		p.want("the one that runs", p.row(0).Phase, plan.Running)
		p.want("submissions", slices.Sorted(slices.Values(p.sizes())), []int{0, 2, 4})
		for i := 1; i < 4; i++ {
			if r := p.row(i); r.Phase != plan.Queued || r.Attempt.Number != 2 || r.FailedAttempts != 2 || r.SickNodes != "" {
				t.Errorf("row %d is %s, attempt %d, %d failed, without %q (%s)", i, r.Phase, r.Attempt.Number, r.FailedAttempts, r.SickNodes, r.Reason)
			}
		}
	}
}

// A site's plugin rewrote a pack's first job and the answer to its sbatch was lost, so the pack has two jobs. A member that the first one
// began says nothing of the launch of the second one (seed 9741056).
func TestPackIsLaunchedOnlyByItsOwnJob(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 4)...)
	p.submitOne()
	first := spool.Started{Token: "worker of 0", Node: "n2", Job: "99", Submission: p.policy.Submission(*p.row(0)), At: p.now}
	p.begun[p.row(0).Bundle] = first
	p.read(0, spool.Records{Started: &first})
	p.pass(time.Second)
	p.want("the member that the first job began", p.row(0).Phase, plan.Running)
	p.change(sbatch.StateCancelled)
	p.jobs[0].CancelledBy = "0"
	p.settle()
	if r := p.row(3); r.FailedStarts != 1 || r.SickNodes != "n1" || r.Verdict != nil {
		t.Errorf("a member of the second job is %s, %+v, without %q (%s)", r.Phase, r.Verdict, r.SickNodes, r.Reason)
	}
}

// The next pack has half as many members as the last one had, and not as it could have had.
func TestNextPackIsHalfAsLargeAsTheLastOne(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 5)...)
	p.submitOne()
	p.change(sbatch.StatePreempted)
	p.settle()
	sizes := p.sizes()
	p.want("members of the submissions", slices.Sorted(slices.Values(sizes)), []int{0, 2, 2, 5})
}

func TestPackAsksForTheTimeOfItsMembers(t *testing.T) {
	t.Parallel()
	for members, want := range map[int]time.Duration{
		2: 9 * time.Minute,  // side by side: one time limit of five minutes
		4: 14 * time.Minute, // one after another, in two turns
		8: 20 * time.Minute,
	} {
		p := newPacks(t, several("1", 0, members)...)
		p.submitOne()
		e := p.submitted[0]
		p.want(fmt.Sprintf("the time of a pack of %d", members), p.policy.SharedRequest(e.Submission, *e.Row).Time, want)
	}
	p := newPacks(t, several("1", 0, 8)...)
	q := p.policy.Queues["cpu"]
	q.PackTime = 12*time.Minute + 30*time.Second
	p.policy.Queues["cpu"] = q
	p.start()
	p.submitOne()
	e := p.submitted[0]
	p.want("the time of a pack of a queue that gives less", p.policy.SharedRequest(e.Submission, *e.Row).Time, 12*time.Minute)
}

// A pack is as wide as a node has room for.
func TestPackFitsANode(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 8)...)
	p.setQueue(func(q *plan.Queue) { q.Nodes = sbatch.NodeSizes{{CPUs: 2, Memory: 1 << 40}} })
	p.submitOne()
	p.want("its width", p.submitted[0].Submission.Width, 2)
}

// A member that has begun may be the cause of the end of its pack, so it goes alone.
func TestMemberThatMayBeginAgainGoesAlone(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 8)...)
	p.setQueue(func(q *plan.Queue) { q.RetryBegun = plan.RetryOnPlatform })
	p.startOne(0, 1)
	p.pass(time.Second)
	p.change(sbatch.StateNodeFail)
	p.settle()
	p.want("submissions", slices.Sorted(slices.Values(p.sizes())), []int{0, 0, 2, 4, 8})
	for i := range 2 {
		r := p.row(i)
		p.want("its limit", r.MostTogether, 1)
		p.want("its failed attempts", r.FailedAttempts, 1)
	}
}

// The time limit of a pack's job is none of its members', however Slurm changes it.
func TestMemberHasNoTimeLimitOfItsPack(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 4)...)
	p.submitOne()
	p.want("after the submission", p.row(1).TimeLimits, plan.TimeLimits{})
	for _, limit := range []time.Duration{time.Hour, 30 * time.Minute} {
		p.jobs[0].TimeLimit = limit
		p.pass(time.Second)
	}
	p.change(sbatch.StateRunning)
	p.begin(1)
	p.pass(time.Second)
	p.want("while it runs", p.row(1).TimeLimits, plan.TimeLimits{})
}

// A wrapper of sbatch may print any number: until a snapshot shows the pack, its worker may run.
func TestKilledMemberWithoutRecordsWaitsUntilItsPackIsSeen(t *testing.T) {
	t.Parallel()
	p := newPacks(t, several("1", 0, 2)...)
	p.answer = func(int) plan.SbatchAnswer { return plan.SbatchAnswer{Job: 100} }
	p.submitOne()
	p.gone = true
	p.kill(0)
	p.pass(p.policy.Settle + 20*time.Second)
	p.want("before", p.row(0).Phase, plan.Stopping)
	p.showPack(p.submitted[0], 100)
	p.pass(5 * time.Second)
	p.want("after", p.row(0).Phase, plan.Finalizing)
}
