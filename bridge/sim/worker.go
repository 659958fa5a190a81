package sim

import (
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
	"github.com/cl-slurm/cl-slurm/spool"
)

// worker is one process of cl-worker exec in an allocation.
type worker struct {
	w       *world
	launch  slurmtest.Launch
	bundle  *bundleDir
	attempt *attempt
	token   string
	// owns is set once it has begun the attempt, terminated once Slurm told it to stop.
	owns, terminated, ended bool
	// commandStarted is the start of its command; zero before.
	commandStarted time.Time
	// cut is set if Slurm cannot reach its node, forgotten if Slurm has lost its job.
	cut, forgotten bool
	// suspended is set while Slurm has suspended it. due has the events that wait for its resumption.
	suspended bool
	due       []func()
}

// specOf returns the attempt whose specification a job's script names. The script ends in the path of the
// specification, .../<uuid>/<n>-<bridge>/spec.json'.
func specOf(r sbatch.Request) (of dirKey, attempt int) {
	parts := strings.Split(r.Script, "/")
	name := parts[len(parts)-2]
	_, bridge, _ := strings.Cut(name, "-")
	return dirKey{parts[len(parts)-3], bridge}, number(name)
}

// membersOf returns the name of the list of members that an array's script names, at its end: .../<name>.json'.
func membersOf(r sbatch.Request) string {
	name, _, _ := strings.Cut(r.Script[strings.LastIndex(r.Script, "/")+1:], ".json")
	return name
}

// keyOfMember returns the key of a member's bundle.
func keyOfMember(m spool.Member) dirKey {
	_, bridge, _ := strings.Cut(string(m.Name), "-")
	return dirKey{m.Bundle, bridge}
}

// taskOf returns the attempt of a batch script. It returns false if the disk does not have the list of the array's members.
func (w *world) taskOf(l slurmtest.Launch) (of dirKey, attempt int, ok bool) {
	_, index, isTask := l.Job.ArrayTask()
	if !isTask {
		of, attempt = specOf(*l.Request)
		return of, attempt, true
	}
	members := w.disk.members[membersOf(*l.Request)].Attempts
	if index >= len(members) {
		return dirKey{}, 0, false
	}
	return keyOfMember(members[index]), number(string(members[index].Name)), true
}

// isSubmittedBy reports whether a submission is of the attempt's specification, and not of an earlier bundle
// of the UUID.
func (a *attempt) isSubmittedBy(r sbatch.Request) bool {
	return strings.Contains(r.Script, "--submission="+a.submission+" ")
}

// startWorker begins a batch script on its node.
func (s *slurm) startWorker(l slurmtest.Launch) {
	w := s.w
	of, n, ok := w.taskOf(l)
	if !ok {
		if a := s.attempts[l.Job]; a != nil {
			a.notePlatformCause("the list of its array's members was gone")
		}
		s.Ended(w.wall(), l.Job, l.Restart, slurmtest.End{Code: 120})
		return
	}
	wk := &worker{w: w, launch: l, bundle: w.disk.bundleAt(of), attempt: w.disk.bundleAt(of).attempt(n)}
	wk.token = "worker " + strconv.Itoa(len(s.workers)) + " of job " + l.Job.String()
	s.workers = append(s.workers, wk)
	w.logf("worker", "%s.%d starts on %s, job %s", shortID(of.uuid), n, l.Node, wk.token)
	wk.at(w.dice.duration(ofWorkers, 20*time.Millisecond, time.Second), wk.begin)
}

// at schedules an event that happens only if the worker still runs. It waits while the worker is suspended.
func (wk *worker) at(after time.Duration, do func()) {
	wk.w.at(after, func() {
		switch {
		case wk.ended:
		case wk.suspended:
			wk.due = append(wk.due, do)
		default:
			do()
		}
	})
}

// suspend suspends the worker, or resumes it.
func (wk *worker) suspend(stop bool) {
	wk.suspended = stop
	if stop || wk.ended {
		return
	}
	due := wk.due
	wk.due = nil
	for _, do := range due {
		wk.at(0, do)
	}
}

// dies takes a chance for the worker's death.
func (wk *worker) dies() bool {
	if !wk.ended && wk.w.fault(WorkerDies) {
		wk.attempt.notePlatformCause("its worker died")
		wk.end(slurmtest.End{Signal: 9})
	}
	return wk.ended
}

// begin takes the attempt, and sets the container up if the worker owns the attempt then.
func (wk *worker) begin() {
	w, a := wk.w, wk.attempt
	if wk.dies() {
		return
	}
	if wk.terminated {
		wk.end(slurmtest.End{Signal: 15})
		return
	}
	if !a.there || !a.isSubmittedBy(*wk.launch.Request) { // no specification, or another job's
		a.notePlatformCause("it found no specification of its own")
		wk.end(slurmtest.End{Code: 120})
		return
	}
	if a.started.record == nil {
		started := spool.Started{Token: wk.token, Node: wk.launch.Node, Job: wk.launch.Job.String(), At: w.wall()}
		if wk.launch.Request.Tasks > 0 {
			started.Submission = a.submission
		}
		a.started = written[spool.Started]{&started, w.disk.seen()}
	}
	if a.started.record.Token != wk.token {
		wk.end(slurmtest.End{Code: 121}) // another worker owns it: touch nothing
		return
	}
	if w.fault(BeginUnknown) {
		a.notePlatformCause("its worker did not learn that it had begun")
		wk.end(slurmtest.End{Code: 122})
		return
	}
	if wk.dies() {
		return
	}
	if w.now < w.slurm.sickUntil[wk.launch.Node] {
		w.disk.ring(wk.bundle.dirKey, a.number)
		a.failedStart = w.now
		a.noteCause("its node was sick")
		wk.leave(spool.Exit{Token: wk.token, Cause: spool.CausePlatform, NotStarted: true, NodeAtFault: true, Failure: "No user namespaces on this node."}, slurmtest.End{Code: 124}) // cmd/cl-worker: exitNoStatus
		return
	}
	wk.owns, a.ran = true, wk.launch.Job
	a.alive++
	w.checkBegin(wk)
	if w.fault(WorkerOOM) {
		wk.at(w.dice.faultDuration(WorkerOOM, 0, 30*time.Second), func() {
			a.noteCause("out of memory")
			a.limited, a.outOfMemory = true, true
			wk.end(slurmtest.End{Signal: 9, OutOfMemory: true})
		})
	}
	if w.fault(WorkerDies) {
		wk.at(w.dice.faultDuration(WorkerDies, 0, w.wants[a.command].seconds+time.Second), func() {
			a.notePlatformCause("its worker died")
			wk.end(slurmtest.End{Signal: 9})
		})
	}
	wk.setUp()
}

