package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// A pack is a Submission whose members share one allocation: one job, whose worker runs the members in their order, several side
// by side. All rows of a pack have the job's id. Begun at most once holds for each member by its own started record.
//
// The job belongs to all of them, so no row cancels it. A member that has to end is fenced before it begins, and its worker is told to end it
// after that (StopMember). The worker skips fenced members, and ends when none is left. A pack that waits in Slurm without any member that is
// wanted has no row any more, and is cancelled as an orphan.

// begunByPack reports whether the worker of a pack began an attempt. An older copy of the ledger may know the attempt as one with a job of
// its own, or as a member of a pack while it had a job of its own.
func begunByPack(s spool.Started) bool {
	id, err := sbatch.ParseJobID(s.Job)
	_, _, isTask := id.ArrayTask()
	return s.Submission != "" && err == nil && !isTask
}

// PackMargin is the time before a pack's end that a member leaves: the worker begins a member only if the member's time limit ends that
// long before the pack's.
const PackMargin = 3 * time.Minute

// memberMargin is the time that a pack asks for each of its members beside the member's own time limit: to set the container up, and to
// record the end.
const memberMargin = 30 * time.Second

// Packs reports whether the row's bundle may share an allocation: the queue has packs, and the bundle's time fits in one.
func (p Policy) Packs(r *Row) bool {
	q := p.Queues[r.Queue]
	return q.PackRuns > 1 && !r.Standalone && r.Resumption.From == "" && q.commandLimit(r.Resources) > 0 &&
		q.longestMember(r.Resources)+PackMargin <= q.PackTime.Truncate(time.Minute)
}

// longestMember returns the longest time for which a member runs.
func (q Queue) longestMember(member codalab.Resources) time.Duration {
	return q.commandLimit(member) + max(q.KillGrace, q.signal(member))
}

// packTime returns the time limit of a pack's job in whole minutes: enough for all members to use theirs, so that Slurm can start a
// short pack before others (backfill), and at most the queue's.
func (q Queue) packTime(member codalab.Resources, members, width int) time.Duration {
	turns := (members + width - 1) / width
	needs := time.Duration(turns*int(q.longestMember(member)+memberMargin)) + PackMargin
	return min(needs+time.Minute-1, q.PackTime).Truncate(time.Minute)
}

// packWidth returns how many members of a pack run side by side: as many as the queue allows and a node has room for.
func (q Queue) packWidth(member codalab.Resources, members int) int {
	width := max(min(q.PackSideBySide, members), 1)
	for width > 1 && !q.Fits(packResources(member, width)) {
		width--
	}
	return width
}

// firstTurns is the number of turns in each place that are enough for the first pack of a lane.
const firstTurns = 16

// EnoughForFirstPack returns the number of rows that need not wait for others of their lane while it has no pack: the bridge claims and prepares
// those while these run.
func (p Policy) EnoughForFirstPack(r *Row) int {
	q := p.Queues[r.Queue]
	return min(p.MostTogether(r), firstTurns*q.packWidth(r.Resources, q.PackRuns))
}

// packResources returns the request for so many members side by side.
func packResources(member codalab.Resources, width int) codalab.Resources {
	n := int64(width)
	return codalab.Resources{CPUs: max(member.CPUs, 1) * n, GPUs: member.GPUs * n, Memory: member.Memory * n}
}

// LargestPack returns the part of a request for the widest and longest pack that all packs of the queue share, as Request does. Its
// members have one CPU, and so many GPUs and bytes of memory. The queue has packs.
func (q Queue) LargestPack(gpus, memory int64) sbatch.Request {
	member := codalab.Resources{CPUs: 1, GPUs: gpus, Memory: memory}
	width := q.packWidth(member, q.PackRuns)
	sum := packResources(member, width)
	r := q.Request(sum.GPUs)
	r.CPUs, r.Time = sum.CPUs, q.PackTime.Truncate(time.Minute)
	r.MemoryMiB = inMiB(sum.Memory + int64(width)*q.MemoryOverhead)
	return r
}

