package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// joining is a bridge with a pack whose worker runs, and a disk on which rows may join it.
type joining struct {
	packs

	disk *slotDisk
}

// slotDisk is a disk that fails to write slots if the test says so, before or after the slot stands.
type slotDisk struct {
	spool.Disk

	before, after error
	slots         []string // each time one was written: its number and members
}

func (d *slotDisk) Join(ctx context.Context, list string, n int, s spool.Slot) (bool, error) {
	text := fmt.Sprintf("%d:", n)
	for _, m := range s.Attempts {
		text += " " + strings.TrimLeft(m.Bundle[2:], "0")
	}
	d.slots = append(d.slots, text)
	if d.before != nil {
		return false, d.before
	}
	joined, err := d.Disk.Join(ctx, list, n, s)
	return joined, errors.Join(err, d.after)
}

// newJoining is a pack of three rows of owner 1 that runs, three side by side. Rows from 11 on wait.
func newJoining(t *testing.T, change func(*plan.Queue), waiting ...plan.Row) *joining {
	t.Helper()
	j := &joining{disk: &slotDisk{Disk: spool.Disk{Layout: spool.Layout(t.TempDir()), Bridge: "b1b2b3"}}}
	for _, dir := range j.disk.Layout.Directories() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	j.packs = newPacks(t, several("1", 1, 3)...)
	if change != nil {
		q := j.policy.Queues["cpu"]
		change(&q)
		j.policy.Queues = map[string]plan.Queue{"cpu": q}
		j.restart()
	}
	j.restart()
	j.pass(2 * time.Second)
	if len(j.submitted) != 1 || !j.submitted[0].Submission.Pack {
		t.Fatalf("submissions %v", j.sizes())
	}
	if err := j.disk.WriteMembers(j.policy.MembersRecord(j.submitted[0].Submission)); err != nil {
		t.Fatal(err)
	}
	j.change(sbatch.StateRunning)
	j.pass(time.Second)
	for i := 1; i <= 3; i++ {
		j.begin(i)
	}
	j.pass(time.Second)
	j.wait(waiting...)
	return j
}

// restart starts the bridge on its ledger, as after a crash.
func (j *joining) restart() {
	j.arrays.start()
	j.b.Config.Spool = j.disk
	j.b.doer.spool, j.b.doer.log = j.disk, slog.New(slog.DiscardHandler)
}

// wait gives the ledger rows that wait, and restarts the bridge.
func (j *joining) wait(rows ...plan.Row) {
	j.t.Helper()
	for i := range rows {
		if rows[i].Resources.Time == 0 {
			rows[i].Resources.Time = 300
		}
	}
	if err := j.book.Save(j.t.Context(), rows); err != nil {
		j.t.Fatal(err)
	}
	j.restart()
}

// do does the effects of a slot on the disk.
func (j *joining) do(e plan.Effect) {
	if e.Kind == plan.JoinPack {
		tell := j.b.doer.do(j.t.Context(), e)
		tell()
		return
	}
	j.arrays.do(e)
}

func (j *joining) pass(d time.Duration) {
	j.t.Helper()
	j.passWith(d, j.do)
}

// ends is the end of a member.
func (j *joining) ends(i int) {
	code := 0
	j.end(i, spool.Exit{Cause: spool.CauseSucceeded, ExitCode: &code})
	j.pass(time.Second)
}

// close closes the pack's list, as its worker does.
func (j *joining) close() {
	j.t.Helper()
	m := j.policy.MembersRecord(j.submitted[0].Submission)
	slots := spool.SlotsOf(j.disk.Layout.MembersPath(m.Name()), m.Submission)
	for more := true; more; {
		members, err := slots.Close(j.t.Context())
		if err != nil {
			j.t.Fatal(err)
		}
		more = len(members) > 0
	}
}

func TestRowsJoinAPackThatHasAPlaceForThem(t *testing.T) {
	t.Parallel()
	j := newJoining(t, nil, several("1", 11, 2)...)
	j.pass(0)
	j.want("while no place is free", len(j.submitted), 2)
	j.want("slots", j.disk.slots, []string(nil))
	j.ends(1)
	j.wait(several("1", 21, 2)...)
	j.pass(time.Second)
	j.want("slots", j.disk.slots, []string{"1: 21"})
	j.want("submissions, with that of the other", len(j.submitted), 3)
	if r := j.row(21); r.Phase != plan.Queued || r.Job.ID != 100 || !r.Pack || r.Slot != 1 || r.SubmissionName != j.row(2).SubmissionName || r.Attempt.Number != 1 {
		t.Errorf("the row that joined is %s with job %s in slot %d (%s)", r.Phase, r.Job.ID, r.Slot, r.Reason)
	}
	if spec := j.policy.Spec(*j.row(21)); !spec.Pack || spec.Submission != j.policy.Submission(*j.row(2)) {
		t.Errorf("its specification is one of submission %s", spec.Submission)
	}
	j.begin(21)
	j.ends(2)
	j.ends(3)
	j.wait(waiting("1", 31))
	j.pass(time.Second) // the members of the list have ended, and one that joined runs
	j.want("slots", j.disk.slots, []string{"1: 21", "2: 31"})
	j.begin(31)
	j.ends(21)
	j.ends(31)
	j.close()
	j.change(sbatch.StateCompleted)
	j.pass(time.Minute)
	j.want("phases of those that joined", []plan.Phase{j.row(21).Phase, j.row(31).Phase}, all(2, plan.Collecting))
	j.want("cancelled", j.cancelled, []sbatch.JobID(nil))
	left, err := j.book.Submissions(t.Context())
	if err != nil || slices.ContainsFunc(left, func(s plan.Submission) bool { return s.Array == 100 }) {
		t.Errorf("left in the ledger: %+v, %v", left, err)
	}
}

