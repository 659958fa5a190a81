package pilot

import (
	"context"
	"time"
)

// Backend is a batch system that runs pilots. It is used by one goroutine at a time.
type Backend interface {
	// NewName returns the name of a new pilot, which no other has.
	NewName() string
	// Start starts a pilot. After an error that is not certain (Uncertain), it may start nevertheless.
	Start(ctx context.Context, name string) (Pilot, error)
	// Pilots returns the manager's pilots that the batch system knows, also those that ended lately.
	// The answer is complete, or an error.
	Pilots(ctx context.Context) ([]Pilot, error)
	// Stop ends a pilot. It is no error if it has ended already.
	Stop(ctx context.Context, p Pilot) error
	// Log returns the path of the file with what a pilot has printed. It need not exist yet.
	Log(name string) string
}

// Phase is where a pilot is in its life.
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
	// Job is the batch system's name of its job; empty if it is not known whether there is one.
	Job string
	// State and Reason are the batch system's own words.
	State, Reason string
	// Node is where it runs.
	Node string
	// Since is when it began to run, or else when it was submitted; zero if unknown.
	Since time.Time
	// Cancelled is set if somebody has ended it.
	Cancelled bool
}

// workerPrefix begins the ids of workers (worker_manager.py: build_command).
const workerPrefix = "host-"

// WorkerID is the id by which the server knows the pilot of a name.
func WorkerID(name string) string { return workerPrefix + name }

// Uncertain is the method of a Start's error that says whether a pilot may start nevertheless.
type Uncertain interface {
	error
	Uncertain() bool
}
