package bridge

import (
	"context"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// Enter gives an effect a place among those of its kind, and calls begin once it has one, which may be
// before Enter returns. begin must not block. The caller calls leave when the effect has ended, or
// shall not begin any more. Enter itself waits only while it measures results, which it notes in the effect.
func (b *Bridge) Enter(ctx context.Context, e *plan.Effect, begin func()) (leave func()) {
	return b.places.enter(ctx, e, begin)
}

// Do does one effect that Step returned, and returns a function that reports the outcome. The
// caller calls tell once; from then on Step may want the same effect again. An effect that ctx
// cut short has no outcome, except for Submit's; its row is decided all the same, since it may
// still want the effect.
func (b *Bridge) Do(ctx context.Context, e plan.Effect) (tell func()) { return b.doer.do(ctx, e) }

// Observe asks Slurm for all of the user's jobs, and tells the rows in flight what the answer
// shows. It costs the same for any number of rows. Without an answer no row gets news.
func (b *Bridge) Observe(ctx context.Context, now time.Time) error { return b.slurm.observe(ctx, now) }

// AskSettings asks Slurm for its settings when that is due, and returns when it is due next. The
// bridge goes on with the settings that it knows if there is no answer.
func (b *Bridge) AskSettings(ctx context.Context, now, due time.Time) time.Time {
	return b.slurm.askSettings(ctx, now, due)
}

// AskLimits asks Slurm for the limits of its QOS and associations, and for their use, when that is due and its settings are
// known. The bridge works as well without an answer.
func (b *Bridge) AskLimits(ctx context.Context, now time.Time) { b.limits.askIfDue(ctx, now) }

// Listen reads the doorbell, unless no worker can have rung. Then it reads the records of each attempt
// whose worker rang. If it returns an error, the rows have the records that it could read all the same.
func (b *Bridge) Listen(now time.Time) error { return b.records.listen(now) }

// ReadTurn reads the records of some attempts on which a worker may be at work: first those that it has not
// read for the longest time, and none that it has read within ReadEvery.
func (b *Bridge) ReadTurn(now time.Time) { b.records.readTurn(now) }

// Measure measures the shared disk. When the result for new work changes, it tells the server
// and the rows without inputs. If the disk answers with an error nothing changes. A disk that does not
// answer takes no new work.
func (b *Bridge) Measure(ctx context.Context, now time.Time) error { return b.disk.measure(ctx, now) }

// WithdrawSecrets removes the files with values of secrets that no job needs any more.
func (b *Bridge) WithdrawSecrets() error { return b.secrets.withdraw() }

// FindMembers reads the lists of members of arrays and packs in Slurm that rows may take up.
func (b *Bridge) FindMembers() error { return b.members.find() }

// RemoveMembers removes the lists of members of submissions that no row in flight has any more.
func (b *Bridge) RemoveMembers(now time.Time) error { return b.members.remove(now) }

// Changes returns two channels of a queue. The first receives when a run has entered
// another state of CodaLab's, the second when something else is worth a check-in.
func (b *Bridge) Changes(q plan.Queue) (urgent, other <-chan struct{}) {
	s := b.board.reports.changes(q.Name)
	return s.urgent, s.other
}

// CheckIn makes the next check-in of a queue, and returns its number. The caller
// passes the number to NoteAnswer or NoteUnanswered, once.
func (b *Bridge) CheckIn(q plan.Queue) (codalab.CheckIn, int64) { return b.queueWorkers.checkIn(q) }

// NoteAnswer notes the answer to a check-in: the server has applied its reports, and its messages
// are news. From now on no check-in reports a run that one of the messages acknowledges.
func (b *Bridge) NoteAnswer(q plan.Queue, number int64, messages []codalab.Message) {
	b.queueWorkers.noteAnswer(q, number, messages)
}

// NoteUnanswered notes that a check-in got no answer but an error. The server may have applied its
// reports, or may do so later, unless it refused the check-in as too large. NoteUnanswered reports
// whether it did and the next check-in is smaller.
func (b *Bridge) NoteUnanswered(q plan.Queue, number int64, err error) (smaller bool) {
	return b.queueWorkers.noteUnanswered(q, number, err)
}

// Prove asks the server whether it has applied reports for which newer reports of a queue's
// runs wait. It reports whether some are left to ask for.
func (b *Bridge) Prove(ctx context.Context, q plan.Queue) (left bool) {
	return b.queueWorkers.prove(ctx, q)
}

// Observed reports whether Slurm has been seen as a whole since the start. It is safe for concurrent use, as
// are the methods below.
func (b *Bridge) Observed() bool { return b.contact.observed.Load() }

// Condition returns the present condition.
func (b *Bridge) Condition() Condition {
	return b.condition.now(b.board.view.open(), b.Queues())
}

// Answers returns the time of the server's last answer to a check-in, for each queue that has one.
func (b *Bridge) Answers() map[string]time.Time { return b.condition.lastAnswers() }

// Rows returns the rows as they were last decided, in no order, without those that rest; nil before
// Open has read them. Nobody changes them.
func (b *Bridge) Rows() []*plan.Row { return b.board.view.all() }

// Resting returns how many rows of each queue rest; Rows returns the others.
func (b *Bridge) Resting() map[string]int { return b.board.view.countResting() }
