package sim

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// server is a CodaLab server with a worker for each queue: cl-server if repeats is set, else
// CodaLab's own (stock.go).
type server struct {
	w *world
	// repeats is set if the server repeats each message until it has had its effect.
	repeats bool
	// mostRuns bounds the runs that a check-in may report; 0 for any number.
	mostRuns  int
	stock     map[string]*stock // by queue
	downUntil time.Duration
	bundles   []*bundle
	made      int
	alike     int // counts the bundles that createAlike has made
	backup    []bundle
}

// bundle is a run bundle.
type bundle struct {
	uuid string
	// command is different for each bundle, also for those with one UUID.
	command    string
	created    time.Duration
	wants      wants
	state      codalab.State
	since      time.Duration // of the state
	lastReport time.Duration // the time of the worker's last report of it
	// hampered is the time until which a fault keeps reports of it from the server.
	hampered time.Duration
	// delayed is the time by which faults have delayed the next report since lastReport (delay).
	delayed time.Duration
	// killed is set when its owner asked to kill it, killSent when the message was sent.
	killed, killSent bool
	killedAt         time.Duration
	// assigned is the bundle's row in the table worker_run of CodaLab's own
	// server.
	assigned bool
	// lost is the reason for which that server has discarded the results; empty while it has not.
	lost string
	// awaited is set if an earlier report has ended it while the bridge collects its results again, and these exceed the quota. The
	// bridge's next reports bring it back.
	awaited bool
	exit    *int
	failure string
	upload  *upload
	// held is set if the results have exceeded their owner's disk quota: they may stay on the shared disk.
	held bool
	// noRoom is set if that befell results that were collected again after their verdict, and of which the server had nothing any more.
	noRoom bool
	// status and remote are the run_status and the remote of the last claim or
	// report, started is the start_time of the last claim.
	status, remote string
	started        int64
	// misreported is set if the report of its end was about another bundle of its UUID.
	misreported bool
	// forgiven is set for a bundle that the ledger has lost, and for one that the server takes for an
	// earlier one of its UUID.
	forgiven bool
}

// wants is a bundle's request.
type wants struct {
	queue, owner string
	priority     int64
	cpus         int64
	resumes      int           // the number of times that it may be resumed
	long         bool          // its inputs and its results take minutes
	cached       bool          // its inputs are there already
	seconds      time.Duration // of its command
	code         int           // its exit status
	bad          bool          // Slurm refuses its request
}

// wantsOf returns the request of a row's bundle. An orphan job has none.
func (w *world) wantsOf(r *plan.Row) wants {
	if r.Run == nil {
		return wants{}
	}
	return w.wants[r.Run.Command]
}

// upload is a bundle's results at the server.
type upload struct {
	attempt  int
	complete bool
	missing  bool // its files were already removed
	// onlyOutput is set if it has the end of the output in the place of the results.
	onlyOutput bool
}

// bundleID gives all bundles the same digits in the part that a job's name contains, because clients choose
// UUIDs.
func bundleID(n int) string { return fmt.Sprintf("0x%012x%020x", 1, n+1) }

// shortID returns the part of a bundle's UUID that differs from other bundles'.
func shortID(uuid string) string { return uuid[32:34] }

// create makes a bundle.
func (s *server) create() {
	s.publish(s.newBundle(bundleID(s.made)))
}

// createSweep makes bundles of one owner that ask for the same. Some of them are killed later.
func (s *server) createSweep() {
	w := s.w
	queue, owner := w.pickQueue(), w.pickOwner()
	cached := w.dice.packs() && w.dice.below(ofJoins, 4) > 0
	for range 2 + w.dice.below(ofArrays, 9) {
		wants := wants{queue: queue, owner: owner, cpus: 1, cached: cached, seconds: w.dice.duration(ofArrays, 0, time.Minute)}
		if w.dice.below(ofArrays, 6) == 0 {
			wants.code = 3
		}
		if w.dice.packs() {
			wants = s.ofPack(wants)
		}
		b := s.add(bundleID(s.made), wants)
		if w.dice.below(ofArrays, 4) == 0 {
			w.at(w.dice.duration(ofArrays, 0, 3*time.Minute), func() { s.kill(b.uuid, b.command) })
		}
		if w.dice.packs() && w.dice.below(ofPacks, 4) == 0 {
			w.at(w.dice.duration(ofPacks, time.Minute, 10*time.Minute), func() { s.kill(b.uuid, b.command) })
		}
		s.publish(b)
	}
}

