package pilot

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// State is the state of a manager after a pass. Its counts begin with the manager.
type State struct {
	// At is the time of the pass's end, and Took its duration.
	At   time.Time
	Took time.Duration
	// Workers are the manager's workers by their state, and Others the number of the workers of a Sharer.
	Workers map[WorkerState]int
	Others  int
	// Waiting are the staged bundles that wait for a worker of the manager, by the tag that they ask for: that of the
	// workers, empty for none, or OtherTag. LeftOut are those that none can take, by what it lacks.
	Waiting map[string]int
	LeftOut map[Lack]int
	// WaitingSince is the time at which the manager first saw the bundle that has waited longest; zero if none waits.
	WaitingSince time.Time
	// Server and Backend tell of the questions to either.
	Server, Backend Contact
	// Obstacles are those that keep workers from being started, or bundles from workers.
	Obstacles map[Obstacle]bool
	// Starts are the starts of workers by their result, and Ends the ends of workers by theirs.
	Starts map[StartResult]int
	Ends   map[EndResult]int
	// Ran is the time for which the batch system has run workers, all of them together, as the manager has seen it.
	Ran time.Duration
}

// WorkerState is the state of a worker, by the answers of the batch system and the server together.
type WorkerState string

// The states of workers.
const (
	WorkerPending  WorkerState = "pending"  // the batch system has not started it
	WorkerStuck    WorkerState = "stuck"    // pending, and it cannot start by itself
	WorkerStarting WorkerState = "starting" // it runs, and has not reached the server
	WorkerIdle     WorkerState = "idle"     // it has no run
	WorkerBusy     WorkerState = "busy"     // it has runs
	WorkerSilent   WorkerState = "silent"   // it runs, and the server no longer hears it
	WorkerEnding   WorkerState = "ending"   // it takes no more runs
	WorkerLost     WorkerState = "lost"     // the batch system does not reach its node
)

// WorkerStates returns all states of workers.
func WorkerStates() []WorkerState {
	return []WorkerState{WorkerPending, WorkerStuck, WorkerStarting, WorkerIdle, WorkerBusy, WorkerSilent, WorkerEnding, WorkerLost}
}

// StartResult is the result of a start of a worker.
type StartResult string

// The results of starts.
const (
	StartAccepted   StartResult = "accepted"
	StartRefused    StartResult = "refused"
	StartRefusedNow StartResult = "refused_for_now" // the same start may be accepted later
	StartUnanswered StartResult = "unanswered"      // the worker may start
)

// StartResults returns all results of starts.
func StartResults() []StartResult {
	return []StartResult{StartAccepted, StartRefused, StartRefusedNow, StartUnanswered}
}

// EndResult is the result of a worker's life.
type EndResult string

// The results of workers' lives.
const (
	EndWorked       EndResult = "worked"        // it has reached the server
	EndCancelled    EndResult = "cancelled"     // a person ended it before it reached the server
	EndNeverReached EndResult = "never_reached" // it ended by itself before that
	EndStuck        EndResult = "stuck"         // the manager ended it, because it could not start
	EndUnlisted     EndResult = "unlisted"      // the batch system forgot it before it reached the server
)

// EndResults returns all results of workers' lives.
func EndResults() []EndResult {
	return []EndResult{EndWorked, EndCancelled, EndNeverReached, EndStuck, EndUnlisted}
}

// Obstacle is a kind of obstacle.
type Obstacle string

// The kinds of obstacles.
const (
	ServerUnanswered  Obstacle = "server_unanswered"
	BackendUnanswered Obstacle = "backend_unanswered"
	StartsRefused     Obstacle = "starts_refused" // workers are needed, and the batch system refuses them
	StuckWorker       Obstacle = "stuck_worker"
	MostWorkers       Obstacle = "max_workers" // more workers are needed than there may be
	NameTaken         Obstacle = "name_taken"  // another manager has this one's name
	TidyFailed        Obstacle = "tidy_failed"
)

// Obstacles returns all kinds of obstacles.
func Obstacles() []Obstacle {
	return []Obstacle{ServerUnanswered, BackendUnanswered, StartsRefused, StuckWorker, MostWorkers, NameTaken, TidyFailed}
}

