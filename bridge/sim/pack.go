package sim

import (
	"cmp"
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

func (d *dice) packs() bool { return d.throw(ofSeed, 0, 11)%8 == 0 }

// givePacks gives a queue the packs of the seed, if it has any.
func (d *dice) givePacks(q *plan.Queue) {
	if !d.packs() {
		return
	}
	q.PackRuns = 2 + int(d.throw(ofSeed, 0, 12)%8)
	q.PackSideBySide = 1 + int(d.throw(ofSeed, 0, 13)%3)
	q.MaxInFlight *= 4 // room for packs of several members
	q.PackTime = 15*time.Minute + time.Duration(d.throw(ofSeed, 0, 14)%20)*time.Minute
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

// isPack reports whether a job is a pack of the bridge's. Its members may have other jobs since.
func (s *slurm) isPack(id sbatch.JobID) bool {
	for _, jobs := range s.packs {
		if slices.Contains(jobs, id) {
			return true
		}
	}
	return false
}

// isLeftPack reports whether a job is a pack that waits without members, and that the bridge does not recognize, because somebody has
// rewritten its comment, or because it is of the first bridge, which is gone. It would end at once after its start.
func (s *slurm) isLeftPack(j sbatch.Job) bool {
	stamp, stamped := plan.SharedStampOf(j)
	return s.isPack(j.ID) && j.State == sbatch.StatePending && (!stamped || stamp.Bridge != s.w.policy.Bridge)
}

// struck returns the attempts of a job that something that happens to the job can strike: of a pack, not those that have left it
// with an end of their own, nor those of a run before a requeue.
func (s *slurm) struck(id sbatch.JobID) []*attempt {
	var struck []*attempt
	for _, a := range s.attempts[id] {
		if end := a.exit.record; !a.packed || (end == nil || end.Terminated) && !s.w.wasLeft(a) {
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

// pack is the part of the script of a pack without its workers.
type pack struct {
	script *script
	left   []spool.Member // those whose turn has not come, in their order
	width  int
	until  time.Duration // the end of the allocation, as the worker knows it
	code   int           // of the script's end
	sick   int           // of the last members, those that the node has failed
	// list is the name of its list, of which it has taken slots. closed is set once no member can join any more, done once no further
	// member may begin.
	list         string
	slots        int
	closed, done bool
	sickNode     bool // two members in a row have shown that
	// outOfMemory is set if the kernel has killed the processes of a member.
	outOfMemory bool
	concluded   int // counts the members that have left it with a record of their end
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
	of.pack = &pack{script: of, list: membersOf(*l.Request), left: slices.Clone(list.Attempts), width: widthOf(*l.Request), until: w.now + l.Request.Time}
	w.logf("worker", "a pack of %d starts on %s, job %s", len(list.Attempts), l.Node, l.Job)
	of.at(w.dice.duration(ofPacks, 20*time.Millisecond, time.Second), of.pack.fill)
}

// waiting returns the attempts whose turn has not come. Those of slots that the worker has not seen yet are among them.
func (p *pack) waiting() []*attempt {
	d := &p.script.w.disk
	left, slots := slices.Clone(p.left), d.slots[p.list]
	for _, slot := range slots[min(p.slots, len(slots)):] { // the bridge may have removed the list
		left = append(left, slot.Attempts...)
	}
	var attempts []*attempt
	for _, m := range left {
		attempts = append(attempts, d.bundleAt(keyOfMember(m)).attempt(number(string(m.Name))))
	}
	return attempts
}

// joinPack does the file server's part of a slot of a list that the bridge writes. It reports whether the members have joined.
func (s *slurm) joinPack(list string, n int, slot spool.Slot) bool {
	w := s.w
	slots := w.disk.slots[list]
	if n <= len(slots) {
		standing := slots[n-1]
		return !standing.Closed && slices.Equal(standing.Attempts, slot.Attempts)
	}
	if n != len(slots)+1 {
		w.violate(SubmittedTwice, "slot %d of %s is written, and it has %d", n, list, len(slots))
	}
	w.disk.slots[list] = append(slots, slot)
	w.joined += len(slot.Attempts)
	w.logf("disk", "%d members join the pack of list %s, slot %d", len(slot.Attempts), list, n)
	for _, m := range slot.Attempts {
		a := w.disk.bundleAt(keyOfMember(m)).attempt(number(string(m.Name)))
		if a.submission != slot.Submission {
			continue
		}
		a.packed = true
		for _, job := range s.readersOf(list) {
			if !s.isOfOldLedger(list) {
				w.checkMade(a, job)
			}
			s.attempts[job] = append(s.attempts[job], a)
			a.job = cmp.Or(a.job, job)
			a.name = s.attempts[job][0].name
			a.unnamed = a.unnamed || s.attempts[job][0].unnamed
			if s.shortened[job] { // before the bridge saw it
				a.notePlatformCause("the time limit of its pack was shortened")
				a.limited = true
			}
		}
	}
	for _, of := range s.scripts {
		if of.pack == nil || of.pack.list != list {
			continue
		}
		if !of.ended && (of.cut || of.forgotten) { // before the bridge saw it
			of.notePlatformCause("Slurm had lost the pack that it joined")
		}
		if !w.dice.coin(BellLost) { // else it finds them when it closes the list
			of.at(w.dice.duration(ofPacks, 0, 2*time.Second), of.pack.fill)
		}
	}
	return true
}

// readersOf returns the jobs of a pack whose workers read its list of members, now or once they start. A bridge with an old copy of its ledger
// may have submitted the pack again; then a job that has ended begins none of the members that join.
func (s *slurm) readersOf(list string) []sbatch.JobID {
	jobs := s.packs[list]
	if len(jobs) < 2 {
		return jobs
	}
	live, err := s.liveJobs()
	if err != nil { // the controller is down
		return jobs
	}
	return slices.DeleteFunc(slices.Clone(jobs), func(id sbatch.JobID) bool {
		isLive := slices.ContainsFunc(live, func(j sbatch.Job) bool { return j.ID == id })
		runs := slices.ContainsFunc(s.scripts, func(of *script) bool { return of.launch.Job == id && !of.ended }) // though Slurm may not know it
		return !isLive && !runs
	})
}

// isOfOldLedger reports whether the restored ledger has an old state of a pack, and so may not know that sbatch ran for it twice. Members may
// join two jobs of it then (docs/contributors/reliability.md, I2, "Not promised").
func (s *slurm) isOfOldLedger(list string) bool {
	d := &s.w.disk
	return slices.ContainsFunc(d.members[list].Attempts, func(m spool.Member) bool {
		return s.w.isUnknown(d.bundleAt(keyOfMember(m)).attempt(number(string(m.Name))).command)
	})
}

// more takes the next slot, if its list is used up; it closes the list if there is none.
func (p *pack) more(closes bool) bool {
	d := &p.script.w.disk
	for len(p.left) == 0 && !p.closed {
		slots := d.slots[p.list]
		switch {
		case p.slots < len(slots):
			p.left, p.closed = append(p.left, slots[p.slots].Attempts...), slots[p.slots].Closed
			p.slots++
		case !closes:
			return false
		default:
			d.slots[p.list] = append(slots, spool.Slot{Closed: true})
		}
	}
	return len(p.left) > 0
}

// fill gives members their turns while there are places, and ends the script when no member is left.
func (p *pack) fill() {
	s, d := p.script, &p.script.w.dice
	if s.ended {
		return
	}
	for s.leaving || p.done {
		if p.sickNode && len(p.left) > 0 {
			p.code = 122 // cmd/cl-worker: exitNotBegun
		}
		p.left = nil
		if !p.more(true) {
			break
		}
	}
	for !s.leaving && !p.done && len(s.workers) < p.width && p.more(len(s.workers) == 0) {
		m := p.left[0]
		p.left = p.left[1:]
		wk := s.add(keyOfMember(m), number(string(m.Name)))
		wk.at(d.duration(ofPacks, 20*time.Millisecond, time.Second), wk.begin)
	}
	if len(s.workers) > 0 && len(s.workers) < p.width {
		p.script.w.server.createAlike(s.workers[0].attempt)
	}
	if s.ended || len(s.workers) > 0 {
		return
	}
	if s.leaving {
		p.code = 143
	}
	s.end(slurmtest.End{Code: p.code, OutOfMemory: p.outOfMemory})
}

// workerMargin is the time before a pack's end that a worker leaves after a member's time limit (worker/place.go: KillGrace and endMargin).
const workerMargin = 40 * time.Second

// admits reports whether the worker may begin a member: the bridge has not stopped it, and its time limit fits in what is left of the
// allocation.
func (p *pack) admits(a *attempt) bool {
	return !a.stopped && p.script.w.now+memberLimit+workerMargin <= p.until
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
		p.done = true
	}
	if exit := wk.attempt.exit.record; exit != nil && exit.Token == wk.token {
		p.concluded++
	}
	p.noteSick(wk)
	p.fill()
	p.mayBeRequeued()
}

// noteSick leaves the further members of a pack on a sick node.
func (p *pack) noteSick(wk *worker) {
	switch exit := wk.attempt.exit.record; {
	case exit == nil || exit.Token != wk.token:
	case exit.NodeAtFault:
		p.sick++
	default:
		p.sick = 0
	}
	if p.sick >= 2 {
		p.done, p.sickNode = true, true
	}
}

// checkBill checks that a member whose worker is gone is not billed for what its pack does later. Slurm may need minutes to see that a
// node is gone.
func (w *world) checkBill(before, after *plan.Row) {
	if !before.EndedAt.IsZero() || after.EndedAt.IsZero() || !after.Pack || !after.Requeued || after.Exit != nil || w.clockSet > 0 || w.isUnknown(after.Run.Command) {
		return
	}
	a := w.disk.attempt(after.Bundle, after.Attempt.Number)
	if c, ok := after.Charge(); ok && a.alive == 0 && !a.leftAt.IsZero() && c.End.Sub(a.leftAt) > 10*time.Minute {
		w.violate(FalseEnd, "attempt %d of %s is billed until %s, and its worker ended at %s", a.number, a.bundle, c.End, a.leftAt)
	}
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

// beginLimit begins the time limit of a member's command. The worker's margin leaves no time for an image that has to be unpacked: then
// Slurm may end the pack first (docs/operators/many-runs.md, Packs).
func (p *pack) beginLimit(wk *worker, setup time.Duration) {
	if setup > workerMargin && p.script.w.now+memberLimit > p.until {
		wk.attempt.notePlatformCause("its container was set up too late")
	}
	wk.at(memberLimit, wk.timeOut)
}

// checkTime checks that Slurm's time limit of a pack, at which the script gets TERM, ends no member: the worker begins only those whose own
// limits fit.
func (s *script) checkTime() {
	w := s.w
	if s.pack == nil || w.now < s.pack.until || s.slept {
		return
	}
	for _, wk := range s.workers {
		if wk.owns && !wk.terminated && wk.attempt.platformCause == "" {
			w.violate(PackEnded, "the time of its pack, job %s, is over before that of attempt %d of %s", s.launch.Job, wk.attempt.number, wk.bundle.uuid)
		}
	}
}

// timeOut ends a member's command at its own time limit.
func (wk *worker) timeOut() {
	if !wk.terminated {
		wk.meetLimit(143, spool.Exit{TimedOut: true, Failure: "Time limit exceeded."})
	}
}

// heedStop makes the worker of a pack see that the bridge has told it to end an attempt: it looks each two to ten seconds.
func (s *slurm) heedStop(a *attempt) {
	for _, of := range s.scripts {
		for _, wk := range of.workers {
			if wk.attempt != a || of.pack == nil {
				continue
			}
			wk.at(s.w.dice.duration(ofPacks, 0, 10*time.Second), func() {
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

// checkJoin checks that members that join a pack are saved before (I1), and that each repeat has the same.
func (w *world) checkJoin(list string, n int, slot spool.Slot, by *life) {
	w.checkLedger("members that join a pack")
	key := list + "/" + strconv.Itoa(n)
	if first, ok := w.lists[key]; ok && !w.ledger.restored && !slices.Equal(first, slot.Attempts) {
		w.violate(SubmittedTwice, "slot %s is written again with %v, and had %v", key, slot.Attempts, first)
	}
	w.lists[key] = slot.Attempts
	if by.number != w.ledger.writer {
		return
	}
	for _, all := range []map[plan.SubmissionName]plan.Submission{w.ledger.shared, w.ledger.over} {
		for _, s := range all {
			if s.Joining != nil && s.Joining.List == list && s.Joining.Slot == n && slices.EqualFunc(s.Members, slot.Attempts, func(a plan.Member, b spool.Member) bool { return spool.Member(a) == b }) {
				return
			}
		}
	}
	w.violate(SubmittedTwice, "slot %s is written with %v, and no such submission is saved", key, slot.Attempts)
}
