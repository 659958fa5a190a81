package server

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/accounts"
	"github.com/cl-slurm/cl-slurm/server/bundles"
	"github.com/cl-slurm/cl-slurm/server/checkin"
	"github.com/cl-slurm/cl-slurm/server/contents"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/notices"
	"github.com/cl-slurm/cl-slurm/server/pages"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/queues"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/schedule"
	"github.com/cl-slurm/cl-slurm/server/secrets"
	"github.com/cl-slurm/cl-slurm/server/signin"
	"github.com/cl-slurm/cl-slurm/server/sso"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/terminal"
	"github.com/cl-slurm/cl-slurm/server/usage"
	"github.com/cl-slurm/cl-slurm/server/values"
	"github.com/cl-slurm/cl-slurm/server/vault"
	"github.com/cl-slurm/cl-slurm/server/worksheets"
)

// Config configures a Server. Store and Now are required.
type Config struct {
	// Store has the data. No other server may serve it.
	Store *store.Store
	// Log is the operator's log; nil means none.
	Log *slog.Logger
	// Now is the clock, usually time.Now.
	Now func() time.Time
	// Site has the rules for the requests of runs. By default, its images are those of CodaLab's own server.
	Site plan.Site
	// LinkRoots are the absolute paths of directories to which bundles may link. Every user
	// who may create a bundle can read what the server's account can read there.
	LinkRoots []string
	// SharedDisk lets workers that share the store's disk read bundles' contents there and
	// write results there. The server only tells them the paths: the disk's permissions decide
	// what they can read.
	SharedDisk bool
	// FetchPrivate names places of the site's own network from which users may upload by URL.
	FetchPrivate outbound.Places
	// DefaultPermission is the permission of others on new worksheets, and on the bundles on them; empty means store.DefaultNone.
	DefaultPermission store.DefaultPermission
	// RequireSignIn refuses all requests of users who have not signed in.
	RequireSignIn bool
	// Hold is the time for which a check-in waits for messages; default 5 s.
	Hold time.Duration
	// WorkerTimeout is the time after its last check-in at which a worker counts as gone; default 60 s.
	WorkerTimeout time.Duration
	// PasswordCost is the work of hashing a password; default DefaultPasswordCost.
	PasswordCost PasswordCost
	// BehindProxy takes clients' addresses from the header X-Forwarded-For, which a proxy in front of
	// the server must set.
	BehindProxy bool
	// TransferTimeout is the time within which a client must send or accept 64 KiB; default 5 min.
	TransferTimeout time.Duration
	// MaxRequestsOfUser is the number of requests that one user may have under way; 0 means no bound.
	MaxRequestsOfUser int
	// MaxBodyMemory bounds the bytes of requests' bodies in memory; default 256 MiB. One user may have a quarter.
	MaxBodyMemory int64
	// Audit receives a line of JSON for each request that is in the audit log, besides Log; nil for nobody. Lines that it
	// does not take are counted.
	Audit io.Writer
	// SSO is the provider by which users sign in with a browser; the zero value for none.
	SSO sso.Options
	// WorkerProgram is the path of the cl-worker that the server hands out; empty for none.
	WorkerProgram string
	// SecretsKey is the path of the file with the key of users' secrets, which the first secret makes. Default: a file
	// in the store's directory.
	SecretsKey string
	// Mail is the SMTP server of all mails; the zero value for none. Users are told that bundles have ended.
	Mail mail.Options
	// PublicURL is the address of the server in links of mails. With it and Mail, users reset their passwords, and change their
	// e-mail addresses, by mail.
	PublicURL string
	// HelpAddress receives messages of users to the operator; empty for the sender of mails.
	HelpAddress string
	// SignUp lets people make accounts for themselves by mail. It does nothing with SSO.
	SignUp signin.SignUp
}

