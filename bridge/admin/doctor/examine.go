package doctor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/canary"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/clocks"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Examination checks everything that the first job of a configuration needs.
type Examination struct {
	Config config.Config
	Slurm  *sbatch.Client
	// Images resolves references of images.
	Images source.Source
	Now    func() time.Time
	// Getenv reads the environment of this process.
	Getenv func(name string) string
	// Only names the queues to check; empty means all.
	Only []string
	// Jobs is set to run a short job on each queue. Wait bounds the time that a job waits in Slurm, and Node names the
	// node on which jobs have to run; empty means any.
	Jobs bool
	Wait time.Duration
	Node string
	// CacheDir is the cache's directory, and Cached lists its contents; nil if there is no cache yet.
	CacheDir string
	Cached   func(ctx context.Context) ([]cache.Entry, error)
	// Found is called with each check once; Sending before jobs are sent to queues.
	Found   func(Check)
	Sending func(queues []string)

	checks []Check
	silent bool // the disk of the shared directory or of the cache does not answer
	// writable is set if this account can make files in the shared directory.
	writable  bool
	open      bool // others can write to the bridge's directories
	diskClock *clocks.Offset
	// clocked is set once the controller's clock was judged.
	clocked bool
}

// Run checks everything, the nearest things first, and returns all checks.
func (e *Examination) Run(ctx context.Context) []Check {
	c := e.Config
	e.add(ok("configuration", "%s, queues %s", c.Path, strings.Join(c.QueueNames(), ", ")))
	e.login(ctx)
	site := e.askSlurm(ctx)
	e.disks(ctx)
	if !e.silent && e.writable {
		e.sharedDisk(ctx)
	}
	if !e.silent {
		own := Own(c)
		e.open, _ = HasFailed(own)
		e.add(own...)
		e.images(ctx)
	}
	if site == nil {
		return e.checks
	}
	healthy := e.queues(ctx, *site)
	e.mappings(ctx, *site, healthy)
	if e.Jobs && len(healthy) > 0 {
		e.holdJobs(ctx, healthy)
		e.sendJobs(ctx, *site, healthy)
	}
	return e.checks
}

// add adds checks, without those that it has already.
func (e *Examination) add(checks ...Check) {
	for _, c := range checks {
		if !slices.Contains(e.checks, c) {
			e.checks = append(e.checks, c)
			e.Found(c)
		}
	}
}

// login checks the file of the login, the server and the login.
func (e *Examination) login(ctx context.Context) {
	c := e.Config
	unread := c.CheckLogin(ctx)
	if c.TokenFile != "" {
		e.add(Token(c.TokenFile, unread))
	} else {
		e.add(Password(c.PasswordFile, unread))
	}
	if unread != nil {
		e.add(Reach(ctx, c.Server, c.User))
		return
	}
	version := ""
	credentials, token := c.Login()
	cl, err := client.New(c.Server, client.Options{ClientID: client.WorkerClient, Credentials: credentials, Token: token})
	if err == nil {
		version, err = cl.ServerVersion(ctx)
	}
	e.add(Server(c.Server, version, err), Login(c.User, err))
	if err == nil {
		if o, err := askServerClock(ctx, c.Server, e.Now); err == nil {
			e.add(ServerClock(o))
		}
	}
	switch {
	case err != nil:
		return
	case token != nil:
		e.token(ctx, cl)
		return // a token lists no groups: the first check-in of a queue shows whether its group is wrong
	}
	e.groupsOfMap(ctx, cl)
	queues := c.Plan()
	for _, name := range c.QueueNames() {
		if q := queues[name]; q.Group != "" {
			groups, err := cl.Groups(ctx)
			e.add(Group(q, c.User, groups, err))
		}
	}
}

// token checks whether the bridge's token is for the worker of each queue, and when it ends.
func (e *Examination) token(ctx context.Context, cl *client.Client) {
	host, err := os.Hostname()
	if err != nil {
		e.add(failed("token_file", err.Error(), "give this host a name"))
		return
	}
	for _, queue := range e.Config.QueueNames() {
		own, err := cl.OwnProgramToken(ctx, e.Config.BridgeName(host)+"-"+queue)
		e.add(Tokened(own, e.Config.User, e.Config.BridgeName(host), e.Now(), err))
	}
}

// Reach checks, without a login, whether anything answers at a server's address.
func Reach(ctx context.Context, server, user string) Check {
	open, err := client.New(server, client.Options{})
	if err == nil {
		_, err = open.UserByID(ctx, user)
	}
	return Reached(server, err)
}

