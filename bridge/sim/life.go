package sim

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

var (
	errCrashed     = errors.New("the bridge is dead")
	errUnreachable = errors.New("connection refused")
)

// life is one life of the bridge, from its start to its crash. It drives the bridge like bridge.Run, in
// simulated time.
type life struct {
	w      *world
	ledger *ledgerDisk
	bridge *bridge.Bridge
	slurm  *sbatch.Observer
	number int
	began  time.Duration
	dead   bool
	// offset is the difference of its clock from the site's. extra is the time that the current effect has
	// taken so far.
	offset, extra time.Duration
	// stepping is set while a step is scheduled. timer is the time of the next step without news; 0 for
	// never.
	stepping bool
	timer    time.Duration
	// seats are the effects that have a place, or wait for one.
	seats []*seat
	// asked is the time of the last squeue. answer is its answer if the answer is as old as the question;
	// nil otherwise.
	asked  time.Time
	answer *listing
	// unanswered counts the failures of squeue in a row; the last one was at failed.
	unanswered int
	failed     time.Duration
	// settingsDue is the time of the next question for Slurm's settings.
	settingsDue  time.Time
	queueWorkers []*queueWorker
}

// startLife starts the bridge.
func (w *world) startLife() {
	w.nextLife++
	l := &life{w: w, ledger: w.ledger, number: w.nextLife, began: w.now}
	if w.rivalry != nil {
		w.rivalry.takeLease()
	}
	if w.fault(ClockSet) {
		l.offset = w.dice.faultDuration(ClockSet, time.Minute, 3*time.Hour)
		if w.dice.coin(ClockSet) {
			l.offset = -l.offset
		}
		w.logf("bridge", "its clock is off by %s", l.offset)
	}
	if l.offset != w.offset {
		w.offset, w.clockSet = l.offset, w.now
		for _, a := range w.submissions() {
			a.notePlatformCause("a bridge with another clock looked for its job")
			a.doubtful = true
		}
	}
	l.slurm = &sbatch.Observer{
		Scheduler: commands{l}, Interval: observeEvery, Now: l.clock,
		Random: func() float64 { return float64(w.dice.below(ofObservation, 1000)) / 1000 },
	}
	l.bridge = &bridge.Bridge{Config: bridge.Config{
		Policy: w.policy, Name: "sim", Hostname: "login", Ledger: &book{life: l}, Scheduler: l.slurm, Service: service{life: l},
		Spool: mount{l}, Carrier: mount{l}, Gauge: mount{l}, Stager: stager{l}, Collector: collector{l}, Log: slog.New(slog.DiscardHandler), Now: l.clock, ReadEvery: 20 * time.Second,
		AtOnce: w.crowd.atOnce, Pace: w.pace(), Settings: commands{l}.settings,
	}}
	if w.log != nil {
		l.bridge.Trace = l.narrate
	}
	for _, q := range w.queues {
		l.queueWorkers = append(l.queueWorkers, &queueWorker{life: l, queue: q})
	}
	w.lives = append(w.lives, l)
	for _, s := range w.stopping {
		s.since = w.now
	}
	w.hampered = w.now
	w.passed = map[lane]map[string]*turns{}
	w.logf("bridge", "life %d begins", l.number)
	if err := l.bridge.Open(w.ctx); err != nil {
		l.die(err.Error())
		return
	}
	l.wake()
	l.observe()
	l.read()
	for _, i := range l.queueWorkers {
		i.checkInRegularly()
	}
	if w.dice.happen[DiskLow] {
		l.measure()
	}
}

// bridgeRuns reports whether the newest life runs. An earlier life cannot write the ledger, and does nothing.
func (w *world) bridgeRuns() bool {
	return len(w.lives) > 0 && w.lives[len(w.lives)-1].number == w.nextLife
}

// clock is the bridge's clock.
func (l *life) clock() time.Time { return epoch.Add(l.w.now + l.offset + l.extra) }

// crashes takes a chance for a crash, and reports whether the bridge is dead.
func (l *life) crashes() bool {
	if !l.dead && l.w.fault(Crash) {
		l.die("a crash")
	}
	return l.dead
}

