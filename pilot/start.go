package pilot

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
)

// backOff delays new pilots, and longer after each failure in a row: by shortest at first, at most by longest. It
// shortens no delay.
func (m *Manager) backOff(now time.Time, shortest, longest time.Duration) {
	m.streak++
	until := now.Add(backoff.Spread(backoff.After(m.streak, shortest, longest), nil))
	if until.After(m.blocked) {
		m.blocked = until
	}
}

// start starts n pilots. After a failure it starts no more for a while.
func (m *Manager) start(ctx context.Context, now time.Time, n int) error {
	for range n {
		name := m.Backend.NewName()
		p, err := m.startPilot(ctx, name)
		m.notStarted = err
		switch {
		case ctx.Err() != nil && err != nil:
			return ctx.Err()
		case errors.Is(err, ErrNoLogin):
			m.starts[StartRefused]++
			return err
		case uncertain(err):
			m.starts[StartUnanswered]++
			m.tracked[name] = &tracked{Pilot: Pilot{Name: name, Phase: Pending, Since: now}, uncertain: now.Add(uncertainFor)}
			m.backOff(now, time.Second, longestBackOff)
			m.Log.WarnContext(ctx, "worker may have been started", slog.String("worker", WorkerID(name)), slog.Any("error", err))
			return nil
		case err != nil:
			if transient(err) {
				m.starts[StartRefusedNow]++
			} else {
				m.starts[StartRefused]++
				m.failed++
			}
			m.backOff(now, time.Second, longestBackOff)
			m.startError = err.Error()
			m.Log.WarnContext(ctx, "cannot start a worker", slog.Any("error", err), slog.Time("again", m.blocked))
			return nil
		}
		m.starts[StartAccepted]++
		m.tracked[name], m.started, m.startError = &tracked{Pilot: p}, now, ""
		m.Log.InfoContext(ctx, "started a worker", slog.String("worker", WorkerID(name)), jobAttr(p.Job))
	}
	return nil
}

// startPilot starts a pilot with a token of its own. If the pilot certainly does not start, its token ends. If ctx has
// ended, that is not certain.
func (m *Manager) startPilot(ctx context.Context, name string) (Pilot, error) {
	token, err := m.tokens.issue(ctx, name)
	if err != nil {
		return Pilot{}, err
	}
	p, err := m.Backend.Start(ctx, name, token)
	if err != nil && !uncertain(err) && ctx.Err() == nil && token != "" {
		m.tokens.discard(ctx, name)
	}
	return p, err
}

func uncertain(err error) bool {
	var doubt Uncertain
	return errors.As(err, &doubt) && doubt.Uncertain()
}
