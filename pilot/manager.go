package pilot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const (
	// bootPatience is the time for which a running pilot counts as coming although the server does not
	// know it yet.
	bootPatience = 5 * time.Minute
	// uncertainFor is the time for which a pilot counts as pending that the backend may have started and
	// does not show.
	uncertainFor = 2 * time.Minute
	// longestBackOff is the longest pause without new pilots after failures, longestStuck the longest one after
	// pilots that the batch system could not start.
	longestBackOff = time.Minute
	longestStuck   = 15 * time.Minute
	// logPatience bounds the time for reading the log of a pilot that has failed.
	logPatience = 10 * time.Second
)

// Server is the part of a CodaLab server that a manager uses. *client.Client implements it.
type Server interface {
	Tokens
	SearchBundles(ctx context.Context, worksheet string, keywords []string) ([]client.BundleInfo, json.RawMessage, error)
	Workers(ctx context.Context) ([]codalab.WorkerInfo, error)
	Bundle(ctx context.Context, uuid string, include ...string) (client.BundleInfo, error)
}

// Manager keeps as many pilots as staged bundles need. The exported fields are set before the first use. Its
// methods are for one goroutine.
type Manager struct {
	Server  Server
	Backend Backend
	// Shape is the capacity of a new pilot.
	Shape Shape
	// Search has further keywords that bundles have to match. With Everybody the bundles of all users count,
	// else those of the user.
	Search    []string
	Everybody bool
	// NoFilter also counts bundles that do not fit Shape.
	NoFilter bool
	// Min and Max bound the number of pilots.
	Min, Max int
	// Pause is the time between two passes, Spacing the least time between two passes that start pilots.
	Pause, Spacing time.Duration
	// MostFailed is the number of failed pilots after which Run ends; negative for never.
	MostFailed int
	// Presence, if not nil, shows the manager to the server. The caller runs it together with Run.
	Presence *Presence
	// Observe, if not nil, gets the state of the manager after each pass. It must not block.
	Observe func(State)
	Log     *slog.Logger
	Now     func() time.Time

	tokens   tokenKeeper
	tracked  map[string]*tracked
	workers  map[string]codalab.WorkerInfo // the server's, by worker id
	requests map[string]Bundle             // of staged bundles and of runs, by uuid
	largest  Shape                         // the largest reported by workers so far; zero before the first
	logged   map[string]string             // the last logged text, by its subject

	answeredAt, started, blocked time.Time // answeredAt is the time of the backend's last answer
	streak, failed               int
	others, othersPending        int    // the workers of a Sharer: all, and those that wait for their start
	startError                   string // the last certain error of Start; empty after a start
	notStarted                   error  // the last error of Start; nil after a start
	worked                       bool   // a pass has succeeded
	loginChecked                 bool   // CheckLogin has succeeded

	last            Decision
	server, backend Contact
	waiting         map[string]int       // staged bundles that wait for a worker, by tag
	waitingSince    map[string]time.Time // when each of them was seen first
	leftOut         map[Lack]int         // staged bundles that no worker can take
	starts          map[StartResult]int
	ends            map[EndResult]int
	ran             time.Duration
}

// ErrTooManyFailed is the error of Run after more failures than MostFailed.
var ErrTooManyFailed = errors.New("too many workers failed to start")

// Run makes passes until ctx ends, and then returns nil; its pilots go on. It waits for a server and a backend
// that do not answer, and asks them less and less often, at least once in the backend's Refresh. It fails if the server
// refuses the login, or the very first request, and with ErrNoLogin if the pilots have no login.
func (m *Manager) Run(ctx context.Context) error {
	for failures := 0; ; {
		err := m.Pass(ctx)
		failures++
		switch {
		case ctx.Err() != nil:
			m.Log.InfoContext(ctx, "ended: workers go on", slog.Int("workers", len(m.tracked)))
			return nil //nolint:nilerr // the caller ended it
		case err == nil:
			m.worked, failures = true, 0
			m.logChange(ctx, "outage", "")
		case errors.Is(err, ErrTooManyFailed), errors.Is(err, ErrNoLogin), refusesLogin(err), !m.worked && !transient(err):
			return err
		default:
			m.logChange(ctx, "outage", err.Error())
		}
		wait := m.Pause
		if failures > 0 {
			wait = backoff.Spread(backoff.After(failures, m.Pause, max(m.Pause, m.Backend.Refresh())), nil)
		}
		if err := pause.For(ctx, wait); err != nil {
			continue // the next pass ends at once
		}
	}
}

func refusesLogin(err error) bool {
	return errors.Is(err, client.ErrCredentials) || codalab.IsStatus(err, http.StatusUnauthorized, http.StatusForbidden)
}

func transient(err error) bool {
	var e interface{ Transient() bool }
	return errors.As(err, &e) && e.Transient()
}

// Once makes one pass. Unlike Pass it also fails if a pilot is missing that could not be started.
func (m *Manager) Once(ctx context.Context) error {
	if err := m.Pass(ctx); err != nil {
		return err
	}
	return m.notStarted
}

// Pass starts the pilots that are missing. It never waits for a time.
func (m *Manager) Pass(ctx context.Context) error {
	m.prepare()
	began := m.Now()
	err := m.pass(ctx, began)
	if m.Presence != nil {
		m.Presence.Tell(m.whyBundlesWait())
	}
	if m.Observe != nil && ctx.Err() == nil {
		m.Observe(m.state(began, m.Now()))
	}
	return err
}

