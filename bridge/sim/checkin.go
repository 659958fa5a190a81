package sim

import (
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// queueWorker is the worker as which the server knows a queue.
type queueWorker struct {
	*life
	queue plan.Queue
	// checking is set while a check-in is scheduled; unanswered counts the check-ins without an answer.
	checking   bool
	unanswered int
}

func (l *life) queueWorker(queue string) *queueWorker {
	return l.queueWorkers[slices.IndexFunc(l.queueWorkers, func(i *queueWorker) bool { return i.queue.Name == queue })]
}

// checkInRegularly checks in once in each holdFor.
func (i *queueWorker) checkInRegularly() {
	i.checkInSoon()
	i.at(holdFor, i.checkInRegularly)
}

// mostUnanswered bounds the check-ins that wait for an answer.
const mostUnanswered = 4

// checkInSoon schedules a check-in, unless one is scheduled or too many wait for an answer.
func (i *queueWorker) checkInSoon() {
	if i.dead || i.checking || i.unanswered >= mostUnanswered {
		return
	}
	i.checking = true
	i.at(i.w.dice.duration(ofCheckIns, time.Millisecond, 500*time.Millisecond), func() {
		i.checking = false
		i.checkIn()
	})
}

// checkIn sends a check-in, which may overtake an earlier one.
func (i *queueWorker) checkIn() {
	w := i.w
	if i.crashes() {
		return
	}
	request, number := i.bridge.CheckIn(i.queue)
	in := w.send(request)
	w.checkReports(request)
	i.unanswered++
	defer i.checkInIfChanged() // this one may have had no room for all reports
	const noticed = 10 * time.Second
	if w.fault(CheckInLost) {
		w.hamper(in, noticed)
		i.at(noticed, func() { i.checkInFailed(number, errUnreachable) })
		return
	}
	if w.fault(CheckInLate) { // the connection breaks; the server has the request
		w.hamper(in, noticed)
		i.at(noticed, func() { i.checkInFailed(number, errUnreachable) })
		w.at(w.dice.faultDuration(CheckInLate, 10*time.Second, time.Minute), func() {
			w.server.checkIn(in, func([]codalab.Message, error) {})
		})
		return
	}
	w.at(w.dice.duration(ofCheckIns, 5*time.Millisecond, 500*time.Millisecond), func() {
		w.server.checkIn(in, func(messages []codalab.Message, err error) { i.bringAnswer(in, number, messages, err) })
	})
	i.prove()
}

// prove schedules a call of Prove.
func (i *queueWorker) prove() {
	i.at(i.w.dice.duration(ofCheckIns, 5*time.Millisecond, time.Second), func() {
		_ = i.bridge.Prove(i.w.ctx, i.queue) // the next check-in proves again
		i.checkInIfChanged()
	})
}

// checkInIfChanged checks in if there is something to report.
func (i *queueWorker) checkInIfChanged() {
	urgent, other := i.bridge.Changes(i.queue)
	for _, changed := range []<-chan struct{}{urgent, other} {
		select {
		case <-changed:
			i.checkInSoon()
		default:
		}
	}
}

// bringAnswer delivers a check-in's answer to the bridge, or loses it.
func (i *queueWorker) bringAnswer(in *checkIn, number int64, messages []codalab.Message, err error) {
	w := i.w
	after := w.dice.duration(ofCheckIns, 5*time.Millisecond, 500*time.Millisecond)
	if w.fault(AnswerLate) {
		after = w.dice.faultDuration(AnswerLate, time.Second, 20*time.Second)
		w.delay(in.Tag, after)
		if err != nil { // the server has taken none of the reports, and the bridge does not know it
			w.hamper(in, after)
		}
	}
	if err == nil && w.fault(AnswerLost) {
		err = errUnreachable
		if !w.server.repeats {
			w.delay(in.Tag, holdFor) // of the check-in that repeats the report
		}
	}
	twice := w.fault(AnswerDoubled)
	for _, m := range messages {
		if m.Type == codalab.MessageRun && (twice || after > time.Second) {
			w.offeredLate[m.Bundle.Command] = true
		}
	}
	i.at(after, func() {
		if err != nil {
			i.checkInFailed(number, err)
			return
		}
		i.answered(number, messages)
		if twice {
			i.at(w.dice.faultDuration(AnswerDoubled, 0, time.Minute), func() { i.deliver(number, messages) })
		}
	})
}

// answered passes an answer to the bridge. At least one check-in always waits.
func (i *queueWorker) answered(number int64, messages []codalab.Message) {
	i.unanswered--
	i.deliver(number, messages)
	if !i.w.server.repeats || i.unanswered > 0 {
		i.checkInSoon()
	}
}

func (i *queueWorker) checkInFailed(number int64, err error) {
	i.unanswered--
	smaller := i.bridge.NoteUnanswered(i.queue, number, err)
	i.wake()
	if smaller || !i.w.server.repeats {
		i.checkInSoon()
	}
}

func (i *queueWorker) deliver(number int64, messages []codalab.Message) {
	i.bridge.NoteAnswer(i.queue, number, messages)
	if len(messages) > 0 {
		i.wake()
	}
}
