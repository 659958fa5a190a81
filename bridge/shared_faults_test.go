package bridge

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func setPace(a *arrays, perSecond float64, burst int) {
	a.b.decider.pace = newPace(Pace{PerSecond: perSecond, Burst: burst}, 5*time.Second)
	a.b.decider.starter.pace = a.b.decider.pace
}

// With the default pace (2 a second, burst 20) an array has as many tasks as array_tasks allows, not as the pace allows sbatches.
func TestPaceBoundsNoTasks(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 200)...)
	p := a.b.decider.rules.Policy
	q := p.Queues["cpu"]
	q.ArrayTasks = 200
	p.Queues = map[string]plan.Queue{"cpu": q}
	a.b.decider.rules.Policy = p
	setPace(a, 2, 20)
	a.pass(20 * time.Second)
	if len(a.submitted) != 1 {
		t.Errorf("%d submissions for 200 equal rows with array_tasks = 200: %v", len(a.submitted), a.sizes())
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

// slowPrepare holds the outcome of Prepare of some bundles back, as a slow disk does; the effect then writes the specification

// of the row for which it was begun.

type slowPrepare struct {
	*arrays
	hold    func(e plan.Effect) bool
	held    []plan.Effect
	written map[string]int64 // bundle → the generation in spec.json
}

func (s *slowPrepare) pass(d time.Duration) {
	for end := s.now.Add(d); !s.now.After(end); s.now = s.now.Add(time.Second) {
		s.observe()
		for {
			effects, _, err := s.b.Step(s.t.Context(), s.now)
			if err != nil {
				s.t.Fatal(err)
			}
			if len(effects) == 0 {
				break
			}
			for _, e := range effects {
				switch {
				case e.Kind == plan.Prepare && s.hold(e):
					s.held = append(s.held, e)
				case e.Kind == plan.Prepare:
					s.write(e)
				default:
					s.do(e)
				}
			}
		}
	}
}

func (s *slowPrepare) write(e plan.Effect) {
	s.written[e.Row.Bundle] = e.Row.Generation
	s.do(e)
}

// A member that was left behind, because its specification came late, must not go to Slurm with the specification of the

// submission that it left: its worker refuses that one (--submission).
func TestLateSpecificationCountsForItsSubmissionAlone(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 4)...)
	s := &slowPrepare{arrays: a, written: map[string]int64{}}
	slow := a.row(1).Bundle
	s.hold = func(e plan.Effect) bool { return e.Row.Bundle == slow }
	s.pass(15 * time.Second)
	s.hold = func(plan.Effect) bool { return false }
	for _, e := range s.held {
		s.write(e) // the first disk write ends now
	}
	s.pass(15 * time.Second)
	for _, e := range a.submitted {
		rows := []string{e.Row.Bundle}
		generation := e.Row.Generation
		if e.Submission != nil {
			rows, generation = nil, e.Submission.Generation
			for _, m := range e.Submission.Members {
				rows = append(rows, m.Bundle)
			}
		}
		for _, b := range rows {
			if s.written[b] != generation {
				t.Errorf("bundle %s went to Slurm as --submission=%s.%d, and its spec.json is of %s.%d: its worker refuses it", b, a.policy.Bridge, generation, a.policy.Bridge, s.written[b])
			}
		}
	}
}

// Submissions that gather count in the budget: else more become Asked than the pace lets go within SubmitWithin.
func TestGatheringSubmissionsUseUpThePace(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 400)
	a := newArrays(t, rows...)
	setPace(a, 2, 20)
	s := &slowPrepare{arrays: a, written: map[string]int64{}}
	opened := a.now.Add(4 * time.Second) // the disk takes 4 s
	s.hold = func(plan.Effect) bool { return a.now.Before(opened) }
	refused := 0
	a.answer = func(int) plan.SbatchAnswer {
		e := a.submitted[len(a.submitted)-1]
		at := e.Row.SubmittedAt
		if e.Submission != nil {
			at = e.Submission.SubmittedAt
		}
		if a.now.Sub(at) > plan.SubmitWithin { // as doer.submitShared
			refused++
			return plan.SbatchAnswer{Refused: true, Retry: true, Words: "Slurm is slow to take other submissions"}
		}
		return plan.SbatchAnswer{Job: sbatch.JobID(99 + len(a.submitted))}
	}
	s.pass(3 * time.Second)
	for _, e := range s.held {
		s.write(e)
	}
	s.held = nil
	s.pass(40 * time.Second)
	if refused > 0 {
		t.Errorf("%d submissions were refused by the bridge itself", refused)
	}
}