func (m *Manager) pass(ctx context.Context, now time.Time) error {
	if !m.loginChecked { // without a bundle, too: nobody may look when the first one comes
		if err := CheckLogin(ctx, m.Server, m.Backend); err != nil {
			return m.server.note(now, err)
		}
		m.loginChecked = true
	}
	staged, err := m.staged(ctx)
	if err != nil {
		return err
	}
	due := now.Sub(m.answeredAt) >= m.Backend.Refresh()
	if len(staged) == 0 && !due {
		return nil
	}
	if err := m.askServer(ctx); err != nil {
		return err
	}
	m.dropRequests(staged)
	// Only a fresh answer of the backend may start pilots, but an old one may show that none are needed. After
	// failures none may be started for a while.
	if !due && (now.Before(m.blocked) || m.decide(ctx, now, staged).Start == 0) {
		return nil
	}
	if err := m.askBackend(ctx, now); err != nil {
		return err
	}
	if m.MostFailed >= 0 && m.failed > m.MostFailed {
		return ErrTooManyFailed
	}
	d := m.decide(ctx, now, staged)
	if d.Start > 0 && len(staged) > 0 && !now.Before(m.blocked) { // runs may have begun since the search, and need no pilot
		still, err := m.staged(ctx)
		if err != nil {
			return err
		}
		d = m.decide(ctx, now, inBoth(staged, still))
	}
	m.logChange(ctx, "decision", d.Why)
	if d.Start == 0 || now.Before(m.blocked) || m.Presence != nil && m.Presence.Conflict(ctx) != "" {
		return nil
	}
	return m.start(ctx, now, d.Start)
}

// whyBundlesWait returns the reason for which a staged bundle waits, for its owner. The text is the same as long as the
// reason is: the server writes a new one to each staged bundle.
func (m *Manager) whyBundlesWait() string {
	var trouble, pending []string
	for _, t := range m.tracked {
		if t.Phase == Pending {
			pending = append(pending, cmp.Or(t.Wait, t.Reason))
		}
		if t.Trouble != "" {
			trouble = append(trouble, t.Trouble)
		}
	}
	switch {
	case len(trouble) > 0:
		return "a worker does not start: " + slices.Min(trouble)
	case m.startError != "":
		return "no worker can be started: " + m.startError
	case len(pending) > 0:
		return strings.TrimRight("a worker waits for its start: "+slices.Min(pending), ": ")
	case m.Max > 0 && m.live() >= m.Max:
		return fmt.Sprintf("there may be no more than %s", termtext.Count(m.Max, "worker"))
	}
	return "a worker is started when a bundle needs one"
}

// live counts the workers against the bounds: pilots that have not ended and are not lost, and the workers of a Sharer.
func (m *Manager) live() int {
	n := m.others
	for _, t := range m.tracked {
		if !m.isLost(t) {
			n++
		}
	}
	return n
}

// isLost reports whether a pilot's node is lost, and the pilot with it: the server does not hear it either. A pilot that
// the server hears goes on with its runs, although its node does not answer the batch system.
func (m *Manager) isLost(t *tracked) bool {
	_, heard := m.workers[WorkerID(t.Name)]
	return t.Phase == Lost && !heard
}

func (m *Manager) prepare() {
	if m.tracked == nil {
		m.tracked, m.requests, m.logged = map[string]*tracked{}, map[string]Bundle{}, map[string]string{}
		m.starts, m.ends = map[StartResult]int{}, map[EndResult]int{}
		m.tokens = tokenKeeper{server: m.Server, life: m.Backend.TokenLife(), live: map[string]time.Time{}, ended: map[string]bool{}}
	}
}

// logChange logs a text about a subject, unless it is the last one that was logged about it.
func (m *Manager) logChange(ctx context.Context, subject, text string) {
	before := m.logged[subject]
	if before == text {
		return
	}
	m.logged[subject] = text
	switch {
	case subject == "decision":
		m.Log.InfoContext(ctx, "decided", slog.String("reason", text))
	case subject == "tidy" && text == "":
		m.Log.InfoContext(ctx, "the remains of ended workers are removed again")
	case subject == "tidy":
		m.Log.WarnContext(ctx, "the remains of ended workers were not all removed", slog.String("error", text))
	case text == "":
		m.Log.InfoContext(ctx, "server and batch system answer again")
	default:
		m.Log.WarnContext(ctx, "waiting for an answer", slog.String("error", text))
	}
}

// askServer asks the server for its workers.
func (m *Manager) askServer(ctx context.Context) error {
	workers, err := m.Server.Workers(ctx)
	if err := m.server.note(m.Now(), err); err != nil {
		return err
	}
	m.workers = map[string]codalab.WorkerInfo{}
	for _, w := range workers {
		m.workers[w.WorkerID] = w
	}
	for name, t := range m.tracked {
		if w, ok := m.workers[WorkerID(name)]; ok {
			m.reached(ctx, t, w)
		}
	}
	return nil
}

// reached notes that the server knows a pilot.
func (m *Manager) reached(ctx context.Context, t *tracked, w codalab.WorkerInfo) {
	if !t.reached {
		t.reached, t.uncertain, m.streak = true, time.Time{}, 0
		m.Log.InfoContext(ctx, "worker has reached the server", slog.String("worker", WorkerID(t.Name)), jobAttr(t.Job))
	}
	t.heard = max(t.heard, w.CheckInTime)
	// Before that the server still knows the worker of the lost node.
	if t.Phase == Active && (t.Since.IsZero() || w.CheckInTime >= t.Since.Unix()) {
		t.again = false
	}
	m.noteCapacity(w)
}