// createAlike makes bundles that may join a pack which has a place for them: the owner of a member goes on with the same work.
func (s *server) createAlike(member *attempt) {
	const most = 8
	w := s.w
	of, ok := w.wants[member.command]
	if !ok || w.now >= calm || s.alike >= most || w.dice.below(ofJoins, 2) == 0 {
		return
	}
	for range 1 + w.dice.below(ofJoins, 2) {
		s.alike++
		w.at(w.dice.duration(ofJoins, 0, 10*time.Second), func() {
			b := s.add(bundleID(s.made), s.ofPack(wants{queue: of.queue, owner: of.owner, cpus: 1, cached: true, seconds: w.dice.duration(ofJoins, 0, time.Minute)}))
			if w.dice.below(ofJoins, 4) == 0 {
				w.at(w.dice.duration(ofJoins, 0, 20*time.Second), func() { s.kill(b.uuid, b.command) })
			}
			s.publish(b)
		})
	}
}

// ofPack makes a bundle one for a pack: some take so long that the time of the pack is over before the turn of others, or longer than
// their own limit. Some may be resumed.
func (s *server) ofPack(of wants) wants {
	d := &s.w.dice
	switch d.below(ofPacks, 6) {
	case 0:
		of.seconds = d.duration(ofPacks, time.Minute, 8*time.Minute)
	case 1:
		of.seconds = d.duration(ofPacks, 8*time.Minute, 2*memberLimit)
	case 2:
		of.resumes = 1
	}
	return of
}

// publish stages a new bundle.
func (s *server) publish(b *bundle) {
	s.bundles = append(s.bundles, b)
	s.promptCheckIn(b.wants.queue)
}

// newBundle makes a bundle with a UUID and a random request. Its owner may kill it later.
func (s *server) newBundle(uuid string) *bundle {
	w := s.w
	wants := wants{queue: w.pickQueue(), owner: w.pickOwner(), priority: w.pickPriority(), cpus: 1, resumes: w.newResumes()}
	wants.long = w.crowd.long > 0 && w.dice.below(ofQueues, w.crowd.long) == 0
	wants.seconds = w.dice.duration(ofUsers, 0, time.Minute)
	switch w.dice.below(ofUsers, 12) {
	case 0:
		wants.seconds = w.dice.duration(ofUsers, time.Minute, 5*time.Minute)
	case 1:
		wants.seconds = time.Hour // until its limit
	case 2, 4:
		wants.code = 3
	case 3:
		wants.bad = w.dice.below(ofUsers, 3) == 0
	}
	b := s.add(uuid, wants)
	if w.dice.below(ofUsers, 3) == 0 {
		w.at(w.dice.duration(ofUsers, 0, 5*time.Minute), func() { s.kill(b.uuid, b.command) })
	}
	return b
}

// add makes a bundle with a UUID and a request.
func (s *server) add(uuid string, wants wants) *bundle {
	w := s.w
	s.made++
	b := &bundle{uuid: uuid, command: fmt.Sprintf("command %d", s.made), wants: wants, created: w.now, state: codalab.StateStaged, since: w.now}
	w.wants[b.command] = b.wants
	w.logf("user", "%s: %s, %+v", shortID(b.uuid), b.command, b.wants)
	return b
}

