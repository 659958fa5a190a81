package sim

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
	"github.com/cl-slurm/cl-slurm/spool"
)

// HasPacks reports whether bundles go to Slurm in packs in a seed. They do in each eighth seed, which has no arrays.
func HasPacks(seed uint64) bool {
	d := newDice(seed)
	return d.packs()
}

func (d *dice) packs() bool { return d.throw(kinds, 0, 11)%8 == 0 }

// givePacks gives a queue the packs of the seed, if it has any.
func (d *dice) givePacks(q *plan.Queue) {
	if !d.packs() {
		return
	}
	q.PackRuns = 2 + int(d.throw(kinds, 0, 12)%8)
	q.PackSideBySide = 1 + int(d.throw(kinds, 0, 13)%3)
	q.PackTime = 15*time.Minute + time.Duration(d.throw(kinds, 0, 14)%20)*time.Minute
}

// memberLimit is the time limit of each bundle.
const memberLimit = 10 * time.Minute

// sideBySide comes before the width of a pack in its script.
const sideBySide = " --side-by-side="

// isPack reports whether a request is for a pack.
func isPack(r sbatch.Request) bool { return strings.Contains(r.Script, sideBySide) }

// widthOf returns the number of members that a pack's script runs side by side; 0 for other scripts.
func widthOf(r sbatch.Request) int {
	_, options, _ := strings.Cut(r.Script, sideBySide)
	digits, _, _ := strings.Cut(options, " ")
	n, _ := strconv.Atoi(digits)
	return n
}

// isPack reports whether a job is a pack of the bridge's.
func (s *slurm) isPack(id sbatch.JobID) bool {
	return slices.ContainsFunc(s.attempts[id], func(a *attempt) bool { return a.packed })
}

// isLeftPack reports whether a job is a pack that waits without members, and that the bridge does not recognize, because somebody has
// rewritten its comment. It would end at once after its start.
func (s *slurm) isLeftPack(j sbatch.Job) bool {
	_, stamped := plan.SharedStampOf(j)
	return s.isPack(j.ID) && j.State == sbatch.StatePending && !stamped
}

// struck returns the attempts of a job that something that happens to the job can strike: of a pack, not those that have left it
// with an end of their own.
func (s *slurm) struck(id sbatch.JobID) []*attempt {
	var struck []*attempt
	for _, a := range s.attempts[id] {
		if end := a.exit.record; !a.packed || end == nil || end.Terminated {
			struck = append(struck, a)
		}
	}
	return struck
}

// notePlatformCause notes a fault of the platform that strikes a job.
func (s *slurm) notePlatformCause(id sbatch.JobID, what string) {
	for _, a := range s.struck(id) {
		a.notePlatformCause(what)
	}
}

// pack is what the script of a pack has beside its workers.
type pack struct {
	script *script
	left   []spool.Member // those whose turn has not come, in their order
	width  int
	until  time.Duration // the end of the allocation, as the worker knows it
	code   int           // of the script's end
	// outOfMemory is set if the kernel has killed the processes of a member.
	outOfMemory bool
}

// startPack begins the batch script of a pack.
func (s *slurm) startPack(l slurmtest.Launch) {
	w := s.w
	list, ok := w.disk.members[membersOf(*l.Request)]
	if !ok {
		s.notePlatformCause(l.Job, "the list of its pack's members was gone")
		s.Ended(w.wall(), l.Job, l.Restart, slurmtest.End{Code: 120})
		return
	}
	of := s.newScript(l)
	of.pack = &pack{script: of, left: slices.Clone(list.Attempts), width: widthOf(*l.Request), until: w.now + l.Request.Time}
	w.logf("worker", "a pack of %d starts on %s, job %s", len(list.Attempts), l.Node, l.Job)
	of.at(w.dice.duration(ofPacks, 20*time.Millisecond, time.Second), of.pack.fill)
}

