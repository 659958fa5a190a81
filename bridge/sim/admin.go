package sim

import (
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
	"github.com/cl-slurm/cl-slurm/spool"
)

// adminRenames changes the name, the comment or both of a job, which may have lost the other one before. The bridge
// recognizes a job that keeps one of them, and a job that it has seen before, unless its clock is wrong.
func (w *world) adminRenames() {
	j, ok := w.slurm.pickLiveJob()
	attempts := w.slurm.attempts[j.ID]
	if !ok || w.slurm.down || len(attempts) == 0 {
		return
	}
	comment, change := "charge=1234", slurmtest.Change{}
	which := w.dice.below(ofAdmins, 3)
	if which != 0 {
		change.Name = rewritten
	}
	if which != 1 {
		change.Comment = &comment
	}
	_, stamped := plan.StampOf(j)
	shared, ofSeveral := plan.SharedStampOf(j)
	stamped = stamped || ofSeveral && shared.Pack
	unnamed := (change.Name != "" || j.Name != attempts[0].name) && (change.Comment != nil || !stamped)
	if unnamed && w.dice.happen[ClockSet] {
		return
	}
	changed := w.update(j.ID, change)
	for _, a := range attempts {
		a.unnamed = a.unnamed || unnamed && changed
	}
}

// update is scontrol update for a job. It reports whether Slurm took the change: not for a job that is completing.
func (w *world) update(id sbatch.JobID, change slurmtest.Change) bool {
	err := w.slurm.Update(w.wall(), id, change)
	w.slurm.settle()
	return err == nil
}

// adminHolds holds a waiting job for minutes.
func (w *world) adminHolds() {
	if j, ok := w.pickJob(sbatch.StatePending); ok {
		w.slurm.Hold(w.wall(), j.ID)
		w.at(w.dice.faultDuration(AdminHolds, time.Second, 10*time.Minute), func() { w.slurm.release(j.ID) })
		w.slurm.settle()
	}
}

// adminMoves gives a waiting job the other large partition, whose nodes have all that the jobs ask for.
func (w *world) adminMoves() {
	if j, ok := w.pickJob(sbatch.StatePending); ok {
		w.update(j.ID, slurmtest.Change{Partition: "gpu"})
	}
}

// adminForces requeues a job that must not be requeued, and may hold it then for minutes.
func (w *world) adminForces() {
	w.strikeJob("requeued by an administrator", func(j sbatch.Job) bool {
		w.update(j.ID, slurmtest.Change{Requeue: true})
		if w.dice.coin(AdminForces) {
			return w.slurm.Requeue(w.wall(), j.ID) == nil
		}
		w.at(w.dice.faultDuration(AdminForces, time.Minute, 20*time.Minute), func() { w.slurm.release(j.ID) })
		return w.slurm.RequeueHold(w.wall(), j.ID) == nil
	})
}

// putBack reports whether Slurm has put a job of the attempt back into its queue.
func (w *world) putBack(a *attempt) bool {
	for id, of := range w.slurm.attempts {
		if slices.Contains(of, a) && !w.slurm.LastRequeue(id).IsZero() {
			return true
		}
	}
	return false
}

// adminSignals sends TERM to a job's batch script.
func (w *world) adminSignals() {
	w.strikeJob("signalled by an administrator", func(j sbatch.Job) bool { return w.slurm.Signal(w.wall(), j.ID) })
}

// limitChanged makes a job's time limit longer, or so short that it is over soon.
func (w *world) limitChanged() {
	j, ok := w.slurm.pickLiveJob()
	if !ok || w.slurm.down {
		return
	}
	limit := w.dice.faultDuration(LimitChanged, 30*time.Second, 3*time.Minute)
	longer := w.dice.coin(LimitChanged)
	if longer {
		limit += time.Hour
	}
	for _, a := range w.slurm.struck(j.ID) {
		if !longer {
			a.notePlatformCause("its time limit was shortened")
			a.limited = true
		}
		if !w.slurm.isPack(j.ID) {
			a.noteTimeLimit(limit)
		}
	}
	w.slurm.shortened[j.ID] = w.slurm.shortened[j.ID] || !longer
	w.update(j.ID, slurmtest.Change{Time: limit})
}

