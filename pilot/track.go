package pilot

import (
	"context"
	"log/slog"
	"time"
)

// tracked is a pilot that has not ended.
type tracked struct {
	Pilot
	// reached is set once the server knows it, and heard is then the last Unix time at which it has checked in.
	reached bool
	heard   int64
	// again is set from the time at which the batch system has lost the node of a pilot that ran, and starts it again, until
	// the server knows it.
	again bool
	// uncertain is the time until which it counts although the backend does not show it.
	uncertain time.Time
	// troubled is the time at which its trouble began; zero without one.
	troubled time.Time
	// stopped is set once the manager has ended it because of its trouble.
	stopped bool
}

// askBackend asks the backend for its pilots.
func (m *Manager) askBackend(ctx context.Context, now time.Time) error {
	pilots, err := m.Backend.Pilots(ctx)
	if err := m.backend.note(m.Now(), err); err != nil {
		return err
	}
	before, first := m.answeredAt, m.answeredAt.IsZero()
	m.answeredAt = now
	if s, ok := m.Backend.(Sharer); ok {
		pending, active := s.Others()
		m.others, m.othersPending = pending+active, pending
	}
	shown := map[string]bool{}
	failed := false
	for _, p := range pilots {
		shown[p.Name] = true
		t := m.tracked[p.Name]
		switch {
		case p.Phase == Ended && t != nil:
			failed = m.ended(ctx, t, p) || failed
		case p.Phase == Ended:
		case t == nil:
			m.found(ctx, now, p, first)
		default:
			m.watchLoss(ctx, t, p)
			switch {
			case t.startsAgain(p):
				t.again = true
			case p.Phase != Pending && p.Phase != Active:
				t.again = false
			}
			t.Pilot, t.uncertain = p, time.Time{}
			m.watchTrouble(ctx, now, t)
		}
	}
	for name, t := range m.tracked {
		if !shown[name] && !now.Before(t.uncertain) {
			delete(m.tracked, name)
			m.tokens.unseen(name, now)
			m.noteEnd(t, EndUnlisted)
			m.Log.InfoContext(ctx, "the batch system no longer lists the worker", slog.String("worker", WorkerID(name)), jobAttr(t.Job))
		}
	}
	m.noteRan(before, now)
	if failed {
		m.backOff(now, time.Second, longestBackOff)
	}
	m.tidy(ctx, now, pilots)
	return nil
}

// startsAgain reports whether the batch system starts a pilot again that has run. The answer of the batch system is younger
// than the server's. The run may have been too short for the answers of the batch system to show it.
func (t *tracked) startsAgain(p Pilot) bool {
	switch {
	case !t.reached:
		return false
	case p.Phase == Active && t.Phase == Active:
		return p.Since.After(t.Since)
	case p.Phase == Active:
		return t.heard < p.Since.Unix()
	}
	return p.Phase == Pending
}