func (c Config) withDefaults() Config {
	c.Hold = cmp.Or(c.Hold, 5*time.Second)
	c.WorkerTimeout = cmp.Or(c.WorkerTimeout, time.Minute)
	c.PasswordCost = cmp.Or(c.PasswordCost, DefaultPasswordCost())
	c.MaxBodyMemory = cmp.Or(c.MaxBodyMemory, 256<<20)
	c.TransferTimeout = cmp.Or(c.TransferTimeout, 5*time.Minute)
	c.SecretsKey = cmp.Or(c.SecretsKey, c.Store.SecretsKeyPath())
	c.DefaultPermission = cmp.Or(c.DefaultPermission, store.DefaultNone)
	c.Site.DefaultCPUImage = cmp.Or(c.Site.DefaultCPUImage, "codalab/default-cpu")
	c.Site.DefaultGPUImage = cmp.Or(c.Site.DefaultGPUImage, "codalab/default-gpu")
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server serves one store. While Handler serves requests, Run must run.
type Server struct {
	Config
	hub        *hub.Hub
	contents   *contents.Contents
	bundles    *bundles.Bundles
	worksheets *worksheets.Worksheets
	accounts   *accounts.Accounts
	checkIns   *checkin.CheckIns
	signIns    *signin.SignIns
	secrets    *secrets.Secrets
	queues     *queues.Queues
	terminal   *terminal.Terminal
	notices    *notices.Notices
	sso        *sso.SSO // nil without a provider
	pages      *pages.Pages
	scheduler  *schedule.Scheduler
	values     *values.Indexer
	metrics    *metrics
	auditFile  *auditFile
	// workerCode has the archive of WorkerProgram that clients download.
	workerCode workerCode
	// writes shares the places to change something among users.
	writes *turns.Turns
	// shares bounds what the requests of one user hold.
	shares *rest.Shares
}

// searchPlaces is the number of searches at a time: half of the connections of the database (sqldb), so that other
// requests, sign-ins and check-ins among them, find free ones.
func searchPlaces() int { return max(2, runtime.GOMAXPROCS(0)/2) }

// New returns a server. It does nothing before Run.
func New(c Config) *Server {
	c = c.withDefaults()
	h, changes := hub.New(c.WorkerTimeout, c.Now()), schedule.NewChanges()
	indexer := values.New(c.Store, c.Log)
	changed := func(uuids ...string) {
		changes.Add(uuids...)
		if len(uuids) > 0 {
			indexer.Changed()
		}
	}
	permitted := access.Access{
		Store: c.Store, Now: c.Now, Searches: turns.New(searchPlaces()), DefaultPermission: c.DefaultPermission, SettleValues: indexer.Settle,
	}
	s := &Server{
		Config: c, hub: h, values: indexer, metrics: newMetrics(h, c.Now), writes: turns.New(32),
		shares: &rest.Shares{MaxRequests: c.MaxRequestsOfUser, MaxBytes: c.MaxBodyMemory, MaxBytesOfOwner: c.MaxBodyMemory / 4},
	}
	s.auditFile = newAuditFile(c.Audit, c.Log, s.metrics.auditLost)
	address := func(r *http.Request) string { return rest.ClientAddress(r, c.BehindProxy) }
	s.contents = contents.New(contents.Config{
		Log: c.Log, Now: c.Now, Store: c.Store, Access: permitted, Hub: h, LinkRoots: c.LinkRoots,
		FetchPrivate: c.FetchPrivate, TransferTimeout: c.TransferTimeout, Changed: changed,
	})
	signIns := s.signInConfig(address)
	if s.sso = sso.New(sso.Config{Options: c.SSO, Log: c.Log, Now: c.Now, Store: c.Store, Address: address}); s.sso != nil {
		signIns.Redeem = s.sso.Redeem
	}
	s.signIns = signin.New(signIns)
	s.terminal = &terminal.Terminal{Log: c.Log}
	s.pages = pages.New(pages.Config{
		Log: c.Log, Now: c.Now, SignIn: s.signIns.SignInBrowser, SignOut: s.signIns.SignOutBrowser, Follow: s.signIns.Follow, StillSignedIn: s.signIns.StillSignedIn,
		Address: address, Encrypted: signIns.Encrypted, Mails: s.signIns.Mails(), SignUp: s.signIns.SignsUp(),
	})
	keeper := usage.NewKeeper(c.Store, c.Log)
	s.checkIns = checkin.New(checkin.Config{
		Log: c.Log, Now: c.Now, Store: c.Store, Access: permitted, Hub: h, Site: c.Site, Files: s.contents.Files, Usage: keeper, Changed: changed,
		SharedDisk: c.SharedDisk, Hold: c.Hold, WorkerTimeout: c.WorkerTimeout, Address: address,
		SignedIn: s.signIns.StillSignedIn,
	})
	s.secrets = secrets.New(secrets.Config{Now: c.Now, Store: c.Store, Vault: &vault.Vault{Path: c.SecretsKey}})
	s.queues = queues.New(queues.Config{Log: c.Log, Now: c.Now, Store: c.Store, Hub: h, Site: c.Site})
	s.notices = notices.New(notices.Config{Log: c.Log, Now: c.Now, Store: c.Store, Access: permitted, Mail: c.Mail, EmailPage: s.signIns.EmailPage()})
	s.bundles = bundles.New(bundles.Config{
		Now: c.Now, Store: c.Store, Access: permitted, Contents: s.contents, Changed: changes.Add, TakeTurn: s.takeTurn,
		CheckSecrets: s.secrets.Check, Outlook: s.queues.Outlook, Usage: keeper, Site: c.Site,
	})
	s.worksheets = worksheets.New(worksheets.Config{Log: c.Log, Now: c.Now, Store: c.Store, Access: permitted, Files: s.contents.Files})
	s.accounts = accounts.New(accounts.Config{Now: c.Now, Store: c.Store, Access: permitted, Quotas: s.contents.Quotas, RequireSignIn: c.RequireSignIn})
	s.scheduler = schedule.New(schedule.Config{
		Log: c.Log, Now: c.Now, Store: c.Store, Hub: h, Site: c.Site, Makers: s.contents.Makers, Changes: changes,
		SharedDisk: c.SharedDisk, Observe: s.metrics.passes.Observe, Staged: s.metrics.staged.Set,
	})
	c.Store.Own, c.Store.Changed = s.auditOwn, s.pages.Changed
	c.Store.Failed = func(err error) {
		c.Log.Error("failed", slog.String("doing", "save room of contents"), slog.String("error", err.Error()))
	}
	return s
}

// signInConfig is that of the sign-ins, without a provider.
func (s *Server) signInConfig(address func(*http.Request) string) signin.Config {
	return signin.Config{
		Log: s.Log, Now: s.Now, Store: s.Store, Cost: s.PasswordCost, Address: address,
		Encrypted: func(r *http.Request) bool { return rest.Encrypted(r, s.BehindProxy) },
		Count:     func(outcome string) { s.metrics.signIns.WithLabelValues(outcome).Inc() },
		Mail:      s.Mail, PublicURL: s.PublicURL, HelpAddress: s.HelpAddress, SignUp: s.SignUp,
	}
}

// Run acts on changed bundles until ctx ends. It returns ctx's error, or the reason for which it could not
// begin. After Run the server holds no check-in and no websocket, so that the HTTP server can shut down.
func (s *Server) Run(ctx context.Context) error {
	defer s.checkIns.Wait()
	defer s.contents.Makers.Wait()
	defer s.hub.Bells.Wait()
	defer s.hub.Stop()
	defer s.pages.Stop()
	s.queues.Restore(ctx)
	g, within := errgroup.WithContext(ctx)
	g.Go(func() error { return s.signIns.Run(within) })
	g.Go(func() error { return s.signIns.RunMails(within) })
	g.Go(func() error { return s.scheduler.Run(within) })
	g.Go(func() error { return s.queues.Run(within) })
	g.Go(func() error { return s.values.Run(within) })
	g.Go(func() error { return s.notices.Run(within) })
	g.Go(func() error { s.countEntries(within); return nil })
	err := g.Wait()
	if ctx.Err() != nil { // PostgreSQL's error for a statement that ends with ctx is another one
		return ctx.Err()
	}
	return err
}

// countEntries counts the entries of contents that an older version has stored. Until then they count with their
// size alone.
func (s *Server) countEntries(ctx context.Context) {
	counted, err := s.Store.CountEntries(ctx)
	failures.Log(ctx, s.Log, "count the entries of contents", err)
	if counted > 0 {
		s.Log.InfoContext(ctx, "counted the files, directories and links of bundles of an older version", slog.Int("bundles", counted))
	}
}