// A row whose submission the ledger lost is fenced before it goes again.
func TestMembersOfALostSubmissionAreFenced(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.answer = unclear
	a.pass(2 * time.Second)
	saved, err := a.book.Submissions(t.Context())
	if err != nil || len(saved) != 1 {
		t.Fatal(saved, err)
	}
	saved[0].State = plan.Over
	if err := a.book.Save(t.Context(), nil, saved...); err != nil {
		t.Fatal(err)
	}
	a.answer = nil
	a.start()
	a.pass(5 * time.Second)
	if a.row(0).Attempt.Number == 1 && len(a.submitted) > 1 {
		t.Errorf("row 0 was submitted again as attempt 1 without a fence, although sbatch may have made an array")
	}
}

// A bound of one row bounds the submission that it joins.
func TestBoundOfALaterRowHolds(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 6)
	for i := range rows {
		if i == 5 {
			rows[i].MostTogether = 2
		}
	}
	a := newArrays(t, rows...)
	a.pass(2 * time.Second)
	if got := a.sizes(); got[0] > 5 {
		t.Errorf("sizes %v: a row that may go with one other went with five", got)
	}
}

// Rows of one owner that the site's table bills to different accounts must not share an array.
func TestRowsOfOneAccountShareAnArray(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 4)
	for i := range rows {
		run := *rows[i].Run
		if run.OwnerGroups = []string{"phys"}; i >= 2 {
			run.OwnerGroups = []string{"chem"}
		}
		rows[i].Run = &run
	}
	a := newArrays(t, rows...)
	a.b.decider.rules.Policy.Map = []plan.Mapping{{Groups: []string{"phys"}, Billing: plan.Billing{Account: "phys"}}, {Groups: []string{"chem"}, Billing: plan.Billing{Account: "chem"}}}
	a.pass(2 * time.Second)
	for _, e := range a.submitted {
		if e.Submission == nil {
			continue
		}
		accounts := map[string]bool{}
		for _, m := range e.Submission.Members {
			accounts[a.b.decider.rules.Policy.Request(*a.b.decider.rows.get(m.Bundle)).Account] = true
		}
		if len(accounts) > 1 {
			t.Errorf("one array for rows of the accounts %v", accounts)
		}
	}
}

// A final refusal that is the queue's fault holds the queue up.
func TestI10RefusedArrayHoldsItsQueueUp(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 64)...)
	p := a.b.decider.rules.Policy
	q := p.Queues["cpu"]
	q.ArrayTasks = 64
	p.Queues = map[string]plan.Queue{"cpu": q}
	a.b.decider.rules.Policy = p
	a.answer = func(int) plan.SbatchAnswer {
		return plan.SbatchAnswer{Refused: true, OfSite: true, OfQueue: true, Words: "Invalid account or account/partition combination specified"}
	}
	a.pass(30 * time.Second)
	if len(a.submitted) > 8 {
		t.Errorf("%d sbatch before the queue is held up: %v", len(a.submitted), a.sizes())
	}
}

// sacct's answer for all rows of an array.

// A waiting task that somebody cancels leaves squeue at once (sbatch.Client.Observe), and sacct shows the shared record PENDING or nothing.

// A single job is CANCELLED there, and its bundle ends with "was cancelled outside CodaLab".

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

// Two owners of a queue with few places share them.
func TestPlacesOfAQueueAreShared(t *testing.T) {
	t.Parallel()
	for _, tasks := range []int{0, 8} {
		a := newArrays(t, append(several("1", 0, 8), several("2", 20, 8)...)...)
		p := a.b.decider.rules.Policy
		q := p.Queues["cpu"]
		q.ArrayTasks, q.MaxInFlight = tasks, 8
		p.Queues = map[string]plan.Queue{"cpu": q}
		a.b.decider.rules.Policy = p
		a.pass(5 * time.Second)
		n := map[string]int{}
		for i, owner := range map[int]string{0: "1", 20: "2"} {
			for _, phase := range a.phases(i, 8) {
				if phase == plan.Queued {
					n[owner]++
				}
			}
		}
		if n["1"] != n["2"] {
			t.Errorf("array_tasks %d: places by owner %v", tasks, n)
		}
	}
}