// packRequest makes a request for one member's job one for a pack.
func (p Policy) packRequest(req sbatch.Request, leader *Row, s *Submission) sbatch.Request {
	sum := packResources(leader.Resources, s.Width)
	req.CPUs, req.GPUs, req.Time = sum.CPUs, sum.GPUs, s.Time
	if sum.Memory > 0 {
		req.MemoryMiB = inMiB(sum.Memory + int64(s.Width)*p.Queues[leader.Queue].MemoryOverhead)
	}
	return req
}

// leftByPack sends a member whose pack did not begin it, and which is fenced, into a smaller pack. It has failed in nothing: the
// pack's time was over, or the pack could never start, or Slurm does not show it any more.
func (d *decision) leftByPack() {
	r := &d.row
	why := fmt.Sprintf("its pack, job %s, ended (%s) before its turn", r.Job.ID, r.Job.State)
	switch {
	case r.NoJobSince.IsZero():
		why = fmt.Sprintf("its pack, job %s, can never start (%s)", r.Job.ID, r.Job.Reason)
		d.boundTogether(1)
	case !r.Job.State.Ended():
		why = fmt.Sprintf("Slurm does not show its pack any more, job %s (last seen %s), and its turn had not come", r.Job.ID, r.Job.State)
	}
	d.packSmaller()
	d.nextAttempt(why)
	d.row.DueAt = time.Time{}
}

// waitsInPack reports whether a snapshot from after the loss of the attempt's records shows that the row's pack waits, so that no worker runs
// its members: the pack may have started since an older one. The row must not wait for the end of a job that it does not cancel.
func (d *decision) waitsInPack() bool {
	s := d.news.Observation
	if !d.row.Pack || s == nil || !s.Asked.After(d.row.RecordsGoneSince) {
		return false
	}
	job, ok := d.jobOfAttempt(s.Jobs)
	return ok && job.State == sbatch.StatePending
}

// leftByRequeuedPack reports whether the worker that began a member that has to end is gone without a record: its pack came back
// into the queue, or is held there, couldStart ago. No row cancels the pack, so the row must not wait for its end.
func (d *decision) leftByRequeuedPack() bool {
	r := &d.row
	isBack := r.Pack && r.NoJobSince.IsZero() && (r.Requeued || isHeld(r.Job))
	return isBack && d.backForLong() && d.readWhenBack()
}

// packSmaller makes the row's next pack half as large as its last one.
func (d *decision) packSmaller() {
	members := d.policy.MostTogether(&d.row)
	if p := d.news.Submission; p != nil && p.Members > 0 {
		members = p.Members
	}
	d.boundTogether(members / 2)
}

// packHasBegun reports whether a member of the row's pack is known to have begun.
func (d *decision) packHasBegun() bool {
	p := d.news.Submission
	return d.row.Pack && p != nil && p.Begun
}

// endOfUnbegun decides a fenced row whose job has ended, or can never start.
func (d *decision) endOfUnbegun() {
	gone := !d.row.NoJobSince.IsZero()
	if !d.row.Pack || gone && d.mayHaveBegun() {
		d.conclude(d.fromSlurm())
		return
	}
	switch state := d.row.Job.State; {
	case !gone,
		state == sbatch.StateCancelled && d.row.Slot > 0, // perhaps before the row joined: squeue does not show when
		state == sbatch.StateCompleted, state == sbatch.StateTimeout, state == sbatch.StateOutOfMemory, state == sbatch.StatePreempted, state == sbatch.StateDeadline,
		state == sbatch.StateFailed && signalOf(d.row.Job.Exit) != 0, // something killed its worker
		!state.Ended() && d.packHasBegun():                           // how it ended is not known: its worker may even run on
		d.leftByPack()
		return
	case state == sbatch.StateNodeFail, state == sbatch.StateBootFail,
		state == sbatch.StateFailed && d.packHasBegun(): // its worker found the node sick, or the disk took no further start
		d.row.avoid(d.row.Job.Nodes)
		d.leftByPack()
		return
	default: // the other states say the same of each of its members
	}
	d.packSmaller()
	d.conclude(d.fromSlurm())
}
