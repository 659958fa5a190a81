package sim

import (
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
	"github.com/cl-slurm/cl-slurm/spool"
)

// script is a batch script on its node: a process of cl-worker exec, with the workers of the attempts that it runs.
type script struct {
	w      *world
	launch slurmtest.Launch
	// workers run its attempts: one, or those of a pack that have their turn now.
	workers []*worker
	pack    *pack // nil for the script of one attempt
	// leaving is set once Slurm told it to stop.
	leaving, ended bool
	// cut is set if Slurm cannot reach its node, forgotten if Slurm has lost its job.
	cut, forgotten bool
	// suspended is set while Slurm has suspended it. due has the events that wait for its resumption.
	suspended bool
	due       []func()
	slept     bool // it was suspended before
}

// worker runs one attempt.
type worker struct {
	*script

	bundle  *bundleDir
	attempt *attempt
	token   string
	// owns is set once it has begun the attempt, terminated once it was told to stop, over once it has left the attempt.
	owns, terminated, over bool
	// commandStarted is the start of its command; zero before.
	commandStarted time.Time
}

// specOf returns the attempt whose specification a job's script names. The script ends in the path of the
// specification, .../<uuid>/<n>-<bridge>/spec.json'.
func specOf(r sbatch.Request) (of dirKey, attempt int) {
	parts := strings.Split(r.Script, "/")
	name := parts[len(parts)-2]
	_, bridge, _ := strings.Cut(name, "-")
	return dirKey{parts[len(parts)-3], bridge}, number(name)
}

// membersOf returns the name of the list of members that the script of an array or a pack names: .../<name>.json'.
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

// startScript begins a batch script on its node.
func (s *slurm) startScript(l slurmtest.Launch) {
	w := s.w
	if isPack(*l.Request) {
		s.startPack(l)
		return
	}
	of, n, ok := w.taskOf(l)
	if !ok {
		s.notePlatformCause(l.Job, "the list of its array's members was gone")
		s.Ended(w.wall(), l.Job, l.Restart, slurmtest.End{Code: 120})
		return
	}
	wk := s.newScript(l).add(of, n)
	w.logf("worker", "%s.%d starts on %s, job %s", shortID(of.uuid), n, l.Node, wk.token)
	wk.at(w.dice.duration(ofWorkers, 20*time.Millisecond, time.Second), wk.begin)
}

func (s *slurm) newScript(l slurmtest.Launch) *script {
	of := &script{w: s.w, launch: l}
	s.scripts = append(s.scripts, of)
	return of
}

// add adds the worker of an attempt.
func (s *script) add(of dirKey, n int) *worker {
	b := s.w.disk.bundleAt(of)
	wk := &worker{script: s, bundle: b, attempt: b.attempt(n)}
	s.w.tokens++
	wk.token = "worker " + strconv.Itoa(s.w.tokens) + " of job " + s.launch.Job.String()
	s.workers = append(s.workers, wk)
	return wk
}

// at schedules an event that happens only if the script still runs. It waits while the script is suspended.
func (s *script) at(after time.Duration, do func()) {
	s.w.at(after, func() {
		switch {
		case s.ended:
		case s.suspended:
			s.due = append(s.due, do)
		default:
			do()
		}
	})
}

// at schedules an event that happens only if the worker still has its attempt.
func (wk *worker) at(after time.Duration, do func()) {
	wk.script.at(after, func() {
		if !wk.over {
			do()
		}
	})
}

// suspend suspends the script, or resumes it.
func (s *script) suspend(stop bool) {
	s.suspended, s.slept = stop, true
	if stop || s.ended {
		return
	}
	due := s.due
	s.due = nil
	for _, do := range due {
		s.at(0, do)
	}
}

// notePlatformCause notes a fault of the platform that strikes all attempts that the script runs, or has yet to run.
func (s *script) notePlatformCause(what string) {
	for _, wk := range s.workers {
		wk.attempt.notePlatformCause(what)
	}
	if s.pack != nil {
		for _, a := range s.pack.waiting() {
			a.notePlatformCause(what)
		}
	}
}

// setCut notes whether Slurm can reach the script's node.
func (s *script) setCut(cut bool) {
	s.cut = cut
	for _, wk := range s.workers {
		wk.attempt.cut = wk.attempt.cut || cut
	}
}

// dies takes a chance for the script's death.
func (wk *worker) dies() bool {
	if !wk.ended && wk.w.fault(WorkerDies) {
		wk.die()
	}
	return wk.ended
}