// waiting returns the attempts whose turn has not come.
func (p *pack) waiting() []*attempt {
	var attempts []*attempt
	for _, m := range p.left {
		attempts = append(attempts, p.script.w.disk.bundleAt(keyOfMember(m)).attempt(number(string(m.Name))))
	}
	return attempts
}

// fill gives members their turns while there are places, and ends the script when no member is left.
func (p *pack) fill() {
	s, d := p.script, &p.script.w.dice
	for !s.ended && !s.leaving && len(p.left) > 0 && len(s.workers) < p.width {
		m := p.left[0]
		p.left = p.left[1:]
		wk := s.add(keyOfMember(m), number(string(m.Name)))
		wk.at(d.duration(ofPacks, 20*time.Millisecond, time.Second), wk.begin)
	}
	if s.ended || len(s.workers) > 0 {
		return
	}
	if s.leaving {
		p.code = 143
	}
	s.end(slurmtest.End{Code: p.code, OutOfMemory: p.outOfMemory})
}

// admits reports whether the worker may begin a member: the bridge has not stopped it, and its time limit fits in what is left of the
// allocation.
func (p *pack) admits(a *attempt) bool {
	return !a.stopped && p.script.w.now+memberLimit+plan.PackMargin <= p.until
}

// ended notes that a worker has left its member, and gives its place to the next one. If the disk took no start, no further member
// begins.
func (p *pack) ended(wk *worker, e slurmtest.End) {
	s := p.script
	if s.ended || wk.over {
		return
	}
	wk.finish()
	s.workers = slices.DeleteFunc(s.workers, func(other *worker) bool { return other == wk })
	s.w.logf("worker", "%s.%d leaves the pack of job %s: %+v", shortID(wk.bundle.uuid), wk.attempt.number, s.launch.Job, e)
	if e.Code == 123 && s.w.dice.coin(ExitUnwritable) { // cmd/cl-worker: exitUnrecorded
		p.code = e.Code
	}
	if e.Code == 122 { // cmd/cl-worker: exitNotBegun
		p.code = e.Code
		s.notePlatformCause("the worker of its pack could not begin a member")
		p.left = nil
	}
	p.fill()
}

// meetLimit ends a member that has met a limit of its own.
func (wk *worker) meetLimit(code int, exit spool.Exit) {
	wk.terminated = true
	wk.attempt.limited, wk.attempt.metLimit = true, true
	wk.attempt.noteCause("it met its limit")
	exit.Token, exit.Cause, exit.CommandStarted = wk.token, spool.CauseLimit, wk.commandStarted
	if !wk.commandStarted.IsZero() {
		exit.ExitCode = &code
	}
	wk.leave(exit, slurmtest.End{Code: code})
}

// timeOut ends a member's command at its own time limit.
func (wk *worker) timeOut() {
	if !wk.terminated {
		wk.meetLimit(143, spool.Exit{TimedOut: true, Failure: "Time limit exceeded."})
	}
}

// heedStop makes the worker of a pack see that the bridge has told it to end an attempt: it looks each two seconds.
func (s *slurm) heedStop(a *attempt) {
	for _, of := range s.scripts {
		for _, wk := range of.workers {
			if wk.attempt != a || of.pack == nil {
				continue
			}
			wk.at(s.w.dice.duration(ofPacks, 0, 2*time.Second), func() {
				if !wk.terminated && wk.owns {
					s.w.stops++
				}
				wk.terminate("stopped by the bridge", "The run was stopped")
			})
		}
	}
}

// checkStop checks that the bridge tells a worker to end no attempt that has to go on.
func (w *world) checkStop(a *attempt, by *life) {
	row, ok := w.ledger.row(a.bundle)
	if !ok || by.number != w.ledger.writer || w.isUnknown(a.command) || row.Run.Command != a.command {
		return
	}
	if row.Attempt.Number == a.number && row.StopVerdict == nil && row.Verdict == nil {
		w.violate(PackEnded, "the worker of attempt %d of %s is told to end it, and its row is %s", a.number, a.bundle, row.Phase)
	}
}