// die ends the life. If it is the newest one, another begins after a while.
func (l *life) die(why string) {
	if l.dead {
		return
	}
	w := l.w
	l.dead = true
	w.logf("bridge", "life %d ends: %s", l.number, why)
	for _, r := range w.ledger.rows { // the next life may not see ends that this one saw and did not save
		if r.Attempt.Number == 0 || r.Job.State.Ended() {
			continue
		}
		a := w.disk.attempt(r.Bundle, r.Attempt.Number)
		a.shownEnded = false
		if a.unplaced && r.Phase == plan.Submitting { // nor does it learn of the refusal, whose ghost may seem to be a job
			noteNoJob([]*attempt{a})
		}
	}
	for i, other := range w.lives {
		if other == l {
			w.lives = append(w.lives[:i:i], w.lives[i+1:]...)
			break
		}
	}
	if l.number != w.nextLife {
		return // a newer life has taken the ledger
	}
	w.at(w.dice.duration(ofLives, time.Second, time.Minute), func() {
		if l.number != w.nextLife {
			return
		}
		if len(w.lives) == 0 && w.fault(LedgerOld) {
			w.ledger.restore()
		}
		w.startLife()
	})
}

// submissions returns the attempts that are being submitted. A killed member of an array or a pack stays in the list that is submitted.
func (w *world) submissions() []*attempt {
	var found []*attempt
	for _, r := range w.ledger.rows {
		if r.Phase == plan.Submitting {
			found = append(found, w.disk.attempt(r.Bundle, r.Attempt.Number))
		}
	}
	for _, s := range w.ledger.shared {
		if s.State == plan.Asked && s.Joining == nil {
			for _, m := range s.Members {
				found = append(found, w.disk.attempt(m.Bundle, number(string(m.Name))))
			}
		}
	}
	return found
}

// at schedules an event that happens only if the bridge still lives.
func (l *life) at(after time.Duration, do func()) {
	l.w.at(after, func() {
		if !l.dead {
			do()
		}
	})
}

// wake schedules a step.
func (l *life) wake() {
	if l.dead || l.stepping {
		return
	}
	l.stepping = true
	l.at(l.w.dice.duration(ofSteps, time.Millisecond, 50*time.Millisecond), l.step)
}

func (l *life) step() {
	l.stepping = false
	w := l.w
	w.countStep()
	l.checkRivals()
	effects, wait, err := l.bridge.Step(w.ctx, l.clock())
	switch {
	case l.dead:
		return
	case errors.Is(err, plan.ErrOutdated):
		w.logf("bridge", "%s", err)
		switch {
		case w.ledger.restored:
			w.recover()
		case l.number == w.nextLife:
			w.violate(Stuck, "the ledger is said to be old, and is not: %s", err)
		}
		l.die("the ledger is old")
		return
	case err != nil:
		l.die(err.Error())
		return
	}
	for _, e := range effects {
		l.start(e)
	}
	l.wakeIn(wait + time.Millisecond)
	for _, i := range l.queueWorkers {
		i.checkInIfChanged()
	}
}

// wakeIn schedules a step after a while, unless an earlier one is scheduled.
func (l *life) wakeIn(wait time.Duration) {
	due := l.w.now + wait
	if l.timer > l.w.now && l.timer <= due {
		return
	}
	l.timer = due
	l.at(wait, l.wake)
}

// start schedules an effect, which begins once it has its place.
func (l *life) start(e plan.Effect) {
	w := l.w
	lasts := l.effectDuration(e)
	l.at(w.dice.duration(ofEffects, time.Millisecond, 100*time.Millisecond), func() {
		at := l.queue(e)
		entered := false
		begin := func() { l.do(e, lasts, at) }
		at.leave = l.bridge.Enter(w.ctx, &e, func() {
			if at.grant(); entered {
				l.at(0, begin)
			}
		})
		if entered = true; at.granted {
			begin()
		}
		at.checkLeftOut()
	})
}

// do runs an effect that takes the given time.
func (l *life) do(e plan.Effect, lasts time.Duration, at *seat) {
	l.extra = 0
	if e.Kind == plan.Submit && l.clock().Sub(e.Row.SubmittedAt) > plan.SubmitWithin {
		lasts = 0 // sbatch is not run
	}
	report := l.bridge.Do(context.WithoutCancel(l.w.ctx), e)
	lasts = max(lasts, l.extra)
	l.extra = 0
	l.at(lasts, func() {
		at.end()
		if !l.crashes() {
			report()
			l.wake()
		}
	})
}

