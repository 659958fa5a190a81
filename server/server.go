// Package server is the bundle service: it speaks CodaLab's REST API to clients and to
// workers.
//
// # How a bundle moves
//
//	uploading ──PUT contents──────────────────────────────► ready | failed
//	created ──parents are ready──► staged | failed
//	staged ──a worker fits──► starting ──start_bundle──► preparing
//	preparing ──check-ins──► running ──check-in "finalizing"──► ready | failed | killed
//	starting ──nobody claims it──► staged
//
// Every change of a bundle is one transaction in the store, then a note to Run ("changed"),
// which is the only one that draws conclusions from it: children are staged, runs are matched
// with workers, workers are woken. Run begins with all unfinished bundles, so a crash at any
// point loses nothing.
//
// # Messages to workers
//
// What a worker is told follows from the state of the bundles that it has, and is kept in
// memory only as a list of duties (see hub): a bundle that is starting is a run message, sent
// again until it is claimed; one that is to be killed is a kill message, sent again until it
// has ended. So no answer to a check-in can be lost for good. A check-in that has nothing to
// be told is held, which costs a goroutine and no lock, transaction or connection of the
// database.
//
// # A disk shared with workers
//
// With Config.SharedDisk a worker that says that it shares the store's disk is told in the run
// message where each parent's contents lie, and is given an empty directory of this
// assignment's own for the results. What is in it when the worker reports the end is flushed,
// counted and named as the bundle's contents, unless the worker has uploaded some; only then
// is the end taken over and acknowledged. So a crash before that leaves a report that comes
// again, and a crash after it contents that are the bundle's.
package server

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/server/store"
)

// Config says how to serve. All fields but Store and Now may be left zero.
type Config struct {
	// Store holds the data; this server is the only one that serves it.
	Store *store.Store
	// Log takes what an operator wants to see; nothing is logged without it.
	Log *slog.Logger
	// Now is the clock: time.Now.
	Now func() time.Time
	// DefaultCPUImage and DefaultGPUImage run the bundles that name no image; without a tag
	// ":latest" is meant.
	DefaultCPUImage, DefaultGPUImage string
	// LinkRoots are directories, by their absolute paths, below which bundles that are links
	// are read: by everybody who may make a bundle, as far as this server's account may read.
	LinkRoots []string
	// SharedDisk lets workers that say that they share the store's disk use bundles' contents
	// where they lie, and put results there themselves. It tells them paths, and no more: what
	// they may read is the disk's affair.
	SharedDisk bool
	// Hold is how long a check-in waits for messages; 5 s.
	Hold time.Duration
	// Resend is after how long an unclaimed run is sent again; 10 s. A kill is sent again
	// after half of it.
	Resend time.Duration
	// StartLimit is after how long an unclaimed run is staged again; 5 min.
	StartLimit time.Duration
	// WorkerTimeout is how long after its last check-in a worker counts as gone; 60 s.
	WorkerTimeout time.Duration
	// ReadTimeout is how long a worker may take to answer a read; 60 s.
	ReadTimeout time.Duration
	// HashIterations is the number of PBKDF2's iterations for passwords; 600,000.
	HashIterations int
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	def(&c.Hold, 5*time.Second)
	def(&c.Resend, 10*time.Second)
	def(&c.StartLimit, 5*time.Minute)
	def(&c.WorkerTimeout, time.Minute)
	def(&c.ReadTimeout, time.Minute)
	if c.HashIterations == 0 {
		c.HashIterations = HashIterations
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.DefaultCPUImage == "" {
		c.DefaultCPUImage = "codalab/default-cpu"
	}
	if c.DefaultGPUImage == "" {
		c.DefaultGPUImage = "codalab/default-gpu"
	}
	return c
}

// Server serves one store. Handler takes the requests, and Run has to run beside it.
type Server struct {
	Config
	store *store.Store
	hub   *hub

	adoptions adoptions
	// hashing bounds how many passwords are checked at once: each takes a core for a good
	// while.
	hashing chan struct{}

	mu      sync.Mutex
	changes []string // bundles that changed, for Run
	wake    chan struct{}

	// pending are the staged runs, fresh those of them that have not been looked at yet; only
	// Run touches them.
	pending, fresh map[string]*pending
}

// New returns a server. It does nothing by itself.
func New(c Config) *Server {
	c = c.withDefaults()
	return &Server{
		Config: c, store: c.Store,
		hub: newHub(c.Resend, c.WorkerTimeout, c.Now()),

		adoptions: adoptions{byName: map[string]*adoption{}, missing: map[string]time.Time{}},
		hashing:   make(chan struct{}, 2),
		wake:      make(chan struct{}, 1),
		pending:   map[string]*pending{}, fresh: map[string]*pending{},
	}
}

// changed tells Run that bundles have changed in the store. It never blocks.
func (s *Server) changed(uuids ...string) {
	s.mu.Lock()
	s.changes = append(s.changes, uuids...)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // Run is about to look anyway
	}
}

// Run lets bundles move, until ctx ends; it returns ctx's error, or why it could not begin.
// From then on no check-in is held any more, so that the HTTP server can be shut down.
func (s *Server) Run(ctx context.Context) error {
	defer s.hub.stop()
	unfinished, err := s.store.Unfinished(ctx)
	if err != nil {
		return err
	}
	s.changed(unfinished...)
	const tidying = 5 * time.Second
	tick := time.NewTicker(tidying)
	defer tick.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			all = true // a worker may have gone, or have more disk
			s.tidy(ctx, s.Now())
		case <-s.wake:
		}
		s.mu.Lock()
		uuids := s.changes
		s.changes = nil
		s.mu.Unlock()
		s.follow(ctx, uuids)
		s.match(ctx, s.Now(), all)
	}
}

// logError tells the operator what went wrong where nobody else hears it.
func (s *Server) logError(ctx context.Context, doing string, err error) {
	if err != nil && ctx.Err() == nil {
		s.Log.LogAttrs(ctx, slog.LevelError, "failed", slog.String("doing", doing), slog.String("error", err.Error()))
	}
}

// Handler returns the service's HTTP handler.
func (s *Server) Handler() http.Handler { return s.routes() }