// setUp sets the container up, and then begins the command.
func (wk *worker) setUp() {
	w, a := wk.w, wk.attempt
	setup := w.dice.duration(ofWorkers, 10*time.Millisecond, time.Second)
	if w.dice.below(ofWorkers, 4) == 0 { // it unpacks the image
		setup = w.dice.duration(ofWorkers, time.Second, 2*time.Minute)
		wk.at(time.Second, wk.report)
	}
	wk.beat()
	wk.at(setup, func() {
		if wk.terminated {
			return
		}
		wk.commandStarted, a.commandBegan = w.wall(), w.now
		w.logf("worker", "%s.%d: its command begins", shortID(wk.bundle.uuid), a.number)
		wk.report()
		wants := w.wants[a.command]
		wk.count(wants, func() { wk.commandEnds(wants.code) })
	})
}

// report writes the status record and rings the doorbell. If the record cannot be written, a later one is.
func (wk *worker) report() {
	w, a := wk.w, wk.attempt
	status := spool.Status{Token: wk.token, Stage: spool.StageStarting, At: w.wall(), CommandStarted: wk.commandStarted}
	if !status.CommandStarted.IsZero() {
		status.Stage = spool.StageRunning
	}
	if a.there && !w.fault(StatusUnwritable) {
		a.status = written[spool.Status]{&status, w.disk.seen()}
	} else {
		wk.at(w.dice.faultDuration(StatusUnwritable, 5*time.Second, time.Minute), wk.report)
	}
	w.disk.ring(wk.bundle.dirKey, a.number)
}

// commandEnds ends the command by itself.
func (wk *worker) commandEnds(code int) {
	if wk.terminated {
		return
	}
	exit := spool.Exit{Token: wk.token, Cause: spool.CauseSucceeded, ExitCode: &code, CommandStarted: wk.commandStarted, CommandEnded: wk.w.wall()}
	if code != 0 {
		exit.Cause = spool.CauseUser
	}
	if wk.dies() {
		return
	}
	wk.attempt.ended = &exit
	wk.leave(exit, slurmtest.End{Code: code})
}

// leave writes the exit record and ends the worker.
func (wk *worker) leave(exit spool.Exit, end slurmtest.End) {
	w, a := wk.w, wk.attempt
	switch {
	case !a.there || w.fault(ExitUnwritable):
		const what = "its exit record was not written"
		a.noteCause(what)
		if a.unrecorded = a.ended != nil; !a.unrecorded {
			end.Code = 123 // cmd/cl-worker: exitUnrecorded
		}
		if end.Code != 0 {
			a.notePlatformCause(what)
		}
	default:
		a.exit = written[spool.Exit]{&exit, w.disk.seen()}
		if wk.dies() {
			return
		}
		w.disk.ring(wk.bundle.dirKey, a.number)
	}
	if !wk.dies() {
		wk.end(end)
	}
}

// signal delivers TERM or KILL from Slurm.
func (wk *worker) signal(kill bool) {
	w := wk.w
	switch {
	case wk.ended:
	case kill:
		wk.attempt.notePlatformCause("killed by Slurm")
		wk.end(slurmtest.End{Signal: 9})
	case !wk.terminated:
		wk.terminated = true
		if !wk.owns {
			return // begin sees it
		}
		wk.attempt.noteCause("terminated by Slurm")
		wk.attempt.limited = true
		wk.at(w.dice.duration(ofWorkers, 10*time.Millisecond, 5*time.Second), func() {
			code := 143
			exit := spool.Exit{
				Token: wk.token, Cause: spool.CausePlatform, ExitCode: &code, Terminated: true,
				Failure: "The job was terminated before the command had ended.", CommandStarted: wk.commandStarted,
			}
			if wk.commandStarted.IsZero() {
				exit.ExitCode, exit.NotStarted, exit.Failure = nil, true, "The job was terminated before the command began."
			}
			wk.leave(exit, slurmtest.End{Code: code})
		})
	}
}

// end ends the batch script, and its node reports that.
func (wk *worker) end(e slurmtest.End) {
	if wk.ended {
		return
	}
	wk.vanish()
	w := wk.w
	w.logf("worker", "%s.%d ends: %+v", shortID(wk.bundle.uuid), wk.attempt.number, e)
	if !wk.cut && !wk.forgotten {
		w.slurm.Ended(w.wall(), wk.launch.Job, wk.launch.Restart, e)
		w.slurm.settle()
	}
}

// vanish ends a worker together with its node, so that nothing reports it.
func (wk *worker) vanish() {
	if !wk.ended {
		wk.ended = true
		if wk.owns {
			wk.attempt.alive--
		}
	}
}
