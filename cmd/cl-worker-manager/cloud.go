package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// service is a batch system in a cloud. It is a command of the program, and its flags are those of one call.
type service interface {
	// describe returns the name of the command, and its texts.
	describe() (name, short, long string)
	// addFlags adds the flags that only this service has.
	addFlags(flags *pflag.FlagSet)
	// open returns the backend. It fails for flags that contradict each other or have invalid values, and for a login
	// that cannot be read. It asks the service nothing.
	open(ctx context.Context, w cloudWorkers) (cloudBackend, error)
	// exposed returns a warning for each secret on the command line, which other users of this machine can read.
	exposed() []string
}

// services returns the clouds, with the flags of one call each.
func services() []service { return []service{&awsBatch{}, &azureBatch{}, &inKubernetes{}} }

// cloudBackend is the backend of a cloud.
type cloudBackend interface {
	pilot.Backend
	// Preview returns the request by which Start would start a pilot, as a text without secrets.
	Preview(name string) (string, error)
	// Check tries the needs of a manager: the service's answer, the login, each permission, the queue. It
	// changes nothing.
	Check(ctx context.Context) []pilot.Finding
}

// watcher is a backend that watches its pilots. Its Run blocks until ctx ends, and fails if it cannot watch at all. Without
// Run, Pilots asks the service each time.
type watcher interface {
	Run(ctx context.Context) error
}

// cloudWorkers are the flags that all clouds have, for a backend.
type cloudWorkers struct {
	// Mark is the manager's name, by which its workers are recognized.
	Mark string
	// Image is the workers' image.
	Image string
	// Worker is the command line without a work directory. WorkDirPrefix may be empty.
	Worker        pilot.Worker
	WorkDirPrefix string
	// CPUs, GPUs and MemoryMB are the capacity of a worker.
	CPUs, GPUs, MemoryMB int64
	// User and Password are the login of workers without a token; empty for a command that starts nothing.
	User, Password string
	Log            *slog.Logger
	Now            func() time.Time
	Getenv         func(string) string
}

// cloud is one call of a cloud's command.
type cloud struct {
	*manager
	service
	mark          string
	login         loginFiles
	shape         pilot.Shape
	memoryMB      int64
	dryRun, check bool
	mostFailed    int
}

func (m *manager) cloudCommand(s service) *cobra.Command {
	c := &cloud{manager: m, service: s}
	name, short, long := s.describe()
	cmd := &cobra.Command{
		Use: name, Short: short, Args: program.WrongUsage(cobra.NoArgs),
		Long: long + `

End it with an interrupt: its workers continue. The same command line with status,
logs WORKER or kill WORKER at its end shows or ends them.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.manageWorkers(cmd.Context()) },
	}
	cmd.TraverseChildren = true
	flags := cmd.PersistentFlags()
	flags.SortFlags = false
	s.addFlags(flags)
	c.addFindFlags(flags)
	flags.Int64Var(&c.shape.CPUs, "cpus", 1, "`number` of CPUs of a worker")
	flags.Int64Var(&c.shape.GPUs, "gpus", 0, "`number` of GPUs of a worker")
	flags.Int64Var(&c.memoryMB, "memory-mb", 2048, "memory of a worker in `MiB`")
	flags.BoolVar(&c.dryRun, "dry-run", false, "print the request for a worker, send nothing, and end")
	flags.BoolVar(&c.check, "check", false, "try the login at the server and all that the manager needs of the service, change nothing, and end")
	flags.IntVar(&c.mostFailed, "exit-after-num-failed", -1, "end when more than this `number` of workers have failed to start (default: never)")
	flags.Lookup("exit-after-num-failed").DefValue = "0" // -1 means nothing to people
	completeFlags(cmd, flags)
	cmd.AddCommand(m.workersCommands(c, false)...)
	return cmd
}

// longestMark leaves room for the digits of a worker in the 64 characters of an Azure task.
const longestMark = 20

func (c *cloud) addFindFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.mark, "manager-name", "codalab", "`name` by which this manager recognizes its workers; managers in the same place need different ones")
	c.login.addFlags(flags)
}

func (c *cloud) checkFlags() error {
	if err := c.manager.check(); err != nil {
		return err
	}
	if err := c.checkShape(); err != nil {
		return program.Usage(err)
	}
	switch {
	case c.dryRun && c.check:
		return program.Usage(errors.New("--dry-run and --check exclude each other"))
	case !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`).MatchString(c.mark) || len(c.mark) > longestMark:
		return program.Usage(fmt.Errorf("--manager-name %q: want up to %d small letters, digits and dashes, with no dash at an end", c.mark, longestMark))
	}
	return nil
}

