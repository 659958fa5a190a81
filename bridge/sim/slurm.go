package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// slurmSite is the cluster of every seed: a fast one of four nodes. largeSite is the cluster of a large
// world, with two hundred nodes.
var slurmSite, largeSite = newSlurmSite(), newLargeSite()

func newSlurmSite() *slurmtest.Site {
	s := slurmtest.NewSite()
	s.KillWait = 30 * time.Second
	return s
}

func newLargeSite() *slurmtest.Site {
	s := newSlurmSite()
	s.Nodes = nil
	for i := range s.Partitions[:2] { // nodes have fewer GPUs than a bad bundle requests
		s.Partitions[i].Nodes = nil
		for n := range 100 {
			name := fmt.Sprintf("%s%d", s.Partitions[i].Name, n)
			s.Nodes = append(s.Nodes, slurmtest.Node{Name: name, CPUs: 4, MemoryMiB: 16000, GPUType: "a100", GPUs: 4})
			s.Partitions[i].Nodes = append(s.Partitions[i].Nodes, name)
		}
	}
	s.Partitions = s.Partitions[:2]
	return s
}

const (
	researcher = 1001
	rewritten  = "site-job" // the name that the site's plugin gives to jobs
	// Jobs that do not belong to the bridge.
	foreignJob       = "interactive"
	neighbour        = "cl-ann-000000000001.1-ffffff" // another bridge's
	neighbourComment = "codalab bundle=0x1 attempt=1 owner=1 bridge=ffffff generation=900"
	// An orphan job, of a bundle that was forgotten long ago.
	orphanJob     = "cl-ann-ffffffffffff.1-b1b2b3"
	orphanComment = "codalab bundle=0xffffffffffffffffffffffffffffffff attempt=1 owner=1 bridge=b1b2b3 generation=0"
)

// slurm is the site's Slurm: a controller, and the nodes that carry out its orders.
type slurm struct {
	w *world
	*slurmtest.Controller
	scripts []*script
	due     time.Time // of the next Advance
	foreign []sbatch.JobID
	orphan  sbatch.JobID // the orphan job; 0 without one, and once the controller has lost it and may assign its id again
	down    bool
	hidden  map[sbatch.JobID]bool   // from squeue
	invalid map[sbatch.JobID]string // pending, for this reason of Slurm's
	// sickUntil and refusedUntil are the ends of the trouble of nodes and of queues.
	sickUntil, refusedUntil map[string]time.Duration
	// attempts maps the bridge's jobs to their attempts: one, or the members of a pack.
	attempts map[sbatch.JobID][]*attempt
	// packs has the jobs of packs, by the names of their lists.
	packs map[string][]sbatch.JobID
	// shortened has the jobs whose time limit an administrator has lowered.
	shortened map[sbatch.JobID]bool
	// cancelled has the jobs that an administrator has cancelled.
	cancelled map[sbatch.JobID]bool
	revoked   map[sbatch.JobID]*revocation
	// lagged is set if the accounting database is, or was, an hour behind.
	lagged bool
	// accounted is the time of the last answer of the accounting database to the bridge, by the bridge's clock.
	accounted time.Time
	// limited is set if the controller bounds the requests of one user.
	limited bool
}

// revocation is a job that another cluster of the federation starts, which sees the same disk. This cluster's
// squeue and sacct show neither that the job runs nor its end.
type revocation struct {
	// forgotten is set if the other cluster never reports the end of the job.
	forgotten bool
	// shown is the job as squeue shows it after its start; nil before.
	shown *sbatch.Job
}

// asShown returns the job as squeue or sacct shows it.
func (r *revocation) asShown(j sbatch.Job) sbatch.Job {
	if r == nil || j.State == sbatch.StatePending {
		return j
	}
	j.State, j.Reason, j.Nodes = sbatch.StateRevoked, "None", ""
	r.shown = &j
	return j
}

// showRevoked replaces the jobs of an answer by the results of asShown.
func (s *slurm) showRevoked(jobs []sbatch.Job) {
	for i, j := range jobs {
		jobs[i] = s.revoked[j.ID].asShown(j)
	}
}