// OtherTag stands for each tag that is not the workers': users choose tags, and so there is no bound on their number.
const OtherTag = "other"

// Contact tells of the questions to a server or a batch system.
type Contact struct {
	// Answered is the time of the last answer; zero before the first. Failures counts the questions without one.
	Answered time.Time
	Failures int
	failing  bool
}

// note notes a question's answer or its failure, which it returns.
func (c *Contact) note(now time.Time, err error) error {
	if err != nil {
		c.Failures++
		c.failing = true
		return err
	}
	c.Answered, c.failing = now, false
	return nil
}

// state returns the manager's state after a pass.
func (m *Manager) state(began, now time.Time) State {
	s := State{
		At: now, Took: now.Sub(began), Workers: map[WorkerState]int{}, Others: m.others,
		Waiting: maps.Clone(m.waiting), LeftOut: maps.Clone(m.leftOut), Server: m.server, Backend: m.backend,
		Starts: maps.Clone(m.starts), Ends: maps.Clone(m.ends), Ran: m.ran,
	}
	for _, t := range m.tracked {
		s.Workers[m.stateOf(t)]++
	}
	for _, since := range m.waitingSince {
		if s.WaitingSince.IsZero() || since.Before(s.WaitingSince) {
			s.WaitingSince = since
		}
	}
	s.Obstacles = map[Obstacle]bool{
		ServerUnanswered:  m.server.failing,
		BackendUnanswered: m.backend.failing,
		StartsRefused:     m.startError != "" && m.last.Start > 0,
		StuckWorker:       s.Workers[WorkerStuck] > 0,
		MostWorkers:       m.last.AtMax,
		NameTaken:         m.Presence != nil && m.Presence.isRefused(),
		TidyFailed:        m.logged["tidy"] != "",
	}
	return s
}

// stateOf returns the state of a pilot's worker.
func (m *Manager) stateOf(t *tracked) WorkerState {
	w, heard := m.workers[WorkerID(t.Name)]
	switch {
	case m.isLost(t):
		return WorkerLost
	case t.stopped:
		return WorkerEnding
	case t.Phase == Pending && t.Trouble != "":
		return WorkerStuck
	case t.Phase == Pending:
		return WorkerPending
	case heard && w.IsTerminating:
		return WorkerEnding
	case heard && len(w.RunUUIDs) > 0:
		return WorkerBusy
	case heard:
		return WorkerIdle
	case t.reached:
		return WorkerSilent
	}
	return WorkerStarting
}

// noteWaiting notes the staged bundles that wait for a worker, and those that none can take.
func (m *Manager) noteWaiting(now time.Time, fit []Bundle, lacks []Lack) {
	m.waiting, m.leftOut = map[string]int{}, map[Lack]int{}
	before := m.waitingSince
	m.waitingSince = map[string]time.Time{}
	for _, b := range fit {
		m.waiting[m.Shape.tagOf(b)]++
		since, known := before[b.UUID]
		if !known {
			since = now
		}
		m.waitingSince[b.UUID] = since
	}
	for _, lack := range lacks {
		m.leftOut[lack]++
	}
}

// tagOf returns the tag that a bundle asks for: that of the shape, none, or OtherTag.
func (s Shape) tagOf(b Bundle) string {
	if tag := b.tag(); slices.Contains([]string{"", s.Tag}, tag) {
		return tag
	}
	return OtherTag
}

// tag returns the tag that a bundle asks for; empty for none.
func (b Bundle) tag() string { return strings.TrimPrefix(strings.TrimSpace(b.Queue), "tag=") }

// noteRan adds the time for which the batch system has run the workers since its last answer. It is 0 for the first
// answer of the manager's life.
func (m *Manager) noteRan(before, now time.Time) {
	if before.IsZero() {
		return
	}
	for _, t := range m.tracked {
		if t.Phase != Active {
			continue
		}
		from := before
		if t.Since.After(from) {
			from = t.Since
		}
		m.ran += max(now.Sub(from), 0)
	}
}
