package pilot

import (
	"context"
	"time"
)

// Backend is a batch system that runs pilots. One goroutine at a time uses it.
type Backend interface {
	// NewName returns a unique name for a new pilot.
	NewName() string
	// Start starts a pilot. After an error that is not certain (Uncertain), the pilot may still start.
	Start(ctx context.Context, name string) (Pilot, error)
	// Pilots returns the manager's pilots that the batch system knows, including those that ended lately.
	// The answer is complete, or an error.
	Pilots(ctx context.Context) ([]Pilot, error)
	// Stop ends a pilot. It is no error if it has ended already.
	Stop(ctx context.Context, p Pilot) error
	// Log returns the path of the file with a pilot's output. The file may not exist yet.
	Log(name string) string
}

// Phase is the phase of a pilot's life.
type Phase string

// The phases of a pilot.
const (
	Pending Phase = "pending" // the batch system has not started it
	Active  Phase = "active"  // the batch system runs it
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
	// Node is the node on which it runs.
	Node string
	// Since is the time of its start, or else of its submission; zero if unknown.
	Since time.Time
	// Cancelled is set if a person has ended it.
	Cancelled bool
}

// workerPrefix begins the ids of workers (worker_manager.py: build_command).
const workerPrefix = "host-"

// WorkerID returns the server's id of the pilot with this name.
func WorkerID(name string) string { return workerPrefix + name }

// Uncertain is an error of Start. Its method reports whether the pilot may still start.
type Uncertain interface {
	error
	Uncertain() bool
}