// noteTimeLimit notes a time limit of a job of the attempt. Slurm shows it in whole minutes. That of a pack is not the limit of a member;
// with an old copy of the ledger an attempt may have a pack and a job of its own.
func (a *attempt) noteTimeLimit(limit time.Duration) {
	a.timeLimits = append(a.timeLimits, (limit + time.Minute - 1).Truncate(time.Minute))
}

// checkTimeLimit checks what a worker is told about the time limit of its job.
func (w *world) checkTimeLimit(a *attempt, l spool.TimeLimit) {
	first, now := time.Duration(l.FirstSeconds)*time.Second, time.Duration(l.Seconds)*time.Second
	if !slices.Contains(a.timeLimits, first) || !slices.Contains(a.timeLimits, now) {
		w.violate(FalseLimit, "the worker of attempt %d of %s is told that its job has %s, and had %s at first: it had %v", a.number, a.bundle, now, first, a.timeLimits)
	}
}

// nodeDrained drains a node for minutes.
func (w *world) nodeDrained() {
	node := slurmSite.Nodes[w.dice.below(ofAdmins, uint64(len(slurmSite.Nodes)))].Name
	if w.slurm.down || w.slurm.SetNode(w.wall(), node, slurmtest.NodeDrain) != nil {
		return
	}
	w.at(w.dice.faultDuration(NodeDrained, 10*time.Second, 5*time.Minute), func() { w.undrain(node) })
	w.slurm.settle()
}

// undrain resumes a node once the controller is up. A node that is cut off from Slurm cannot come back: loseNode says when it does.
func (w *world) undrain(node string) {
	isCut := slices.ContainsFunc(w.slurm.scripts, func(s *script) bool { return s.launch.Node == node && s.cut && !s.ended })
	if w.slurm.down || isCut {
		w.at(10*time.Second, func() { w.undrain(node) })
		return
	}
	_ = w.slurm.SetNode(w.wall(), node, slurmtest.NodeResume) // it may be back already
	w.slurm.settle()
}

// pickJob picks one of the bridge's jobs in a state; ok is false if it has none, or the controller is down.
func (w *world) pickJob(in sbatch.State) (job sbatch.Job, ok bool) {
	live, err := w.slurm.liveJobs()
	live = slices.DeleteFunc(live, func(j sbatch.Job) bool { return j.State != in })
	if err != nil || w.slurm.down || len(live) == 0 {
		return sbatch.Job{}, false
	}
	return live[w.dice.below(ofAdmins, uint64(len(live)))], true
}

// jobVanishes hides a running job from squeue for good, whatever the accounts say. Its worker writes its status, which
// it cannot while it is suspended, and which is old to a bridge whose clock is wrong.
func (w *world) jobVanishes() {
	if w.dice.happen[JobSuspended] || w.dice.happen[ClockSet] {
		return
	}
	for _, s := range w.slurm.scripts {
		shows := slices.ContainsFunc(s.workers, func(wk *worker) bool { return wk.owns && wk.attempt.status.record != nil })
		if !shows || s.ended || s.forgotten || w.slurm.hidden[s.launch.Job] {
			continue
		}
		w.slurm.hidden[s.launch.Job] = true
		for _, a := range w.slurm.struck(s.launch.Job) {
			a.hidden, a.vanished = true, true
			a.cut = a.cut || a.purged // a member of a pack, of which nothing shows that it runs
		}
		w.logf("slurm", "squeue does not list job %s any more", s.launch.Job)
		return
	}
}

// beat writes a status record again and again, if that matters in this seed.
func (wk *worker) beat() {
	w, a := wk.w, wk.attempt
	if !w.dice.happen[JobVanishes] {
		return
	}
	wk.at(w.dice.duration(ofWorkers, 5*time.Second, spool.LongestStatusPause), func() {
		if status := a.status.record; status != nil && a.there && !wk.terminated {
			next := *status
			next.At = w.wall()
			a.status = written[spool.Status]{&next, w.now}
		}
		wk.beat()
	})
}

func (w *world) databaseLags() {
	w.slurm.Database.Behind, w.slurm.lagged = time.Hour, true
	w.at(w.dice.faultDuration(DatabaseLags, 5*time.Minute, 30*time.Minute), func() { w.slurm.Database.Behind = 0 })
}
