package pilot

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Backend is a batch system that runs pilots. One goroutine at a time uses it. Package pilottest has the test
// suite of its promises.
type Backend interface {
	Starter
	Lister
	Logs
	// Tidy removes the remains of ended pilots, such as files, and gives a token of newToken to a waiting pilot that
	// has none, or one that may end too soon. The manager calls Tidy after each answer of Pilots, when it has ended
	// the tokens of the ended pilots, so that Tidy is retried after a failure.
	Tidy(ctx context.Context, newToken NewToken) error
	// Stop ends a pilot: the worker gets TERM. It is no error if the pilot has ended already. Stop does not
	// wait for the end.
	Stop(ctx context.Context, p Pilot) error
}

// Starter starts pilots.
type Starter interface {
	// NewName returns a unique name for a new pilot: a prefix of the manager, and the digits of NewID.
	NewName() string
	// Start starts a pilot, whose worker logs in with the token. Without a token the worker logs in with a secret of
	// the batch system or of its nodes; if there is none, Start fails with ErrNoLogin (TokenNeeder). After an error that
	// is not certain (Uncertain) the pilot may still start; if it does, Pilots shows it under its name. After another
	// error it certainly does not start.
	Start(ctx context.Context, name, token string) (Pilot, error)
	// TokenLife is the time for which the token of a new pilot has to be valid; 0 if the pilots take no tokens.
	TokenLife() time.Duration
}

// Lister lists pilots.
type Lister interface {
	// Pilots returns the manager's pilots that the batch system knows, including those that ended lately.
	// The answer is complete, or an error. It has each pilot whose Start has returned no error.
	Pilots(ctx context.Context) ([]Pilot, error)
	// Refresh is the interval at which a manager without a need for new pilots asks for its pilots.
	Refresh() time.Duration
}

// Logs are the logs of pilots.
type Logs interface {
	// Logged returns the pilots that may have a log, those that have ended, too. The ones that printed last
	// come first.
	Logged(ctx context.Context) ([]Pilot, error)
	// WriteLog writes a pilot's output to w, from its beginning. With follow it goes on until the pilot has
	// ended. It fails with ErrNoLog if the pilot has printed nothing, with follow only after the end.
	WriteLog(ctx context.Context, w io.Writer, p Pilot, follow bool) error
}

// Locator is a backend whose answer of Pilots lacks the nodes of running pilots, because they cost further requests.
type Locator interface {
	// Locate sets the nodes of pilots.
	Locate(ctx context.Context, pilots []Pilot) error
}

// TokenNeeder is a backend whose pilots may have no login but the server's token.
type TokenNeeder interface {
	// NeedsToken returns the error of Start without a token, which wraps ErrNoLogin. It is nil if the pilots have another login.
	NeedsToken() error
}

// Sharer is a backend with which further workers may count against the bounds of the manager, though the manager neither
// starts nor ends them.
type Sharer interface {
	// Others returns their number at the last answer of Pilots: those that wait for their start, and those that run.
	Others() (pending, active int)
}

// ErrNoLog means that a pilot has printed nothing.
var ErrNoLog = errors.New("it has printed nothing")

// Phase is the phase of a pilot's life.
type Phase string

// The phases of a pilot.
const (
	Pending Phase = "pending" // the batch system has not started it
	Active  Phase = "active"  // the batch system runs it
	Lost    Phase = "lost"    // the batch system does not reach its node, which may come back with it
	Ended   Phase = "ended"
)

// Pilot is a worker as its batch system shows it.
type Pilot struct {
	Name  string
	Phase Phase
	// Job is the batch system's name of its job; empty if it has none, or none that is known.
	Job string
	// State and Reason are the batch system's own words.
	State, Reason string
	// Wait is a phrase for owners of bundles about the wait of a pending pilot; empty for Reason.
	Wait string
	// Node is the node on which it runs.
	Node string
	// Since is the time of its start, or else of its submission; zero if unknown.
	Since time.Time
	// Cancelled is set if a person has ended it.
	Cancelled bool
	// Leaving is set for an ended pilot whose worker may still give its runs back to the server. It keeps its token.
	Leaving bool
	// Trouble is the reason, in the batch system's words, for which a pending pilot does not start by itself:
	// its image cannot be pulled, no node has such a GPU. It is empty for a pilot that waits for its turn. The
	// manager ends a pilot whose trouble has lasted for Patience.
	Trouble  string
	Patience time.Duration
}

// workerPrefix begins the ids of workers (worker_manager.py: build_command).
const workerPrefix = "host-"

// WorkerID returns the server's id of the pilot with this name.
func WorkerID(name string) string { return workerPrefix + name }

// NewID returns 32 random hexadecimal digits, which end a pilot's name.
func NewID() string {
	id := uuid.New()
	return hex.EncodeToString(id[:])
}

// ID returns the digits at the end of a pilot's name.
func ID(name string) string { return name[strings.LastIndexAny(name, "-_")+1:] }

// IsID reports whether a text has the form of NewID's.
func IsID(text string) bool {
	id, err := hex.DecodeString(text)
	return err == nil && len(id) == 16
}

// Uncertain is an error of Start. Its method reports whether the pilot may still start.
type Uncertain interface {
	error
	Uncertain() bool
}

// Finding is a need of a manager, with the batch system's answer to it.
type Finding struct {
	// Name names the need, in a few words.
	Name string
	// OK is set if the need is met. Text has the batch system's words.
	OK   bool
	Text string
}