// After a restart, killed members that are done sleep; their submission must not be forgotten before they wake.
func TestSubmissionOfSleepingMembersIsKept(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.b.decider.rules.Policy.CancelOrphans = false
	a.policy.CancelOrphans = false
	a.answer = unclear
	a.pass(2 * time.Second)
	for i := range 3 {
		a.kill(i)
	}
	a.pass(5 * time.Second)
	for i := range 3 {
		a.b.inbox.put(a.row(i).Bundle, func(n *plan.News) { n.Messages = []codalab.Message{{Type: codalab.MessageMarkFinalized}} })
	}
	a.pass(time.Second)
	a.start()
	a.pass(time.Second)
	saved, err := a.book.Submissions(t.Context())
	if err != nil || len(saved) != 1 {
		t.Errorf("the submission is lost %d s after the sbatch without an answer: %v %v", 9, saved, err)
	}
	a.show(a.submitted[0], 7) // sbatch had made it
	a.pass(20 * time.Second)
	if len(a.cancelled) == 0 {
		t.Errorf("the array of three killed bundles is never cancelled (cancel_strays = false)")
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

// Everybody is killed while the sbatch waits for the pace.
func TestHeldSbatchOfNobodyIsNotRun(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 4)...)
	setPace(a, 0.5, 4)
	a.b.decider.pace.submits.AllowN(a.now, 0)
	s := &slowPrepare{arrays: a, written: map[string]int64{}, hold: func(plan.Effect) bool { return true }}
	s.pass(0)
	a.b.decider.pace.submits.AllowN(a.now, 4) // other submissions take all places
	for _, e := range s.held {
		s.write(e)
	}
	a.observe()
	a.step()
	if len(a.submitted) > 0 {
		t.Fatal("the submission was not held")
	}
	for i := range 4 {
		a.kill(i)
	}
	a.pass(8 * time.Second)
	if len(a.submitted) > 0 {
		t.Errorf("sbatch ran for %d killed bundles", len(a.submitted[0].Submission.Members))
	}
}

// While every member fails to be prepared for longer than gatherWithin, the first one that is ready goes alone.

// A member whose records arrive whole before its array is known: its job shows that the array exists.
func TestEndedMemberShowsTheArray(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.answer = unclear
	a.pass(2 * time.Second)
	started := spool.Started{Token: "w", Node: "n1", Job: "7_1", At: a.now}
	zero := 0
	exit := spool.Exit{Token: "w", Cause: spool.CauseSucceeded, ExitCode: &zero, At: a.now}
	a.b.inbox.put(a.row(1).Bundle, func(n *plan.News) {
		n.AddRecords(plan.Records{Attempt: 1, Read: a.now, Records: spool.Records{Started: &started, Exit: &exit}})
	})
	a.step()
	if got := a.row(0).Job.ID.String(); got != "7_0" {
		t.Errorf("row 0 has job %s, though row 1 ran in 7_1 of the same array", got)
	}
	a.pass(2 * time.Minute)
	if len(a.submitted) > 1 {
		t.Errorf("the array was submitted again: %v", a.sizes())
	}
}

// passWithRecords is pass with a disk that is read: records has the started records that stand.
func passWithRecords(t *testing.T, a *arrays, d time.Duration) {
	t.Helper()
	for end := a.now.Add(d); !a.now.After(end); a.now = a.now.Add(time.Second) {
		a.observe()
		for {
			effects, _, err := a.b.Step(t.Context(), a.now)
			if err != nil {
				t.Fatal(err)
			}
			if len(effects) == 0 {
				break
			}
			for _, e := range effects {
				if e.Kind != plan.ReadRecords {
					a.do(e)
					continue
				}
				rec := plan.Records{Attempt: e.Row.Attempt.Number, Read: a.now}
				if s, ok := a.begun[e.Row.Bundle]; ok {
					rec.Started = &s
				}
				a.b.inbox.putEnded(e, func(*plan.Row) func(*plan.News) { return func(n *plan.News) { n.AddRecords(rec) } })
			}
		}
	}
}