func (s *server) kill(uuid, command string) {
	b := s.bundleByID(uuid)
	if b == nil || b.command != command || b.state.Final() {
		return
	}
	s.w.logf("user", "kills %s", shortID(uuid))
	b.killed, b.killedAt = true, s.w.now
	s.w.killed[command] = true
	if !b.state.OnWorker() {
		s.enter(b, codalab.StateKilled)
		return
	}
	s.promptCheckIn(b.wants.queue)
}

func (s *server) bundleByID(uuid string) *bundle {
	for _, b := range s.bundles {
		if b.uuid == uuid {
			return b
		}
	}
	return nil
}

func (s *server) enter(b *bundle, state codalab.State) {
	if b.state != state {
		s.w.logf("server", "%s %s → %s", shortID(b.uuid), b.state, state)
	}
	b.state, b.since = state, s.w.now
	b.lastReport, b.delayed = s.w.now, 0
}

// promptCheckIn makes the bridge check in soon for a queue, like the end of a held check-in. It does nothing
// for CodaLab's own server, which answers the check-in that it holds.
func (s *server) promptCheckIn(queue string) {
	if !s.repeats {
		return
	}
	s.w.at(s.w.dice.duration(ofServer, 10*time.Millisecond, time.Second), func() {
		for _, l := range s.w.lives {
			l.queueWorker(queue).checkInSoon()
		}
	})
}

// isDown reports whether the server is down.
func (s *server) isDown() bool { return s.w.now < s.downUntil }

// settled reports whether all bundles have ended.
func (s *server) settled() bool {
	for _, b := range s.bundles {
		if !b.state.Final() && !b.forgiven {
			return false
		}
	}
	return true
}

// checkIn is a check-in that is under way. A report names a UUID only, which another bundle may have on
// arrival.
type checkIn struct {
	codalab.CheckIn

	of []string // the commands of the bundles of its runs
}

// send makes a check-in that is sent now.
func (w *world) send(in codalab.CheckIn) *checkIn {
	sent := &checkIn{CheckIn: in, of: make([]string, 0, len(in.Reports))}
	for i := range in.Reports {
		command := ""
		if row, ok := w.ledger.row(in.Reports[i].UUID); ok {
			command = row.Run.Command
		}
		sent.of = append(sent.of, command)
	}
	return sent
}

// checkIn applies a worker's reports and answers with messages, at once or later, or with an
// error.
func (s *server) checkIn(in *checkIn, answer func([]codalab.Message, error)) {
	switch {
	case s.isDown():
		answer(nil, errUnreachable)
	case s.mostRuns > 0 && len(in.Reports) > s.mostRuns:
		answer(nil, &codalab.Error{Status: http.StatusRequestEntityTooLarge, Message: "too large"})
	case s.repeats:
		answer(s.answerAtOnce(in), nil)
	default:
		s.holdCheckIn(in, answer)
	}
}

// answerAtOnce applies reports and returns all messages, as cl-server does.
func (s *server) answerAtOnce(in *checkIn) []codalab.Message {
	var messages []codalab.Message
	for i := range in.Reports {
		if m := s.report(&in.Reports[i], in.of[i]); m != nil {
			messages = append(messages, *m)
		}
	}
	for _, b := range s.bundles {
		if b.wants.queue != in.Tag {
			continue
		}
		s.passTime(b)
		switch {
		case b.state == codalab.StateStaged && in.ExitAfterNumRuns > 0:
			s.enter(b, codalab.StateStarting)
			messages = append(messages, offerOf(b))
		case b.killed && claimed(b) && b.state != codalab.StateFinalizing:
			messages = append(messages, codalab.Message{Type: codalab.MessageKill, UUID: b.uuid})
		}
	}
	return messages
}

func (b *bundle) createdAt() int64 { return epoch.Add(b.created).Unix() }

func (b *bundle) identity() codalab.Identity {
	return codalab.Identity{UUID: b.uuid, OwnerID: b.wants.owner, Created: b.createdAt(), Command: b.command}
}

