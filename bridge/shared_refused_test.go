package bridge

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

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
	a.begun[a.row(3).Bundle] = spool.Started{Token: "w", Node: "n1", Job: array.Task(3).String(), Submission: a.policy.Submission(*a.row(3)), At: a.now}
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

// An outage (or the bridge's own slowness) must not make arrays smaller for ever.
func TestOutageMakesNoArraySmaller(t *testing.T) {
	t.Parallel()
	for _, words := range []string{"Slurm is slow to take other submissions", "Slurm backup controller in standby mode", "write members: no space left on device"} {
		a := newArrays(t, several("1", 0, 8)...)
		tries := 0
		a.answer = func(int) plan.SbatchAnswer {
			if tries++; tries <= 1 || a.now.Before(time.Unix(1_800_000_000+60, 0)) {
				return plan.SbatchAnswer{Refused: true, Retry: true, Words: words}
			}
			return plan.SbatchAnswer{Job: 100}
		}
		a.pass(3 * time.Minute)
		if sizes := a.sizes(); sizes[len(sizes)-1] != 8 {
			t.Errorf("%s: sizes %v", words, sizes)
		}
	}
}

// A final refusal that is the queue's fault holds the queue up.
func TestI10RefusedArrayHoldsItsQueueUp(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 64)...)
	a.setQueue(func(q *plan.Queue) { q.ArrayTasks = 64 })
	a.answer = func(int) plan.SbatchAnswer {
		return plan.SbatchAnswer{Refused: true, OfSite: true, OfQueue: true, Words: "Invalid account or account/partition combination specified"}
	}
	a.pass(30 * time.Second)
	if len(a.submitted) > 8 {
		t.Errorf("%d sbatch before the queue is held up: %v", len(a.submitted), a.sizes())
	}
}

// The row says why it waits while the answer of sbatch is unclear, as a row of its own submission does.
func TestRowTellsWhyItsArrayWaits(t *testing.T) {
	t.Parallel()
	a := newArrays(t, append(several("1", 0, 3), waiting("2", 9))...)
	a.answer = unclear
	a.pass(60 * time.Second)
	if !strings.Contains(a.row(0).Reason, "Socket timed out") {
		t.Error("the shared row does not say what sbatch said")
	}
}

// An unclear sbatch, its repeat refused for now, and then a kill of all members.
func TestUnclearArrayIsNotRefusedForCertain(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 2)...)
	a.policy.CancelOrphans = false
	a.b.decider.rules.Policy.CancelOrphans = false
	answers := []plan.SbatchAnswer{{Words: "Socket timed out"}, {Refused: true, Retry: true, Words: "System submissions disabled"}}
	a.answer = func(int) plan.SbatchAnswer {
		next := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		return next
	}
	for range 200 {
		if a.pass(0); len(a.submitted) == 2 {
			break
		}
	}
	a.kill(0)
	a.kill(1)
	a.pass(3 * time.Second)
	a.show(a.submitted[0], 7) // the first one had made an array after all
	a.pass(30 * time.Second)
	if len(a.cancelled) == 0 {
		t.Error("the array is not cancelled: the row says that no job was ever made")
	}
}

// A refusal because of the excluded nodes: the array goes again on any node (as a single job), and not in halves.
func TestArrayRefusedForExcludedNodesMayRunOnAny(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 8)
	a := newArrays(t, rows...)
	a.b.decider.health.nodes = plan.Nodes{"n9": {Failures: 2, AvoidedUntil: a.now.Add(time.Hour)}}
	a.answer = func(int) plan.SbatchAnswer {
		if a.submitted[len(a.submitted)-1].Row.Exclude != "" {
			return plan.SbatchAnswer{Refused: true, OfSite: true, Words: "Invalid node name specified"}
		}
		return plan.SbatchAnswer{Job: sbatch.JobID(100 + len(a.submitted))}
	}
	a.pass(time.Minute)
	if len(a.submitted) > 3 {
		t.Errorf("%d sbatch: %v", len(a.submitted), a.sizes())
	}
}