// The ledger was restored from an older copy (recover): a member's attempt directory has the start of an earlier job of the bundle, which runs.

// The row follows that job (followJob), and must not take it for foreign because its index is another one, or because it is a single job.
func TestI4RowFollowsTheTaskThatBeganIt(t *testing.T) {
	t.Parallel()
	for _, old := range []sbatch.JobID{sbatch.JobID(55).Task(0), sbatch.JobID(55).Task(3), 55} /* the first one is the control */ {
		a := newArrays(t, append(several("1", 0, 4), waiting("0", 9))...)
		q := a.b.decider.rules.Policy.Queues["cpu"]
		q.RetryBegun = plan.RetryOnPlatform
		a.b.decider.rules.Policy.Queues = map[string]plan.Queue{"cpu": q}
		passWithRecords(t, a, 2*time.Second)
		r := a.row(0)
		s := spool.Started{Token: "w", Node: "n1", Job: old.String(), At: a.now}
		a.begun[r.Bundle] = s
		comment := "codalab tasks=5 owner=1 bridge=b1b2b3 generation=1"
		if old == 55 {
			comment = "codalab bundle=" + r.Bundle + " attempt=1 owner=1 bridge=b1b2b3 generation=1 dir=1-b1b2b3"
		}
		a.jobs = append(a.jobs, sbatch.Job{ID: old, Name: "cl-old", Comment: comment, State: sbatch.StateRunning, Nodes: "n1", Submitted: a.now.Add(-time.Minute)})
		for _, e := range a.submitted {
			if e.Submission != nil {
				a.show(e, r.Job.ID&(1<<32-1))
			}
		}
		a.b.inbox.put(r.Bundle, func(n *plan.News) {
			n.AddRecords(plan.Records{Attempt: 1, Read: a.now, Records: spool.Records{Started: &s}})
		})
		passWithRecords(t, a, 4*time.Minute)
		r = a.row(0)
		if r.Phase != plan.Running || r.Attempt.Number != 1 {
			t.Errorf("job %s runs the bundle, and its row is %s at attempt %d with job %s (last failure %q); submissions %v", old, r.Phase, r.Attempt.Number, r.Job.ID, r.LastFailure, a.sizes())
		}
	}
}

// After recover, a task that runs is not cancelled while its bundle's row still stages: a single job would be taken up (Row.MayTakeUp).

type membersDisk struct {
	Spool
	disk spool.Disk
}

func (m membersDisk) MembersFiles() ([]spool.MembersFile, error) { return m.disk.MembersFiles() }

func (m membersDisk) RemoveMembers(f spool.MembersFile) error { return m.disk.RemoveMembers(f) }

// A bridge on an old copy of its ledger removes nothing before it has seen Slurm (plan.ErrOutdated): the list of generation 900 is that of

// an array that waits in Slurm.
func TestListsOfLaterArraysAreKept(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/spool", 0o700); err != nil {
		t.Fatal(err)
	}
	disk := spool.Disk{Layout: spool.Layout(dir)}
	m := spool.Members{Submission: "b1b2b3.900", Attempts: []spool.Member{{Bundle: "0x1", Name: "1-b1b2b3"}}}
	if err := disk.WriteMembers(m); err != nil {
		t.Fatal(err)
	}
	w := memberWatch{contact: &a.b.contact, spool: membersDisk{disk: disk}, inForce: &a.b.inForce, view: &a.b.board.view, now: time.Now}
	if err := w.remove(); err != nil { // memberWatch.run does it at once, before the first snapshot
		t.Fatal(err)
	}
	if _, err := os.Stat(disk.Layout.MembersPath(m.Name())); err != nil {
		t.Errorf("removed: %v", err)
	}
}

// The temporary file of a list whose writer was cut short goes away.

// The use of Slurm's limits is asked for soon after an array was refused for one, as after a job.

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

// An unclear array (a site's wrapper whose words nobody knows) of which some members are killed: nothing waits for ever.

// 10,000 waiting rows that all ask for something else: what a step's Batch of 20 costs without and with arrays.