// effectDuration returns the time that an effect takes.
func (l *life) effectDuration(e plan.Effect) time.Duration {
	d := &l.w.dice
	wants := l.w.wantsOf(e.Row)
	long := wants.long
	switch e.Kind {
	case plan.Stage:
		if wants.cached {
			return d.duration(ofJoins, 10*time.Millisecond, 2*time.Second)
		}
		if long {
			return d.duration(ofEffects, time.Minute, 15*time.Minute)
		}
		return d.duration(ofEffects, 100*time.Millisecond, time.Minute)
	case plan.Collect:
		if long {
			return d.duration(ofEffects, time.Minute, 15*time.Minute)
		}
		return d.duration(ofEffects, 100*time.Millisecond, 20*time.Second)
	case plan.Carry:
		return d.duration(ofResumes, 10*time.Millisecond, time.Minute)
	case plan.Submit:
		if d.below(ofEffects, 10) == 0 {
			return d.duration(ofEffects, time.Second, submitBound)
		}
		return d.duration(ofEffects, 20*time.Millisecond, time.Second)
	case plan.TellTimeLimit:
		return d.duration(ofTimeLimits, 5*time.Millisecond, time.Second)
	case plan.Claim, plan.Prepare, plan.AskQueue, plan.QueryAccounting, plan.ReadRecords, plan.Fence, plan.Cancel, plan.StopMember, plan.JoinPack, plan.Confirm, plan.Release, plan.Forget:
	}
	return d.duration(ofEffects, 5*time.Millisecond, time.Second)
}

// observeEvery is the shortest time from one squeue to the next.
const observeEvery = 6 * time.Second

// observe asks Slurm regularly. The answer comes later than the question.
func (l *life) observe() {
	w := l.w
	l.asked = l.clock()
	if w.fault(ObserveLate) {
		l.answer = w.slurm.list()
	}
	l.at(w.slurm.sleep()+w.dice.duration(ofObservation, 10*time.Millisecond, 3*time.Second), func() {
		_ = l.bridge.FindMembers()              // the disk has them
		err := l.bridge.Observe(w.ctx, l.asked) // a failure is no news for any row
		l.answer = nil
		if err == nil {
			l.settingsDue = l.bridge.AskSettings(w.ctx, l.clock(), l.settingsDue)
		}
		l.wake()
		if len(w.disk.rang) > 0 {
			l.at(time.Second, l.listen) // it may have skipped the doorbell when that rang
		}
		pause := w.dice.duration(ofObservation, observeEvery, 30*time.Second)
		if !w.ledger.anyInFlight() {
			pause = time.Minute
		}
		l.at(max(pause, l.slurm.Next().Sub(l.clock())), l.observe)
	})
}

// readTurnEvery is the time from one turn of reading records to the next.
const readTurnEvery = 30 * time.Second

// read makes the bridge read records in turn.
func (l *life) read() {
	l.readTurn()
	l.at(readTurnEvery, l.read)
}

// readTurn makes the bridge read records once.
func (l *life) readTurn() {
	if l.w.ledger.anyInFlight() {
		l.bridge.ReadTurn(l.clock())
		l.wake()
	}
}

// measure makes the bridge measure the disk every 20 s.
func (l *life) measure() {
	if l.bridge.Measure(l.w.ctx, l.clock()) == nil {
		l.wake()
	}
	l.at(20*time.Second, l.measure)
}

// listen reads the doorbell.
func (l *life) listen() {
	if l.dead || !l.w.ledger.anyInFlight() {
		return
	}
	_ = l.bridge.Listen(l.clock()) // it does not fail here
	l.wake()
}

// narrate logs a decision.
func (l *life) narrate(d plan.Decision) {
	if d.Row.Phase == d.Next.Phase && d.Row.Reason == d.Next.Reason && len(d.Effects) == 0 {
		return
	}
	kinds := ""
	for _, k := range d.Effects {
		kinds += " " + string(k)
	}
	l.w.logf("decided", "%s.%d %s: %s →%s", shortID(d.Next.Bundle), d.Next.Attempt.Number, d.Next.Phase, d.Next.Reason, kinds)
}