// tidy ends the tokens of pilots that have ended, and then lets the backend remove the rest of them.
func (m *Manager) tidy(ctx context.Context, now time.Time, pilots []Pilot) {
	err := m.tokens.settle(ctx, now, pilots)
	if err == nil {
		err = m.Backend.Tidy(ctx, m.tokens.issue)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	m.logChange(ctx, "tidy", text)
}

// found notes a pilot that this process has not started. After the first answer of the backend there are none,
// unless a second manager has the same name.
func (m *Manager) found(ctx context.Context, now time.Time, p Pilot, first bool) {
	t := &tracked{Pilot: p}
	m.tracked[p.Name] = t
	about := []slog.Attr{slog.String("worker", WorkerID(p.Name)), jobAttr(p.Job), slog.String("state", p.State)}
	if first {
		m.Log.LogAttrs(ctx, slog.LevelInfo, "found a worker", about...)
	} else {
		m.Log.LogAttrs(ctx, slog.LevelWarn, "found a worker that this manager has not started; if a second manager has the same name, each needs one of its own", about...)
	}
	if w, ok := m.workers[WorkerID(p.Name)]; ok {
		m.reached(ctx, t, w)
	}
	m.watchTrouble(ctx, now, t)
}

// jobAttr returns the attribute of a pilot's job in the log. The pod of a pilot in Kubernetes has no other name.
func jobAttr(job string) slog.Attr {
	if job == "" {
		return slog.Attr{} // slog leaves it out
	}
	return slog.String("job", job)
}

// watchLoss logs that the batch system has lost the node of a pilot, or has it again.
func (m *Manager) watchLoss(ctx context.Context, t *tracked, p Pilot) {
	about := []slog.Attr{slog.String("worker", WorkerID(p.Name)), jobAttr(p.Job), slog.String("node", p.Node)}
	switch {
	case p.Phase == Lost && t.Phase != Lost:
		m.Log.LogAttrs(ctx, slog.LevelWarn, "worker's node is lost", append(about, slog.String("reason", p.Reason))...)
	case p.Phase != Lost && t.Phase == Lost:
		m.Log.LogAttrs(ctx, slog.LevelInfo, "worker's node is back", about...)
	}
}

// watchTrouble logs the trouble of a pending pilot, and ends the pilot when the trouble has lasted for its patience.
func (m *Manager) watchTrouble(ctx context.Context, now time.Time, t *tracked) {
	about := []slog.Attr{slog.String("worker", WorkerID(t.Name)), jobAttr(t.Job), slog.String("reason", t.Trouble)}
	switch {
	case t.Trouble == "" || t.Phase != Pending:
		t.troubled = time.Time{}
	case t.stopped:
	case t.troubled.IsZero():
		t.troubled = now
		m.Log.LogAttrs(ctx, slog.LevelWarn, "worker does not start", about...)
	case now.Sub(t.troubled) >= t.Patience:
		if err := m.Backend.Stop(ctx, t.Pilot); err != nil {
			m.Log.LogAttrs(ctx, slog.LevelWarn, "cannot end a worker that does not start", append(about, slog.Any("error", err))...)
			return
		}
		t.stopped = true
		m.ends[EndStuck]++
		m.failed++
		m.backOff(now, time.Minute, longestStuck)
		m.Log.LogAttrs(ctx, slog.LevelWarn, "ended a worker that does not start", append(about, slog.Time("again", m.blocked))...)
	}
}

// ended notes the end of a pilot, and reports whether it has failed: it has if it never reached the server.
func (m *Manager) ended(ctx context.Context, t *tracked, p Pilot) (failed bool) {
	delete(m.tracked, p.Name)
	about := []slog.Attr{slog.String("worker", WorkerID(p.Name)), jobAttr(p.Job), slog.String("state", p.State), slog.String("reason", p.Reason)}
	if p.Cancelled {
		m.noteEnd(t, EndCancelled)
	} else {
		m.noteEnd(t, EndNeverReached)
	}
	if t.reached || t.stopped || p.Cancelled {
		m.Log.LogAttrs(ctx, slog.LevelInfo, "worker has ended", about...)
		return false
	}
	m.failed++
	m.Log.LogAttrs(ctx, slog.LevelWarn, "worker has ended and never reached the server", append(about, slog.String("log", m.lastOutput(ctx, p)))...)
	return true
}

// noteEnd counts the end of a pilot. unreached is the result if the pilot has not reached the server. An end that the
// manager itself has caused is counted already.
func (m *Manager) noteEnd(t *tracked, unreached EndResult) {
	switch {
	case t.stopped:
	case t.reached:
		m.ends[EndWorked]++
	default:
		m.ends[unreached]++
	}
}

// lastOutput returns the last lines of a pilot's log, or the reason for which there are none.
func (m *Manager) lastOutput(ctx context.Context, p Pilot) string {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	var last lastLines
	if err := m.Backend.WriteLog(ctx, &last, p, false); err != nil {
		return err.Error()
	}
	return last.String()
}