// neverEnding adds the revoked jobs that squeue shows forever.
func (s *slurm) neverEnding(jobs []sbatch.Job) []sbatch.Job {
	for id, r := range s.revoked {
		if r.forgotten && r.shown != nil && !slices.ContainsFunc(jobs, func(j sbatch.Job) bool { return j.ID == id }) {
			jobs = append(jobs, *r.shown)
		}
	}
	slices.SortFunc(jobs, func(a, b sbatch.Job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs
}

// settle makes the nodes carry out the controller's orders, and schedules the next time.
func (s *slurm) settle() {
	w := s.w
	for _, o := range s.Advance(w.wall()) {
		s.carryOut(o)
	}
	due := s.Due()
	if due.IsZero() || due.Equal(s.due) {
		return
	}
	s.due = due
	w.at(max(0, due.Sub(w.wall())), func() {
		if s.due.Equal(due) {
			s.due = time.Time{}
		}
		s.settle()
	})
}

// carryOut executes an order of the controller on its node.
func (s *slurm) carryOut(o slurmtest.Order) {
	switch o.Kind {
	case slurmtest.Start:
		if o.Request.Name != foreignJob && o.Request.Name != neighbour && o.Request.Name != orphanJob {
			s.startScript(o.Launch)
		}
	case slurmtest.Suspend, slurmtest.Resume:
		for _, of := range s.scripts {
			if of.launch.Job == o.Job && of.launch.Restart == o.Restart && !of.cut {
				of.suspend(o.Kind == slurmtest.Suspend)
			}
		}
	case slurmtest.Terminate, slurmtest.Kill:
		if o.Job == s.orphan {
			s.Ended(s.w.wall(), o.Job, o.Restart, slurmtest.End{Signal: 15})
		}
		for _, of := range s.scripts {
			if of.launch.Job == o.Job && of.launch.Restart == o.Restart && !of.cut {
				of.signal(o.Kind == slurmtest.Kill)
			}
		}
	}
}

// isForeign reports whether a job does not belong to this bridge.
func (s *slurm) isForeign(j sbatch.Job) bool {
	return j.Name == foreignJob || j.Name == neighbour || j.Name == orphanJob && s.w.policy.Bridge != firstBridge
}

// liveJobs returns the jobs of this bridge that have not ended.
func (s *slurm) liveJobs() ([]sbatch.Job, error) {
	snapshot, err := s.Observe(s.w.wall(), researcher)
	return slices.DeleteFunc(snapshot.Jobs, func(j sbatch.Job) bool {
		return j.State.Ended() || s.isForeign(j)
	}), err
}

// anyLive reports whether any job of this bridge lives. It is true while Slurm does not answer.
func (s *slurm) anyLive() bool {
	live, err := s.liveJobs()
	return err != nil || len(live) > 0
}

// pickLiveJob picks one of the live jobs of this bridge; ok is false if it has none.
func (s *slurm) pickLiveJob() (job sbatch.Job, ok bool) {
	live, err := s.liveJobs()
	if err != nil || len(live) == 0 {
		return sbatch.Job{}, false
	}
	return live[s.w.dice.below(ofMishaps, uint64(len(live)))], true
}

// beginOrphan submits an orphan job, which the bridge has to cancel.
func (s *slurm) beginOrphan() {
	s.orphan, _ = s.Submit(s.w.wall(), researcher, sbatch.Request{ // the controller is up
		Name: orphanJob, Comment: orphanComment, Partition: "gpu", CPUs: 1, Time: 24 * time.Hour, Script: "#!/bin/sh\n",
	})
	s.settle()
}

// beginForeign submits jobs that do not belong to the bridge, which must not touch them.
func (s *slurm) beginForeign() {
	for _, r := range []sbatch.Request{
		{Name: foreignJob, Partition: "gpu", CPUs: 1, Time: 24 * time.Hour, Script: "#!/bin/sh\n"},
		{Name: neighbour, Comment: neighbourComment, Partition: "gpu", CPUs: 1, Time: 24 * time.Hour, Script: "#!/bin/sh\n"},
	} {
		id, err := s.Submit(s.w.wall(), researcher, r)
		if err == nil {
			s.foreign = append(s.foreign, id)
		}
	}
	s.settle()
}

// release lets a held job start, once the controller is up.
func (s *slurm) release(id sbatch.JobID) {
	if s.down {
		s.w.at(10*time.Second, func() { s.release(id) })
		return
	}
	s.Release(s.w.wall(), id)
	s.settle()
}

// resume continues a suspended job, once the controller is up.
func (s *slurm) resume(id sbatch.JobID) {
	if s.down {
		s.w.at(10*time.Second, func() { s.resume(id) })
		return
	}
	s.Resume(s.w.wall(), id)
	s.settle()
}

// strikeNewJob lets faults strike a new job.
func (s *slurm) strikeNewJob(id sbatch.JobID) {
	w := s.w
	if id == 0 {
		return
	}
	if w.fault(JobWaits) {
		s.Hold(w.wall(), id)
		w.at(w.dice.faultDuration(JobWaits, time.Second, 5*time.Minute), func() { s.release(id) })
	}
	if w.fault(JobInvalid) {
		s.Hold(w.wall(), id)
		s.invalid[id] = "InvalidAccount"
		if s.isPack(id) && w.dice.coin(JobInvalid) {
			s.invalid[id] = "PartitionConfig" // its members may start alone
		}
		w.at(w.dice.faultDuration(JobInvalid, 10*time.Second, 5*time.Minute), func() {
			delete(s.invalid, id)
			s.release(id)
		})
	}
	if w.accountsTell() && w.fault(JobHidden) {
		s.hidden[id] = true
		for _, a := range s.attempts[id] {
			a.hidden = true
		}
		w.at(w.dice.faultDuration(JobHidden, time.Second, 3*time.Minute), func() { delete(s.hidden, id) })
	}
	if w.fault(JobRevoked) {
		s.revoked[id] = &revocation{forgotten: w.dice.coin(JobRevoked)}
		s.notePlatformCause(id, "another cluster took its job")
	}
	if w.fault(BootFails) && s.FailBoot(w.wall(), id) {
		s.notePlatformCause(id, "its node did not boot")
	}
	if w.fault(LaunchFails) && s.FailLaunch(w.wall(), id) {
		s.notePlatformCause(id, "its node could not launch it")
	}
}

// accountsTell reports whether the accounting database, the ledger and the clock are always right in this
// seed. If they are not, the bridge cannot tell a job that squeue hides from one that has ended or never
// existed.
func (w *world) accountsTell() bool {
	for _, k := range makeAccountsWrong() {
		if w.dice.happen[k] {
			return false
		}
	}
	return w.policy.Accounting
}

// makeAccountsWrong lists the faults that make the accounts unreliable. The accounts do not show a held job
// either.
func makeAccountsWrong() []Kind {
	return []Kind{DatabaseDown, DatabaseBehind, DatabaseLags, DatabaseLosesEnds, SlurmForgets, AdminForces, AdminRenames, AdminRequeues, Preempted, BootFails, LaunchFails, NodeDies, NodeCut, JobInvalid, JobWaits, LedgerOld, ClockSet}
}

// Partitions is never called: a life does not survey its nodes.
func (c commands) Partitions(context.Context) ([]sbatch.Partition, error) { return nil, nil }