func TestRowThatAsksForSomethingElseJoinsNoPack(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(r *plan.Row){
		"another owner":       func(r *plan.Row) { r.Run.OwnerID = "2" },
		"more memory":         func(r *plan.Row) { r.Resources.Memory *= 2 },
		"more processors":     func(r *plan.Row) { r.Resources.CPUs = 2 },
		"another time":        func(r *plan.Row) { r.Resources.Time = 310 },
		"its node failed it":  func(r *plan.Row) { r.SickNodes = "n1" },
		"it goes alone":       func(r *plan.Row) { r.MostTogether = 1 },
		"it fits in no pack":  func(r *plan.Row) { r.Resources.Time = 3600 },
		"nothing, so it does": func(*plan.Row) {},
	} {
		j := newJoining(t, nil)
		j.ends(1)
		j.wait(waiting("1", 11, change))
		j.pass(time.Second)
		if joins := len(j.disk.slots) > 0; joins != (what == "nothing, so it does") || len(j.submitted) != map[bool]int{true: 1, false: 2}[joins] {
			t.Errorf("%s: slots %v, %d submissions (%s)", what, j.disk.slots, len(j.submitted), j.row(11).Reason)
		}
	}
}

func TestPackWithoutTimeOrRoomIsNotJoined(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		queue  func(q *plan.Queue)
		change func(j *joining)
		joins  bool
	}{
		"it has both":                         {nil, func(*joining) {}, true},
		"its time is over soon":               {nil, func(j *joining) { j.jobs[0].TimeLimit = 6 * time.Minute }, false},
		"an administrator gave more time":     {nil, func(j *joining) { j.jobs[0].TimeLimit = time.Hour }, true},
		"a queue of few runs in flight":       {func(q *plan.Queue) { q.MaxInFlight = 3 }, func(*joining) {}, true},
		"… for which another owner waits":     {func(q *plan.Queue) { q.MaxInFlight = 3 }, func(j *joining) { j.wait(waiting("2", 12)) }, false},
		"it has all members that it may":      {func(q *plan.Queue) { q.PackRuns = 3 }, func(*joining) {}, false},
		"it is back in the queue":             {nil, func(j *joining) { j.jobs[0].State = sbatch.StatePending }, false},
		"the queue has packs no longer":       {nil, func(j *joining) { j.setQueue(func(q *plan.Queue) { q.PackRuns = 0 }) }, false},
		"a bridge that finds two of its jobs": {nil, func(j *joining) { j.b.decider.shared[j.row(2).SubmissionName].SbatchCount = 2 }, false},
	} {
		j := newJoining(t, c.queue)
		j.ends(1)
		j.wait(waiting("1", 11))
		c.change(j)
		j.pass(time.Second)
		if joins := slices.Contains(j.disk.slots, "1: 11"); joins != c.joins {
			t.Errorf("%s: slots %v (%s)", what, j.disk.slots, j.row(11).Reason)
		}
	}
}

// Short runs wait for those before them: a job of their own may begin no sooner.
func TestShortRunsJoinAPackWithoutAFreePlace(t *testing.T) {
	t.Parallel()
	j := newJoining(t, nil)
	for limit, want := range map[int64]int{19: 5, 25: 5, 35: 3, 59: 3, 61: 0} { // three run, and the queue has packs of eight
		member := *j.row(2)
		member.Resources.Time = limit
		var rows []*plan.Row
		for i := range 8 {
			r := waiting("1", 11+i)
			r.Resources.Time = limit
			rows = append(rows, &r)
		}
		pack := plan.RunningPack{Submission: &j.b.decider.shared[member.SubmissionName].Submission, Member: &member, Unfinished: 3}
		joins, _ := j.policy.Join(j.now, rows, []plan.RunningPack{pack}, nil, 100)
		joined := 0
		for _, join := range joins {
			joined += len(join.Rows)
		}
		if joined != want {
			t.Errorf("of runs of %d s, %d join, want %d", limit, joined, want)
		}
	}
}

