package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/contents"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Config configures a Server. Store and Now are required.
type Config struct {
	// Store has the data. No other server may serve it.
	Store *store.Store
	// Log is the operator's log; nil means none.
	Log *slog.Logger
	// Now is the clock, usually time.Now.
	Now func() time.Time
	// DefaultCPUImage and DefaultGPUImage are the images of runs that name none. Without a tag
	// they mean ":latest".
	DefaultCPUImage, DefaultGPUImage string
	// LinkRoots are the absolute paths of directories to which bundles may link. Every user
	// who may create a bundle can read what the server's account can read there.
	LinkRoots []string
	// SharedDisk lets workers that share the store's disk read bundles' contents there and
	// write results there. The server only tells them the paths: the disk's permissions decide
	// what they can read.
	SharedDisk bool
	// MaxRequestDisk, MaxRequestMemory (in bytes) and MaxRequestTime are the most that a run may
	// request; 0 means no limit. A run that requests no disk or time gets what is allowed.
	MaxRequestDisk, MaxRequestMemory int64
	MaxRequestTime                   time.Duration
	// FetchPrivate names places of the site's own network from which users may upload by URL.
	FetchPrivate contents.FetchPrivate
	// RequireSignIn refuses all requests of users who have not signed in.
	RequireSignIn bool
	// Hold is how long a check-in waits for messages; default 5 s.
	Hold time.Duration
	// WorkerTimeout is how long after its last check-in a worker counts as gone; default 60 s.
	WorkerTimeout time.Duration
	// PasswordCost is the work of hashing a password; default DefaultPasswordCost.
	PasswordCost PasswordCost
	// BehindProxy takes clients' addresses from the header X-Forwarded-For, which a proxy in front of
	// the server must set.
	BehindProxy bool
	// TransferTimeout is how long a client may take to send or accept 64 KiB; default 5 min.
	TransferTimeout time.Duration
	// WorkerProgram is the path of the cl-worker that the server hands out; empty for none.
	WorkerProgram string
}

func (c Config) withDefaults() Config {
	c.Hold = cmp.Or(c.Hold, 5*time.Second)
	c.WorkerTimeout = cmp.Or(c.WorkerTimeout, time.Minute)
	c.PasswordCost = cmp.Or(c.PasswordCost, DefaultPasswordCost())
	c.TransferTimeout = cmp.Or(c.TransferTimeout, 5*time.Minute)
	c.DefaultCPUImage = cmp.Or(c.DefaultCPUImage, "codalab/default-cpu")
	c.DefaultGPUImage = cmp.Or(c.DefaultGPUImage, "codalab/default-gpu")
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) site() plan.Site {
	return plan.Site{
		CPUImage: c.DefaultCPUImage, GPUImage: c.DefaultGPUImage,
		MaxDisk: c.MaxRequestDisk, MaxMemory: c.MaxRequestMemory, MaxTime: c.MaxRequestTime,
	}
}

// Server serves one store. While Handler serves requests, Run must run.
type Server struct {
	Config
	rest.Failures
	hub      *hub.Hub
	access   access.Access
	contents *contents.Contents
	site     plan.Site

	adoptions adoptions
	guesses   guesses
	// workerCode is what it hands out of WorkerProgram.
	workerCode workerCode
	metrics    *metrics
	// writes shares the places to change something among users.
	writes *turns.Turns
	// hashing shares the places to check passwords among the addresses of clients: each check keeps
	// a core busy.
	hashing *turns.Turns
	// unknownPassword is the hash for names that no user has.
	unknownPassword string
	mu              sync.Mutex
	changes         []string // uuids of changed bundles, for Run
	wake            chan struct{}

	// oldFailed is when inspect last failed old bundles. Only Run uses it.
	oldFailed time.Time
	// pending are the staged runs, fresh those that match has not tried yet. Only Run uses
	// them.
	pending, fresh map[string]*plan.Waiting
}

// New returns a server. It does nothing before Run.
func New(c Config) *Server {
	c = c.withDefaults()
	h := hub.New(c.WorkerTimeout, c.Now())
	s := &Server{
		Config: c, Failures: rest.FailuresTo(c.Log), site: c.site(), access: access.Access{Store: c.Store, Now: c.Now},
		hub: h, metrics: newMetrics(h, c.Now), writes: turns.New(32),

		adoptions: adoptions{byName: map[string]*adoption{}, missing: map[string]time.Time{}},
		guesses:   guesses{failed: map[string]*rate.Limiter{}}, hashing: turns.New(4),
		unknownPassword: HashPassword(rand.Text(), c.PasswordCost),
		wake:            make(chan struct{}, 1),
		pending:         map[string]*plan.Waiting{}, fresh: map[string]*plan.Waiting{},
	}
	s.contents = contents.New(contents.Config{
		Log: c.Log, Now: c.Now, Store: c.Store, Access: s.access, Hub: h, LinkRoots: c.LinkRoots,
		FetchPrivate: c.FetchPrivate, TransferTimeout: c.TransferTimeout, Changed: s.changed,
	})
	c.Store.Failed = func(err error) {
		s.Log.Error("failed", slog.String("doing", "remove contents that no bundle names"), slog.String("error", err.Error()))
	}
	return s
}

// changed tells Run that bundles have changed in the store. It never blocks.
func (s *Server) changed(uuids ...string) {
	s.mu.Lock()
	s.changes = append(s.changes, uuids...)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // Run has been woken already
	}
}

// Run acts on changed bundles until ctx ends. It returns ctx's error, or why it could not
// begin. After Run the server holds no check-in and no websocket, so that the HTTP server can shut down.
func (s *Server) Run(ctx context.Context) error {
	defer s.adoptions.wait()
	defer s.contents.Makers.Wait()
	defer s.hub.Bells.Wait()
	defer s.hub.Stop()
	unfinished, err := s.Store.Unfinished(ctx)
	if err != nil {
		return err
	}
	s.changed(unfinished...)
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
			s.inspect(ctx, s.Now())
		case <-s.wake:
		}
		s.mu.Lock()
		uuids = append(uuids, s.changes...)
		s.changes = nil
		s.mu.Unlock()
		failed = append(failed, s.processChanges(ctx, uuids)...)
		s.match(ctx, s.Now(), all)
	}
}
