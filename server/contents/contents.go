package contents

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Config has what Contents needs. All fields but LinkRoots and FetchPrivate are required.
type Config struct {
	Log    *slog.Logger
	Now    func() time.Time
	Store  *store.Store
	Access access.Access
	Hub    *hub.Hub
	// LinkRoots are the absolute paths of directories to which bundles may link.
	LinkRoots []string
	// FetchPrivate names places of the site's own network from which users may upload by URL.
	FetchPrivate outbound.Places
	// TransferTimeout is the time within which 64 KiB must come from a URL.
	TransferTimeout time.Duration
	// Changed is told which bundles have changed. It must not block.
	Changed func(uuids ...string)
}

// Contents has all that serves the contents of bundles.
type Contents struct {
	Running *Running
	Files   *Files
	Quotas  *Quotas
	Makers  *Makers

	ports   *Ports
	uploads *Uploads
}

// New returns Contents.
func New(c Config) *Contents {
	running := &Running{store: c.Store, hub: c.Hub, now: c.Now}
	files := &Files{log: c.Log, store: c.Store, access: c.Access, running: running, linkRoots: c.LinkRoots}
	quotas := &Quotas{now: c.Now, store: c.Store, accounts: map[string]*account{}}
	uploads := &Uploads{
		log: c.Log, now: c.Now, store: c.Store, access: c.Access, quotas: quotas, changed: c.Changed, zips: turns.New(2), results: resultUploads{newest: map[string]*resultUpload{}},
		fetcher: &Fetcher{private: c.FetchPrivate, client: newClient(c.FetchPrivate), timeout: c.TransferTimeout, repositories: turns.New(4)},
	}
	return &Contents{
		Running: running, Files: files, Quotas: quotas,
		Makers: &Makers{
			log: c.Log, now: c.Now, store: c.Store, files: files, uploads: uploads, changed: c.Changed,
			copying: turns.New(2), making: map[string]context.CancelFunc{},
		},
		ports: &Ports{access: c.Access, running: running}, uploads: uploads,
	}
}

// Routes returns the routes for contents.
func (c *Contents) Routes() []rest.Route {
	routes := append(c.ports.routes(), c.Files.routes()...)
	return append(append(routes, c.uploads.routes()...), c.Running.routes()...)
}

// Running asks workers about the bundles that they run.
type Running struct {
	store *store.Store
	hub   *hub.Hub
	now   func() time.Time
}

func (s *Running) routes() []rest.Route {
	return []rest.Route{
		{Pattern: "POST /workers/{worker}/reply/{socket}", Serve: s.reply, Worker: true, WorkerToken: true},
		{Pattern: "POST /workers/{worker}/reply_data/{socket}", Serve: s.replyData, Worker: true, WorkerToken: true},
	}
}

// Files finds, describes and sends contents.
type Files struct {
	log       *slog.Logger
	store     *store.Store
	access    access.Access
	running   *Running
	linkRoots []string
}

// Ports connects users with the ports of running bundles.
type Ports struct {
	access  access.Access
	running *Running
}

// Uploads stores contents.
type Uploads struct {
	log     *slog.Logger
	now     func() time.Time
	store   *store.Store
	access  access.Access
	quotas  *Quotas
	fetcher *Fetcher
	changed func(uuids ...string)
	// zips shares the places to unpack a zip archive among the owners of bundles. They are few, since
	// the directories of the archives are kept in memory.
	zips    *turns.Turns
	results resultUploads
}

func (s *Uploads) routes() []rest.Route {
	return []rest.Route{
		{Pattern: "PUT /bundles/{uuid}/contents/blob/{$}", Serve: s.upload, Worker: true, WorkerToken: true, Waits: true, Differs: "archives that lead out of the bundle, pipes, zips with overlapping entries, and files that end early are refused with the reason; several gzip members are all read; bytes are reserved from the quota as they come; URLs with private addresses are refused unless the operator allows them; of a git repository the files are stored, without .git; ftp is refused; a query of size and entries, the least that the contents have, refuses them before they come if they exceed the quota; contents that take no more than those that they replace fit whatever the quota; a later upload of a run's results ends the earlier one"},
		{Pattern: "POST /workers/{worker}/results", Serve: s.uploadResults, Worker: true, WorkerToken: true, Waits: true, Differs: "only this server has it: a worker sends the small results of up to 50 of its runs, 16 MiB at most, in one tar stream; each is stored or refused as by PUT of its contents, and also refused if the bundle is another one than the worker's"},
	}
}

// Fetcher fetches the contents of uploads by URL.
type Fetcher struct {
	private outbound.Places
	client  *http.Client
	// timeout is the time within which 64 KiB must come.
	timeout time.Duration
	// repositories shares the places to clone a git repository among the owners of bundles: git may use
	// gitMemory.
	repositories *turns.Turns
}
