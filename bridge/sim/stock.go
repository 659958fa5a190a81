package sim

import (
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Times of CodaLab's own server (codalab/rest/workers.py: checkin;
// codalab/server/bundle_manager.py).
const (
	holdFor        = 5 * time.Second
	workerTimeout  = time.Minute
	startingLimit  = 5 * time.Minute
	killTimeout    = time.Minute
	managerPause   = 500 * time.Millisecond
	managerLonger  = time.Second
	finishingDelay = 100 * time.Millisecond
)

// stock is the state of one worker in CodaLab's own server.
type stock struct {
	// listener is the check-in that gets the next message: always the newest.
	listener *listener
	// lastCheckIn is the time of the worker's last check-in. closed is set if that asked for no bundles.
	lastCheckIn time.Duration
	closed      bool
}

// listener is a held check-in. answer is called once.
type listener struct {
	answer   func([]codalab.Message, error)
	answered bool
}

func (l *listener) reply(messages ...codalab.Message) {
	if !l.answered {
		l.answered = true
		l.answer(messages, nil)
	}
}

// holdCheckIn handles a check-in as CodaLab's own server does: it applies every report, in any state of the
// bundle, and then waits for one message. An older check-in that still waits gets none.
func (s *server) holdCheckIn(in *checkIn, answer func([]codalab.Message, error)) {
	of := s.stock[in.Tag]
	of.lastCheckIn, of.closed = s.w.now, in.ExitAfterNumRuns <= 0
	for i := range in.Reports {
		s.apply(&in.Reports[i], in.of[i])
	}
	l := &listener{answer: answer}
	of.listener = l
	s.w.at(holdFor, func() {
		if of.listener == l {
			of.listener = nil
		}
		l.reply()
	})
}

// apply applies a report about the bundle with this command (codalab/model/bundle_model.py: bundle_checkin,
// transition_bundle_running, transition_bundle_finalizing). A report that comes after the acknowledgement
// brings the bundle back.
func (s *server) apply(report *codalab.RunReport, command string) {
	b := s.bundleByID(report.UUID)
	if b == nil {
		return
	}
	if command != b.command {
		b.forgiven = true // the report is of an earlier bundle: see docs/contributors/reliability.md, I9, "Not promised"
	}
	if b.state == codalab.StateWorkerOffline {
		if b.assigned {
			return // an IntegrityError, which the server only logs
		}
		b.assigned = true
	}
	s.enter(b, report.State)
	b.status, b.remote = report.RunStatus, report.Remote
	if report.State == codalab.StateFinalizing {
		b.exit, b.failure = report.ExitCode, ""
		if report.FailureMessage != nil {
			b.failure = *report.FailureMessage
		}
	}
}

// send gives a message to a bundle's worker; false if no check-in waits for one.
func (s *server) send(b *bundle, m codalab.Message) bool {
	of := s.stock[b.wants.queue]
	l := of.listener
	if l == nil || s.isDown() {
		return false
	}
	of.listener = nil
	l.reply(m)
	return true
}

// manage is one pass of the bundle manager, and schedules the next one
// (codalab/server/bundle_manager.py: _schedule_run_bundles).
func (s *server) manage() {
	s.w.at(s.w.dice.duration(ofServer, managerPause, managerLonger), s.manage)
	if s.isDown() {
		return
	}
	for _, b := range s.bundles {
		if s.w.now-s.stock[b.wants.queue].lastCheckIn > workerTimeout { // _cleanup_dead_workers
			b.assigned = false
		}
	}
	for _, b := range s.bundles {
		s.manageOne(b)
	}
}

func (s *server) manageOne(b *bundle) {
	switch b.state {
	case codalab.StateStarting:
		if !b.assigned || s.w.now-b.lastReport > startingLimit {
			b.assigned = false
			s.enter(b, codalab.StateStaged)
		}
	case codalab.StatePreparing, codalab.StateRunning:
		if !b.assigned || s.w.now-b.lastReport > workerTimeout {
			s.w.checkReported(b)
			b.assigned = false
			s.enter(b, codalab.StateWorkerOffline)
		}
	case codalab.StateFinalizing:
		s.acknowledge(b)
	case codalab.StateStaged:
		if of := s.stock[b.wants.queue]; of.listener != nil && !of.closed {
			s.enter(b, codalab.StateStarting)
			b.assigned = true
			s.send(b, offerOf(b))
		}
	default: // the manager leaves the others alone
	}
	if b.killed && !b.killSent && b.assigned && b.state.OnWorker() {
		b.killSent = s.send(b, codalab.Message{Type: codalab.MessageKill, UUID: b.uuid}) || s.w.now-b.killedAt > killTimeout
	}
}

// acknowledge ends a bundle: the server tells the worker first, and then changes the state
// (_acknowledge_recently_finished_bundles).
func (s *server) acknowledge(b *bundle) {
	if !b.assigned {
		s.enter(b, codalab.StateWorkerOffline)
		return
	}
	if !s.send(b, codalab.Message{Type: codalab.MessageMarkFinalized, UUID: b.uuid}) {
		return
	}
	uuid := b.uuid
	s.w.at(s.w.dice.duration(ofServer, time.Millisecond, finishingDelay), func() {
		if b := s.bundleByID(uuid); b != nil && b.state == codalab.StateFinalizing {
			s.conclude(b)
		}
	})
}

// mayBreakOff lets an upload of a bundle fail at the server, at once or after another one has
// succeeded. CodaLab's own server then discards the contents, and makes the bundle failed, whatever its
// state (codalab/rest/bundles.py: _update_bundle_contents_blob).
func (s *server) mayBreakOff(b *bundle) {
	if b == nil || s.repeats || s.w.dice.below(ofServer, 2) == 0 {
		return
	}
	uuid, command := b.uuid, b.command
	s.w.at(s.w.dice.duration(ofServer, 0, 20*time.Second), func() {
		if b := s.bundleByID(uuid); b != nil {
			b.forgiven = b.forgiven || b.command != command // that server knows the UUID only
			b.upload, b.lost = nil, "Upload failed: connection reset"
			s.enter(b, codalab.StateFailed)
		}
	})
}

// takesResults returns nil if the server accepts results. Package client asks that before an upload
// (checkBeforeUpload).
func (s *server) takesResults(b *bundle) error {
	switch {
	case s.repeats:
	case b.lost != "" && b.state.Final():
		return errUnreachable
	case b.state.Final():
		return &codalab.Error{Status: http.StatusForbidden, Message: "Contents cannot be modified, bundle already finalized."}
	default:
		b.lost = ""
	}
	return nil
}

// conclude gives a bundle its last state (transition_bundle_finished). The server may not see the exit code
// yet: increment_user_time_used commits bundle_checkin's transaction before it is written.
func (s *server) conclude(b *bundle) {
	b.assigned = false
	switch failed := b.failure != "" || b.exit != nil && *b.exit != 0; {
	case failed && b.lost == "" && s.w.fault(EndMisread):
		s.enter(b, codalab.StateReady)
	case strings.Contains(b.failure, codalab.KillRequested):
		s.enter(b, codalab.StateKilled)
	case failed || b.lost != "":
		s.enter(b, codalab.StateFailed)
	default:
		s.enter(b, codalab.StateReady)
	}
	s.w.checkResult(b)
}