// askSlurm checks Slurm's commands and slurmctld, and asks for the partitions and the
// accounts of this user. It returns nil where Slurm does not answer.
func (e *Examination) askSlurm(ctx context.Context) *Site {
	version, err := e.Slurm.Version(ctx)
	e.add(Commands(e.Config.Slurm.Bin, version, err))
	if err != nil {
		return nil
	}
	partitions, err := e.Slurm.Partitions(ctx)
	e.add(Controller(len(partitions), err))
	if err != nil {
		return nil
	}
	site := Site{User: LocalUser(), Partitions: partitions}
	settings, err := e.Slurm.Settings(ctx)
	e.add(Settings(e.Config.Slurm, settings, err))
	configured := e.Config.Slurm.HasAccounting(err != nil || settings.Accounting)
	err = nil
	if configured {
		err = TryAccounting(ctx, e.Slurm, e.Now())
		site.Associations, _ = e.Slurm.Associations(ctx, site.User) // without a database nobody has accounts
	}
	e.add(Accounting(configured, err))
	if settings.Cluster != "" { // they are known
		e.learnLimits(ctx, &site, settings)
	}
	return &site
}

// TryAccounting returns why sacct does not answer, or nil.
func TryAccounting(ctx context.Context, slurm *sbatch.Client, now time.Time) error {
	_, err := slurm.QueryAccounting(ctx, now.Add(-time.Hour), sbatch.Which{Names: []string{"cl-doctor"}})
	return err
}

// LocalUser returns the name of the user of this process, or the number.
func LocalUser() string {
	me, err := user.Current()
	if err != nil {
		return fmt.Sprint(os.Getuid())
	}
	return me.Username
}

// queues judges the queues by what Slurm says. It returns the queues that accept a job,
// with the number of GPUs that the job has to ask for.
func (e *Examination) queues(ctx context.Context, site Site) (healthy map[string]int64) {
	healthy = map[string]int64{}
	queues := e.Config.Plan()
	for _, name := range e.Config.QueueNames() {
		if len(e.Only) > 0 && !slices.Contains(e.Only, name) {
			continue
		}
		q := queues[name]
		checks, gpus := Queue(q, site), int64(0)
		if one, _ := HasFailed(checks[:1]); !one {
			var err error
			gpus, err = canary.Ask(ctx, e.Slurm, q)
			checks = append(checks, Tried(q, site, err))
			if err == nil && q.PackRuns > 1 {
				of, _ := partition(q, site)
				q.Nodes = of.Sizes
				checks = append(checks, TriedPack(q, canary.AskPack(ctx, e.Slurm, q, gpus)))
			}
			checks = append(checks, Limits(q, plan.Policy{Queues: queues, Map: e.Config.Mappings()}.JobKinds(name), site.Limits)...)
		}
		e.add(checks...)
		if one, _ := HasFailed(checks); !one {
			healthy[name] = gpus
		}
	}
	return healthy
}

// holdJobs submits a held job to each queue, and judges what the site made of it.
func (e *Examination) holdJobs(ctx context.Context, gpus map[string]int64) {
	queues := e.Config.Plan()
	for _, name := range slices.Sorted(maps.Keys(gpus)) {
		h := Hold(ctx, e.Slurm, queues[name], gpus[name], e.Now)
		if ctx.Err() != nil {
			return
		}
		e.add(Rewritten(queues[name], h)...)
		if h.Err == nil && !e.clocked {
			e.clocked = true // one job tells enough
			e.add(ControllerClock(h.Clock))
		}
	}
}

// sendJobs sends a job to each queue, and judges what the jobs report.
func (e *Examination) sendJobs(ctx context.Context, site Site, gpus map[string]int64) {
	c := e.Config
	if e.silent || e.open || Writable(ctx, c.Shared) != nil {
		return // another check has failed for that
	}
	installed, err := sharedfiles.InstallPrograms(c, spool.Layout(c.Shared))
	if err != nil {
		e.add(failed("worker", err.Error(), "name the program cl-worker of this build as worker"))
		return
	}
	names := slices.Sorted(maps.Keys(gpus))
	e.add(Host(ctx, installed.Worker().Path, hostWithin))
	e.Sending(names)
	jobs := Jobs{Slurm: e.Slurm, Shared: c.Shared, Settle: c.DiskSettle.Duration, BeginWithin: e.Wait, Node: e.Node, Now: e.Now}
	queues, found := installed.Queues(c), make([][]Check, len(names))
	at := Place{Node: e.Node, Shared: c.Shared, Settle: c.DiskSettle.Duration, Architecture: string(config.Architecture("").Canonical()), IDs: ownIDs(), DiskClock: e.diskClock}
	var group errgroup.Group
	for i, name := range names {
		group.Go(func() error {
			q := queues[name]
			out := jobs.Run(ctx, q, max(gpus[name], oneGPU(q, site)), installed.Worker())
			found[i] = Node(q, at, out)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	found = Elsewhere(e.Node, names, found)
	if ctx.Err() == nil {
		e.add(slices.Concat(found...)...)
	}
}
