package sim

import (
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// mishaps schedules the faults that strike the site at a time of their own.
func (w *world) mishaps() {
	for _, m := range []struct {
		kind   Kind
		strike func()
	}{
		{SlurmDown, w.slurmGoesDown},
		{DatabaseDown, w.databaseGoesDown},
		{DatabaseBehind, w.databaseFallsBehind},
		{DatabaseLosesEnds, w.databaseLosesEnds},
		{SlurmForgets, w.slurmForgets},
		{AdminRequeues, w.adminRequeues},
		{AdminCancels, w.adminCancels},
		{Preempted, w.preempted},
		{NodeDies, w.nodeDies},
		{NodeCut, w.nodeCut},
		{NodeSick, w.nodeSick},
		{QueueRefused, w.queueRefused},
		{Purged, w.purged},
		{ServerDown, w.serverGoesDown},
		{ServerRestored, w.server.restore},
		{Restaged, w.restaged},
		{BundleReturns, w.server.bundleReturns},
		{Twin, w.twin},
		{DiskLow, w.diskGetsLow},
		{Rival, w.startRival},
		{JobSuspended, w.jobSuspended},
		{JobVanishes, w.jobVanishes},
		{DatabaseLags, w.databaseLags},
		{AdminRenames, w.adminRenames},
		{AdminHolds, w.adminHolds},
		{AdminMoves, w.adminMoves},
		{AdminForces, w.adminForces},
		{AdminSignals, w.adminSignals},
		{LimitChanged, w.limitChanged},
		{NodeDrained, w.nodeDrained},
	} {
		w.scheduleMishap(m.kind, m.strike)
	}
}

// scheduleMishap schedules the chances of a kind of mishap.
func (w *world) scheduleMishap(k Kind, strike func()) {
	if !w.dice.happen[k] {
		return
	}
	chances := 2
	if k == SlurmForgets || k == Twin || k == Rival {
		chances = 1
	}
	for i := range chances {
		at := time.Duration(w.dice.throw(k, uint32(i), 7) % uint64(calm/2))
		w.at(at, func() {
			if w.fault(k) {
				strike()
			}
		})
	}
}

func (w *world) slurmGoesDown() {
	if !w.slurm.down {
		w.stopSlurm(w.dice.faultDuration(SlurmDown, time.Second, 3*time.Minute))
	}
}

// stopSlurm stops the controller for a while.
func (w *world) stopSlurm(while time.Duration) {
	w.slurm.down = true
	w.slurm.Stop(w.wall())
	w.at(while, func() {
		w.slurm.down = false
		w.slurm.Start(w.wall())
		w.slurm.settle()
	})
}

func (w *world) databaseGoesDown() {
	w.slurm.Database.DownUntil = w.wall().Add(w.dice.faultDuration(DatabaseDown, time.Second, 10*time.Minute))
}

func (w *world) databaseFallsBehind() {
	w.slurm.Database.Behind = w.dice.faultDuration(DatabaseBehind, time.Second, 3*time.Minute)
	w.at(5*time.Minute, func() { w.slurm.Database.Behind = 0 })
}

func (w *world) databaseLosesEnds() {
	w.slurm.Database.LosesEnds = true
	w.at(w.dice.faultDuration(DatabaseLosesEnds, time.Second, 3*time.Minute), func() { w.slurm.Database.LosesEnds = false })
}

// slurmForgets loses the controller's state, and foreign jobs with it. The controller is down for longer than
// the bridge trusts a snapshot's ids.
func (w *world) slurmForgets() {
	if w.slurm.down {
		return
	}
	live, _ := w.slurm.liveJobs() // the controller is up
	for _, j := range live {
		w.slurm.notePlatformCause(j.ID, "Slurm forgot its job")
	}
	for _, a := range w.submissions() {
		a.doubtful = true
	}
	w.slurm.foreign, w.slurm.orphan = nil, 0
	w.slurm.Lose(w.wall())
	clear(w.slurm.attempts)
	clear(w.slurm.packs)
	clear(w.slurm.hidden)
	clear(w.slurm.invalid)
	clear(w.slurm.revoked)
	clear(w.slurm.cancelled)
	for _, s := range w.slurm.scripts {
		s.forgotten = true
	}
	// Other jobs get ids that the bridge's jobs had. They come after the minutes in which the bridge could
	// take one for a job that no snapshot has shown yet (plan: ClockSlack), and never if its clock is wrong.
	if !w.dice.happen[ClockSet] {
		w.at(3*time.Minute, w.slurm.beginForeign)
	}
	w.slurm.settle()
	least := 31 * time.Second
	if w.dice.happen[JobRewritten] || w.dice.happen[AdminRenames] {
		least = 2 * time.Minute // the same holds for the bridge's own jobs, because their names are rewritten
	}
	w.stopSlurm(w.dice.faultDuration(SlurmForgets, least, least+90*time.Second))
}

const cancelled = "cancelled by an administrator"

// strikeJob strikes one of the live jobs of the bridge. strike reports whether it had an effect.
func (w *world) strikeJob(what string, strike func(j sbatch.Job) bool) {
	j, ok := w.slurm.pickLiveJob()
	if !ok || w.slurm.down {
		return
	}
	struck := w.slurm.struck(j.ID)
	if !strike(j) {
		struck = nil
	}
	for _, a := range struck {
		a.noteCause(what)
		if what == cancelled {
			a.cancelled = j.ID
		} else {
			a.notePlatformCause(what)
		}
	}
	w.slurm.settle()
}

func (w *world) adminRequeues() {
	w.strikeJob("requeued by an administrator", func(j sbatch.Job) bool { return w.slurm.Requeue(w.wall(), j.ID) == nil }) // Slurm refuses if the job must not be requeued
}

func (w *world) adminCancels() {
	w.strikeJob(cancelled, func(j sbatch.Job) bool {
		ok := w.slurm.Cancel(w.wall(), 0, j.ID, "") == nil
		w.slurm.cancelled[j.ID] = w.slurm.cancelled[j.ID] || ok
		return ok
	})
}

func (w *world) preempted() {
	w.strikeJob("preempted", func(j sbatch.Job) bool {
		w.slurm.Preempt(w.wall(), j.ID, w.dice.coin(Preempted))
		return j.State == sbatch.StateRunning
	})
}

// jobSuspended suspends a job for a while: another job gets its node.
func (w *world) jobSuspended() {
	j, ok := w.slurm.pickLiveJob()
	if ok && !w.slurm.down && w.slurm.Suspend(w.wall(), j.ID) {
		w.at(w.dice.faultDuration(JobSuspended, 10*time.Second, 6*time.Minute), func() { w.slurm.resume(j.ID) })
		w.slurm.settle()
	}
}

func (w *world) nodeDies() { w.loseNode("its node died", (*script).vanish) }

func (w *world) nodeCut() {
	w.loseNode("its node was cut off", func(s *script) { s.setCut(true) })
}

// loseNode cuts a node off from Slurm. Slurm notices it later.
func (w *world) loseNode(what string, lose func(*script)) {
	j, ok := w.slurm.pickLiveJob()
	if !ok || w.slurm.down || j.Nodes == "" {
		return
	}
	for _, s := range w.slurm.scripts {
		if s.launch.Node == j.Nodes && !s.ended {
			s.notePlatformCause(what)
			lose(s)
		}
	}
	noticed, back := w.dice.duration(ofMishaps, 20*time.Second, time.Minute), w.dice.duration(ofMishaps, 2*time.Minute, 8*time.Minute)
	w.at(noticed, func() {
		w.setNode(j.Nodes, slurmtest.NodeLost, func() {
			w.at(back-noticed, func() { w.setNode(j.Nodes, slurmtest.NodeResume, func() {}) })
		})
	})
}

// setNode tells Slurm that a node is gone, or is back, and then calls next. A controller that is down learns it
// once it is up again.
func (w *world) setNode(node, state string, next func()) {
	if w.slurm.down {
		w.at(10*time.Second, func() { w.setNode(node, state, next) })
		return
	}
	for _, s := range w.slurm.scripts {
		if s.launch.Node == node && !s.ended {
			s.notePlatformCause("its node went down")
			s.setCut(state == slurmtest.NodeLost)
		}
	}
	_ = w.slurm.SetNode(w.wall(), node, state) // the node exists
	w.slurm.settle()
	next()
}

// nodeSick makes a node fail every job before its command, because containers cannot be set up there.
func (w *world) nodeSick() {
	node := slurmSite.Nodes[w.dice.below(ofMishaps, uint64(len(slurmSite.Nodes)))].Name
	until := w.now + w.dice.faultDuration(NodeSick, time.Minute, 6*time.Minute)
	w.logf("slurm", "node %s is sick until %s", node, until)
	w.slurm.sickUntil[node] = max(w.slurm.sickUntil[node], until)
}

// queueRefused removes the account of a queue for a while.
func (w *world) queueRefused() {
	q := w.pickQueue()
	until := w.now + w.dice.faultDuration(QueueRefused, 10*time.Second, 5*time.Minute)
	w.logf("slurm", "refuses the jobs of queue %s until %s", q, until)
	w.slurm.refusedUntil[q] = max(w.slurm.refusedUntil[q], until)
}

func (w *world) purged() {
	for _, made := range w.server.bundles {
		if b := w.disk.bundles[w.disk.keyOf(made.uuid)]; b != nil && w.dice.below(ofMishaps, 2) == 0 {
			w.disk.purge(b)
			return
		}
	}
}

func (w *world) serverGoesDown() {
	w.server.downUntil = w.now + w.dice.faultDuration(ServerDown, time.Second, 2*time.Minute)
}

func (w *world) diskGetsLow() {
	w.disk.low = true
	w.at(w.dice.faultDuration(DiskLow, time.Second, 4*time.Minute), func() { w.disk.low = false })
}

func (w *world) restaged() {
	if n := len(w.server.bundles); n > 0 {
		w.server.restage(w.server.bundles[w.dice.below(ofMishaps, uint64(n))])
	}
}

// twin starts a second bridge while the first one runs.
func (w *world) twin() {
	if w.rivalry == nil || !w.rivalry.gone {
		w.startLife()
	}
}

// recover does the operator's cl-bridge recover: the bridge goes on with a ledger that is older than Slurm's
// jobs.
func (w *world) recover() {
	w.ledger.generation += 1000
	w.at(time.Minute, w.server.create) // this bundle is new to the ledger, so the checks excuse nothing for it
}
