package schedule

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/server/contents"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Changes collects the uuids of changed bundles. Its methods are safe for concurrent use.
type Changes struct {
	mu    sync.Mutex
	uuids []string
	wake  chan struct{} // gets an element when there may be changes; never closed
}

// NewChanges returns no changes.
func NewChanges() *Changes { return &Changes{wake: make(chan struct{}, 1)} }

// Add adds bundles that have changed in the store, and wakes Run. Without a bundle it only wakes Run. It
// never blocks.
func (c *Changes) Add(uuids ...string) {
	c.mu.Lock()
	c.uuids = append(c.uuids, uuids...)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default: // Run has been woken already
	}
}

// take returns the changes since the last call.
func (c *Changes) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	uuids := c.uuids
	c.uuids = nil
	return uuids
}

// Config has what a Scheduler needs. All fields are required.
type Config struct {
	Log   *slog.Logger
	Now   func() time.Time
	Store *store.Store
	Hub   *hub.Hub
	Site  plan.Site
	// Makers makes the make bundles that are ready to be made.
	Makers *contents.Makers
	// Changes is told of every change of a bundle.
	Changes *Changes
	// SharedDisk means that workers may have written results into the store that no bundle has.
	SharedDisk bool
	// Observe is told the seconds of each pass of matching.
	Observe func(seconds float64)
	// Staged is told the number of runs that wait for a worker.
	Staged func(runs float64)
}

// Scheduler acts on changed bundles, and matches waiting runs with workers.
type Scheduler struct {
	config Config

	// oldFailed is the time at which inspect last failed old bundles.
	oldFailed time.Time
	// pending has the staged runs, fresh those that match has not tried yet.
	pending, fresh map[string]*plan.Waiting
}

// New returns a Scheduler. It does nothing before Run.
func New(c Config) *Scheduler {
	return &Scheduler{
		config:  c,
		pending: map[string]*plan.Waiting{}, fresh: map[string]*plan.Waiting{},
	}
}

// Run acts on changed bundles until ctx ends. It returns ctx's error, or the reason for which it could not
// begin.
func (s *Scheduler) Run(ctx context.Context) error {
	unfinished, err := s.config.Store.Unfinished(ctx)
	if err != nil {
		return err
	}
	s.config.Changes.Add(unfinished...)
	const pass = 5 * time.Second
	tick := time.NewTicker(pass)
	defer tick.Stop()
	var failed []string
	for {
		var uuids []string
		all := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			all = true // a worker may have gone, or may have more free disk
			uuids, failed = failed, nil
			s.inspect(ctx, s.config.Now())
		case <-s.config.Changes.wake:
		}
		uuids = append(uuids, s.config.Changes.take()...)
		failed = append(failed, s.processChanges(ctx, uuids)...)
		s.match(ctx, s.config.Now(), all)
	}
}