func offerOf(b *bundle) codalab.Message {
	r := codalab.Resources{CPUs: b.wants.cpus, Memory: 1 << 30, ImageReference: "python:3", Tag: b.wants.queue}
	if b.wants.bad {
		r.CPUs, r.GPUs = 1, 8 // none in this partition
	}
	run := codalab.RunBundle{
		UUID: b.uuid, OwnerID: b.wants.owner, Command: b.command,
		Metadata: codalab.Metadata{"request_priority": b.wants.priority, "created": b.createdAt(), "tags": tagsOf(b.wants)},
	}
	return codalab.Message{Type: codalab.MessageRun, Bundle: &run, Resources: &r}
}

// passTime does the work of the server's manager.
func (s *server) passTime(b *bundle) {
	switch {
	case b.state == codalab.StateStarting && s.w.now-b.since > 30*time.Second:
		s.enter(b, codalab.StateStaged) // no worker claimed it
	case claimed(b) && b.state != codalab.StateWorkerOffline && s.w.now-b.lastReport > workerTimeout:
		s.w.checkReported(b)
		s.enter(b, codalab.StateWorkerOffline)
	case b.state == codalab.StateWorkerOffline && s.w.now-b.since > 3*time.Minute:
		s.enter(b, codalab.StateStaged)
	}
}

// claimed reports whether a worker has a bundle.
func claimed(b *bundle) bool { return b.state.OnWorker() && b.state != codalab.StateStarting }

// report applies a worker's report of a run. command is the command of the reported bundle.
func (s *server) report(report *codalab.RunReport, command string) *codalab.Message {
	b := s.bundleByID(report.UUID)
	ack := &codalab.Message{Type: codalab.MessageMarkFinalized, UUID: report.UUID}
	switch {
	case b == nil:
		return nil // codalab/rest/workers.py: unknown runs are passed over
	case b.state.Final():
		if report.State == codalab.StateFinalizing {
			return ack
		}
		return nil
	case !b.state.OnWorker() || b.state == codalab.StateStarting:
		return nil // not claimed
	}
	b.lastReport, b.delayed, b.status, b.remote = s.w.now, 0, report.RunStatus, report.Remote
	if report.State != codalab.StateFinalizing {
		s.enter(b, report.State)
		return nil
	}
	b.exit, b.failure, b.misreported = report.ExitCode, "", b.command != command
	if report.FailureMessage != nil {
		b.failure = *report.FailureMessage
	}
	s.finish(b)
	return ack
}

// finish ends a bundle according to its worker's report.
func (s *server) finish(b *bundle) {
	state := codalab.StateReady
	switch {
	case b.failure != "" && b.killed && strings.Contains(b.failure, codalab.KillRequested):
		state = codalab.StateKilled
	case b.failure != "" || b.exit != nil && *b.exit != 0:
		state = codalab.StateFailed
	}
	s.enter(b, state)
	s.w.checkResult(b)
}

// restage offers a bundle again that a worker has.
func (s *server) restage(b *bundle) {
	if b.state.OnWorker() {
		b.assigned = false
		s.enter(b, codalab.StateStaged)
		s.promptCheckIn(b.wants.queue)
	}
}

// bundleReturns deletes a bundle that no worker has, and makes another one with its UUID. The bridge may
// still have the first one.
func (s *server) bundleReturns() {
	w := s.w
	if len(s.bundles) == 0 {
		return
	}
	i := w.dice.below(ofMishaps, uint64(len(s.bundles)))
	old := s.bundles[i]
	if old.state.OnWorker() && old.state != codalab.StateWorkerOffline { // codalab/rest/bundles.py: delete_bundles
		return
	}
	s.bundles[i] = s.newBundle(old.uuid)
	w.killed[s.bundles[i].command] = w.killed[old.command] // a kill message names the UUID only, and may come late
	s.bundles[i].assigned = old.assigned                   // the table worker_run has the UUID only
	if _, ok := w.ledger.row(old.uuid); !ok {
		delete(w.disk.bundles, w.disk.keyOf(old.uuid))
	}
	s.promptCheckIn(s.bundles[i].wants.queue)
}