// openBackend returns the backend. The login is that of workers without a token.
func (c *cloud) openBackend(ctx context.Context, server string, login account.Login) (cloudBackend, error) {
	if err := c.checkFlags(); err != nil {
		return nil, err
	}
	w := &c.worker
	b, err := c.open(ctx, cloudWorkers{
		Mark: c.mark, Image: c.image(), WorkDirPrefix: w.workDirPrefix, CPUs: c.shape.CPUs, GPUs: c.shape.GPUs, MemoryMB: c.memoryMB,
		Worker: pilot.Worker{
			Executable: w.executable, Server: server, IdleSeconds: w.idleSeconds, Arguments: c.arguments(),
		},
		User: login.User, Password: login.Password, Log: c.logger(), Now: c.Now, Getenv: c.Getenv,
	})
	return b, usage(err)
}

// checkPrefix fails if --worker-work-dir-prefix is no directory of the machines that a service's workers share.
func (w cloudWorkers) checkPrefix(machines string) error {
	if w.WorkDirPrefix != "" && !filepath.IsAbs(w.WorkDirPrefix) {
		return fmt.Errorf("--worker-work-dir-prefix %s: want an absolute path on the %s", w.WorkDirPrefix, machines)
	}
	return nil
}

// keeper is a service whose machines may keep an image that no registry has.
type keeper interface{ keepsImages() }

// image returns the workers' image; empty if there is none.
func (c *cloud) image() string {
	kept := ""
	if _, ok := c.service.(keeper); ok {
		kept = ownImage + ":" + program.ImageTag()
	}
	return cmp.Or(c.worker.image, c.Getenv("CL_WORKER_IMAGE"), kept)
}

// arguments are those of a worker in a cloud. A cloud may take its machine at any time, so that the worker tells the
// server that it is preemptible: the server stages the runs of such a worker again when it has gone.
func (c *cloud) arguments() []string {
	w := c.worker
	w.preemptible = true
	return w.arguments()
}

func (c *cloud) openFound(ctx context.Context) (pilot.Backend, error) {
	if err := c.checkOrder(); err != nil {
		return nil, err
	}
	return c.openBackend(ctx, "", account.Login{})
}

func (c *cloud) settings(string) (settings, error) {
	server, err := c.address()
	shape := c.shape
	shape.Memory, shape.Tag, shape.Exclusive, shape.Runs = c.memoryMB<<20, c.worker.tag, c.worker.tagExclusive, c.worker.exitAfterRuns
	return settings{
		record: record{Server: server, Search: c.search.List, Shape: shape, Min: c.min, Max: c.max}, shaped: true, login: c.login,
	}, err
}

func (c *cloud) manageWorkers(ctx context.Context) error {
	if err := c.checkFlags(); err != nil {
		return err
	}
	if err := c.checkImage(); err != nil {
		return program.Usage(err)
	}
	s, err := c.settings("")
	if err != nil {
		return err
	}
	if c.dryRun || c.check {
		return c.show(ctx, s.Server)
	}
	login, err := c.login.find(ctx, c.Process, s.Server, "")
	if err != nil {
		return err
	}
	api, err := login.connect(s.Server, c.device(s.Server))
	if err == nil {
		err = login.findUser(ctx, api, c.once, c.Process, c.logger())
	}
	if err != nil {
		return err
	}
	b, err := c.openBackend(ctx, s.Server, login.Login)
	if err != nil {
		return err
	}
	s.Everybody = login.User == rootUser
	loop := s.manager(api, b, c.Now)
	c.bound(loop)
	loop.MostFailed = c.mostFailed
	for _, warning := range c.exposed() {
		loop.Log.WarnContext(ctx, "a secret is on the command line", slog.String("advice", warning))
	}
	if onLoopback(s.Server) {
		loop.Log.WarnContext(ctx, loopbackWarning, slog.String("server", s.Server))
	}
	if c.once {
		return loop.Once(ctx)
	}
	return c.watch(ctx, api, b, loop)
}

func (c *cloud) command() string {
	name, _, _ := c.describe()
	return "cl-worker-manager " + name + " …"
}

// watch runs the loop, and the watch of a backend that has one.
func (c *cloud) watch(ctx context.Context, api *client.Client, b cloudBackend, loop *pilot.Manager) error {
	name, _, _ := c.describe()
	as := running{api: api, loop: loop, backend: name, name: name + "-" + c.mark, command: c.command()}
	w, watches := b.(watcher)
	if !watches {
		return c.run(ctx, as)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := background.Go(func() {
		if err := w.Run(ctx); err != nil && ctx.Err() == nil {
			stop(err)
		}
	})
	err := c.run(ctx, as)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	stop(nil)
	<-ended
	return err
}

// show prints the request for a worker, or whether the needs of a manager are met.
func (c *cloud) show(ctx context.Context, server string) error {
	b, err := c.openBackend(ctx, server, account.Login{})
	if err != nil {
		return err
	}
	if c.check {
		return c.tryNeeds(ctx, server, b)
	}
	text, err := b.Preview(b.NewName())
	if err != nil {
		return err
	}
	return c.Print(false, nil, strings.TrimRight(text, "\n")+"\n")
}