// Those that were to join have failed in nothing.
func TestRowsOfAClosedListGoOnTheirOwn(t *testing.T) {
	t.Parallel()
	j := newJoining(t, nil)
	j.ends(1)
	j.close()
	j.wait(waiting("1", 11))
	j.pass(time.Second)
	j.want("slots", j.disk.slots, []string{"1: 11"})
	if r := j.row(11); r.Phase != plan.Queued || r.Job.ID != 101 || r.Slot != 0 || r.Shared || r.Attempt.Number != 1 || r.FailedAttempts+r.FailedTries+r.MostTogether != 0 {
		t.Errorf("the row is %s with job %s, attempt %d, slot %d (%s)", r.Phase, r.Job.ID, r.Attempt.Number, r.Slot, r.Reason)
	}
	j.wait(waiting("1", 12))
	j.pass(time.Second)
	j.want("slots of a pack whose list is closed", len(j.disk.slots), 1)
}

// The outcome of a slot is unclear until the disk answers. Each repeat has the same members.
func TestUnclearSlotIsRepeatedUntilItIsClear(t *testing.T) {
	t.Parallel()
	for _, stands := range []bool{false, true} {
		for _, closes := range []bool{false, true} {
			j := newJoining(t, nil)
			j.ends(1)
			j.wait(waiting("1", 11))
			if j.disk.before = errors.New("stale file handle"); stands {
				j.disk.before, j.disk.after = nil, errors.New("input/output error")
			}
			j.pass(5 * time.Second)
			if r := j.row(11); r.Phase != plan.Submitting || r.Job.ID != 0 || !strings.Contains(r.Reason, "cannot join its pack yet") {
				t.Errorf("the row is %s with job %s (%s)", r.Phase, r.Job.ID, r.Reason)
			}
			j.wait(waiting("1", 12)) // which waits for no pack with such a slot
			if closes {
				j.close()
			}
			j.pass(time.Second)
			j.disk.before, j.disk.after = nil, nil
			j.pass(2 * time.Minute)
			for _, s := range j.disk.slots {
				j.want("each slot", s, "1: 11")
			}
			want := sbatch.JobID(100)
			if closes && !stands {
				want = 102
			}
			if r := j.row(11); r.Phase != plan.Queued || r.Job.ID != want || r.Attempt.Number != 1 {
				t.Errorf("stands %v, closes %v: the row is %s with job %s, attempt %d (%s)", stands, closes, r.Phase, r.Job.ID, r.Attempt.Number, r.Reason)
			}
			j.want("the job of the next row", j.row(12).Job.ID, sbatch.JobID(101))
		}
	}
}

func TestKillOfARowThatJoinsSparesTheOthers(t *testing.T) {
	t.Parallel()
	j := newJoining(t, nil)
	j.ends(1)
	j.ends(2)
	j.wait(several("1", 11, 2)...)
	j.disk.before = errors.New("stale file handle")
	j.pass(2 * time.Second)
	j.kill(11)
	j.pass(2 * time.Second)
	j.want("the one that was killed", j.row(11).Phase, plan.Finalizing)
	j.disk.before = nil
	j.pass(time.Minute)
	j.want("the other one", j.row(12).Phase, plan.Queued)
	j.want("its job", j.row(12).Job.ID, sbatch.JobID(100))
	j.want("the last slot", j.disk.slots[len(j.disk.slots)-1], "1: 11 12")
	j.begin(12)
	j.pass(time.Second)
	j.kill(12)
	j.pass(2 * time.Second)
	j.want("told to end", slices.Compact(j.stopped), []string{j.row(12).Bundle})
	j.want("cancelled", j.cancelled, []sbatch.JobID(nil))
}

// The worker takes one slot after another, so one that was never written must leave no gap.
func TestSlotForWhichNoRowIsReadyIsGivenToOthers(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(j *joining){
		"it cannot be prepared": func(j *joining) { j.pass(15 * time.Second) },
		"it is killed":          func(j *joining) { j.kill(11); j.pass(2 * time.Second) },
	} {
		j := newJoining(t, nil)
		j.ends(1)
		j.ends(2)
		j.unprepared[fmt.Sprintf("0x%032d", 11)] = true
		j.wait(waiting("1", 11))
		j.pass(time.Second)
		j.want(name+": its slot", j.row(11).Slot, 1)
		end(j)
		j.wait(waiting("1", 12))
		j.pass(30 * time.Second)
		if len(j.disk.slots) == 0 || j.disk.slots[0] != "1: 12" {
			t.Errorf("%s: slots %v; %s, %s", name, j.disk.slots, j.row(11).Reason, j.row(12).Reason)
		}
		j.want(name+": the job of the other one", j.row(12).Job.ID, sbatch.JobID(100))
	}
}