func (s *script) die() {
	s.notePlatformCause("its worker died")
	s.end(slurmtest.End{Signal: 9})
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
	if wk.pack != nil && !wk.pack.admits(a) {
		wk.end(slurmtest.End{})
		return
	}
	if a.started.record == nil {
		started := spool.Started{Token: wk.token, Node: wk.launch.Node, Job: wk.launch.Job.String(), At: w.wall()}
		if wk.launch.Request.Tasks > 0 || wk.pack != nil {
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
	if wk.cut && w.slurm.cancelled[wk.launch.Job] { // it may have joined the pack after that
		a.cancelled = wk.launch.Job
	}
	a.alive++
	a.cut = a.cut || wk.cut
	w.checkBegin(wk)
	if w.fault(WorkerOOM) {
		after, alone := w.dice.faultDuration(WorkerOOM, 0, 30*time.Second), w.dice.coin(WorkerOOM)
		wk.at(after, func() { wk.runOutOfMemory(alone) })
	}
	if w.fault(WorkerDies) {
		wk.at(w.dice.faultDuration(WorkerDies, 0, w.wants[a.command].seconds+time.Second), wk.die)
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
		if wk.pack != nil {
			wk.pack.beginLimit(wk, setup)
		}
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
		if a.unrecorded = a.ended != nil; !a.unrecorded || wk.pack != nil {
			end.Code = 123 // cmd/cl-worker: exitUnrecorded
		}
		if end.Code != 0 || wk.pack != nil { // the exit status of a pack's job tells nothing of a member
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

// runOutOfMemory ends an attempt for want of memory. Of a pack, the kernel may kill the processes of this member alone.
func (wk *worker) runOutOfMemory(alone bool) {
	a := wk.attempt
	switch {
	case wk.pack == nil:
		a.noteCause("out of memory")
		a.limited, a.outOfMemory = true, true
		wk.script.end(slurmtest.End{Signal: 9, OutOfMemory: true})
	case !alone:
		wk.notePlatformCause("its pack was out of memory")
		wk.script.end(slurmtest.End{Signal: 9, OutOfMemory: true})
	case !wk.terminated:
		a.outOfMemory, wk.pack.outOfMemory = true, true
		wk.meetLimit(137, spool.Exit{Failure: "Memory limit exceeded."})
	}
}

// signal delivers TERM or KILL from Slurm.
func (s *script) signal(kill bool) {
	switch {
	case s.ended:
	case kill:
		s.notePlatformCause("killed by Slurm")
		s.end(slurmtest.End{Signal: 9})
	case !s.leaving:
		s.leaving = true
		s.checkTime()
		for _, wk := range s.workers {
			wk.attempt.limited = wk.attempt.limited || wk.owns && !wk.terminated
			wk.terminate("terminated by Slurm", "The job was terminated")
		}
		if s.pack != nil {
			s.pack.fill()
		}
	}
}

// terminate ends the command, and then the worker. If the attempt has not begun, begin sees it.
func (wk *worker) terminate(cause, says string) {
	if wk.terminated {
		return
	}
	wk.terminated = true
	if !wk.owns {
		return
	}
	wk.attempt.noteCause(cause)
	wk.at(wk.w.dice.duration(ofWorkers, 10*time.Millisecond, 5*time.Second), func() {
		code := 143
		exit := spool.Exit{
			Token: wk.token, Cause: spool.CausePlatform, ExitCode: &code, Terminated: true,
			Failure: says + " before the command had ended.", CommandStarted: wk.commandStarted,
		}
		if wk.commandStarted.IsZero() {
			exit.ExitCode, exit.NotStarted, exit.Failure = nil, true, says+" before the command began."
		}
		wk.leave(exit, slurmtest.End{Code: code})
	})
}

// end ends the worker. The batch script of one attempt ends with it.
func (wk *worker) end(e slurmtest.End) {
	if wk.pack != nil {
		wk.pack.ended(wk, e)
		return
	}
	if !wk.ended {
		wk.w.logf("worker", "%s.%d ends: %+v", shortID(wk.bundle.uuid), wk.attempt.number, e)
	}
	wk.script.end(e)
}

// end ends the batch script, and its node reports that.
func (s *script) end(e slurmtest.End) {
	if s.ended {
		return
	}
	s.vanish()
	w := s.w
	w.logf("worker", "the script of job %s ends: %+v", s.launch.Job, e)
	if !s.cut && !s.forgotten {
		w.slurm.Ended(w.wall(), s.launch.Job, s.launch.Restart, e)
		w.slurm.settle()
	}
}

// vanish ends a script together with its node, so that nothing reports it.
func (s *script) vanish() {
	s.ended = true
	for _, wk := range s.workers {
		wk.finish()
	}
}

// finish notes that the worker has left its attempt.
func (wk *worker) finish() {
	if !wk.over {
		wk.over = true
		if wk.owns {
			wk.attempt.alive--
			wk.attempt.leftAt = wk.w.wall()
		}
	}
}