// All rows of a slot are killed while it is not known whether it stands.
func TestPackIsJoinedNoMoreAfterASlotWhoseOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	j := newJoining(t, nil)
	j.ends(1)
	j.wait(waiting("1", 11))
	j.disk.before = errors.New("stale file handle")
	j.pass(2 * time.Second)
	j.kill(11)
	j.pass(5 * time.Second)
	j.disk.before = nil
	j.wait(waiting("1", 12))
	j.pass(5 * time.Second)
	j.want("slots", slices.Compact(j.disk.slots), []string{"1: 11"})
	j.want("the job of the next one", j.row(12).Job.ID, sbatch.JobID(101))
}

// Members of a slot that a worker never took: it was killed, or gave up closing its list.
func TestMembersWithoutATurnInASlotGoElsewhere(t *testing.T) {
	t.Parallel()
	j := newJoining(t, nil)
	j.ends(1)
	j.wait(waiting("1", 11))
	j.pass(time.Second)
	j.want("its job", j.row(11).Job.ID, sbatch.JobID(100))
	j.jobs[0].State, j.jobs[0].Exit = sbatch.StateFailed, "0:9"
	for range 60 {
		for _, i := range []int{2, 3, 11} {
			if r := j.row(i); !r.NoJobSince.IsZero() {
				j.read(i, spool.Records{})
			}
		}
		j.pass(time.Second)
	}
	if r := j.row(11); r.Phase != plan.Queued || r.Job.ID != 101 || r.Attempt.Number != 2 || r.FailedAttempts != 0 || r.Slot != 0 {
		t.Errorf("the row is %s with job %s, attempt %d, %d failed (%s)", r.Phase, r.Job.ID, r.Attempt.Number, r.FailedAttempts, r.Reason)
	}
}

// squeue does not show when a pack was cancelled: a run that joins within moments of that was no part of it.
func TestRunThatJoinsACancelledPackGoesElsewhere(t *testing.T) {
	t.Parallel()
	j := newJoining(t, nil)
	j.ends(1)
	j.wait(waiting("1", 11, func(r *plan.Row) { r.FailedAttempts = 2 })) // one more failure is its last
	j.pass(time.Second)
	j.want("its job", j.row(11).Job.ID, sbatch.JobID(100))
	j.change(sbatch.StateCancelled)
	j.jobs[0].CancelledBy = "0"
	for range 60 {
		for _, i := range []int{2, 3, 11} {
			if r := j.row(i); !r.NoJobSince.IsZero() {
				j.read(i, spool.Records{})
			}
		}
		j.pass(time.Second)
	}
	if r := j.row(11); r.Phase != plan.Queued || r.Job.ID != 101 || r.Attempt.Number != 2 || r.FailedAttempts != 2 || r.Slot != 0 {
		t.Errorf("the row is %s with job %s, attempt %d, %d failed, %+v (%s)", r.Phase, r.Job.ID, r.Attempt.Number, r.FailedAttempts, r.Verdict, r.Reason)
	}
	if r := j.row(3); r.Verdict == nil || r.Verdict.Cause != spool.CauseUser {
		t.Errorf("one that ran is %s, %+v (%s)", r.Phase, r.Verdict, r.Reason)
	}
}

// TestJoiningSurvivesACrashBetweenAnyTwoLines crashes after each save, with the effects of the step lost, or done and their outcome lost.
func TestJoiningSurvivesACrashBetweenAnyTwoLines(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{false, true} {
		for crashAt := range 12 {
			j := newJoining(t, nil)
			j.ends(1)
			j.ends(2)
			j.wait(several("1", 11, 2)...)
			steps := 0
			for range 20 {
				j.observe()
				for {
					effects := j.wanted()
					if steps++; steps == crashAt {
						for _, e := range effects {
							if done && e.Kind == plan.JoinPack {
								_ = j.b.doer.do(t.Context(), e) // nobody hears of it
							}
						}
						j.restart()
						j.observe()
						continue
					}
					if len(effects) == 0 {
						break
					}
					for _, e := range effects {
						j.do(e)
					}
				}
				j.now = j.now.Add(time.Second)
			}
			for _, s := range j.disk.slots {
				j.want(fmt.Sprintf("crash at %d: slot", crashAt), s, "1: 11 12")
			}
			for _, i := range []int{11, 12} {
				if r := j.row(i); r.Phase != plan.Queued || r.Job.ID != 100 || r.Attempt.Number != 1 {
					t.Errorf("crash at %d: row %d is %s with job %s, attempt %d (%s)", crashAt, i, r.Phase, r.Job.ID, r.Attempt.Number, r.Reason)
				}
			}
			j.want("submissions", len(j.submitted), 1)
		}
	}
}
