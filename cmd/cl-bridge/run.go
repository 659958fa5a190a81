package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/holders"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/observer"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/programs"
	"github.com/cl-slurm/cl-slurm/bridge/status"
	"github.com/cl-slurm/cl-slurm/bridge/trace"
	"github.com/cl-slurm/cl-slurm/bridge/upkeep"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging"
	"github.com/cl-slurm/cl-slurm/staging/inputs"
	"github.com/cl-slurm/cl-slurm/staging/results"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

const about = `cl-bridge claims bundles from a CodaLab server and runs each as a Slurm job.

It runs on a login node as an ordinary user. Jobs go on when it stops, and it
takes them up again when it is started on the same ledger.
cl-bridge status says how it stands and cl-bridge explain where a bundle is and
why, also while the bridge runs.

Exit codes: 0 ended by a signal; 1 refused or failed; 2 the command line or the
configuration is wrong; 3 the server did not answer, try again later; 4 the
server refused the login, or the user: mend that before another try.`

func run(ctx context.Context, p program.Process) error {
	root := program.Root(p, "cl-bridge", "Run a CodaLab server's bundles as Slurm jobs", about)
	for _, add := range []func(program.Process) *cobra.Command{
		initCommand, doctorCommand, runCommand, replayCommand, explainCommand, statusCommand, recoverCommand, sweepCommand, cacheCommand, imageCommand, keptCommand, configCommand,
	} {
		root.AddCommand(add(p))
	}
	return root.ExecuteContext(ctx) //nolint:wrapcheck // the commands say what it was about
}

// options are run's flags.
type options struct {
	place
	trace tracing
	debug bool
}

func runCommand(p program.Process) *cobra.Command {
	o := options{trace: tracing{limit: config.Size{Bytes: trace.DefaultLimit}}}
	cmd := &cobra.Command{
		Use: "run", Short: "Claim bundles and run them until a signal ends it", Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.read(p)
			if err != nil {
				return err
			}
			level := slog.LevelInfo
			if o.debug {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: level}))
			return outdated(refusedLogin(unavailable(serve(cmd.Context(), p, c, o.trace, log))), o.config, o.ledger)
		},
	}
	o.flags(cmd, p)
	o.trace.flags(cmd)
	cmd.Flags().BoolVar(&o.debug, "debug", false, "log what the bridge does in detail")
	return cmd
}

// serve builds the bridge of its parts and runs it.
func serve(ctx context.Context, p program.Process, c config.Config, t tracing, log *slog.Logger) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	cl, err := findServer(ctx, c, log)
	if err != nil {
		return &program.Error{Code: program.ExitUsage, Err: err}
	}
	slurm, err := findSlurm(ctx, p, c, log)
	if err != nil {
		return &program.Error{Code: program.ExitUsage, Err: err}
	}
	book, release, err := takeLedger(ctx, c.Ledger)
	if err != nil {
		return err
	}
	defer release()
	layout := spool.Layout(c.Shared)
	installed, err := takeUp(ctx, book, c, layout)
	if err != nil {
		return err
	}
	var b *bridge.Bridge
	now := steady(time.Now())
	watched := &observer.Observer{Slurm: slurm, Every: c.Slurm.ObserveEvery.Duration, Now: now}
	judge := holders.Judge{Ledger: &book.Reader, Observe: watched.Observe, Now: now, Ready: func() bool { return b.Observed() }}
	content, err := cache.Open(cacheDir(c), cacheOptions(c, judge.Over))
	if err != nil {
		return err
	}
	brings := stager(p, c, cl, content, book.ID, now, imageJobs(c, watched, installed))
	b = &bridge.Bridge{
		Policy:       policy(c, book.ID, layout, installed, slurm),
		Name:         cmp.Or(c.Name, c.User+"-"+host),
		Hostname:     host,
		SharedDisk:   c.ServerStore != "",
		Ledger:       book,
		Scheduler:    watched,
		Service:      cl,
		Spool:        spool.Disk{Layout: layout},
		Gauge:        spool.Disk{Layout: layout},
		Stager:       brings,
		Collector:    &results.Collector{Contents: cl, Store: serverStore(c), Layout: layout, Now: now},
		Log:          log,
		Now:          now,
		ObserveEvery: watched.Every,
		DoorbellEvery:    350 * time.Millisecond,
		ReadEvery:    5 * time.Second,
	}
	heartbeat, err := heartbeatFile(p, c, book.ID)
	if err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	s := sweeper(c, book, watched, installed.Paths(), now)
	r := status.Recorder{Bridge: b, Path: heartbeat, Host: host, Process: os.Getpid(), Started: now()}
	err = runBeside(ctx, func() error { return t.run(ctx, b, log) },
		func(ctx context.Context) { upkeep.Run(ctx, b, content, brings.Images, log) },
		func(ctx context.Context) { s.Run(ctx, sweepFirst, sweepEvery, log) },
		r.Run)
	r.End(err)
	return err
}

// heartbeatFile returns the file of a bridge's heartbeat.
func heartbeatFile(p program.Process, c config.Config, bridge string) (string, error) {
	return status.HeartbeatFile(c.Ledger, bridge, func() (string, error) { return userDir(p, "XDG_STATE_HOME", ".local", "state") })
}

// runBeside runs work, and the others in the background until work has ended.
func runBeside(ctx context.Context, work func() error, others ...func(ctx context.Context)) error {
	ctx, stop := context.WithCancel(ctx)
	var g sync.WaitGroup
	for _, do := range others {
		g.Go(func() { do(ctx) })
	}
	err := work()
	stop()
	g.Wait()
	return err
}

// steady is a clock that goes on from start whoever sets the machine's: what
// the bridge measures must not depend on that.
func steady(start time.Time) func() time.Time {
	return func() time.Time { return start.Round(0).Add(time.Since(start)) }
}

// findServer makes sure that there are credentials. Whether the server answers,
// and takes them, the first check-in shows.
func findServer(ctx context.Context, c config.Config, log *slog.Logger) (*client.Client, error) {
	if _, _, err := c.Credentials(ctx); err != nil {
		return nil, err
	}
	return client.New(c.Server, client.Options{ClientID: client.WorkerClient, Credentials: c.Credentials, Log: log})
}

// exitDenied is the exit code of a bridge that the server refuses: another try
// with the same login is of no use, and a service manager does not make one.
const exitDenied = 4

// refusedLogin gives an error the exit code exitDenied if the server has refused the
// login, or this user's first check-in.
func refusedLogin(err error) error {
	var refused *codalab.Error
	if errors.Is(err, client.ErrCredentials) || errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden) {
		return &program.Error{Code: exitDenied, Err: fmt.Errorf("%w; \"cl-bridge doctor\" tries the login", err)}
	}
	return err
}

// slurmClient returns a client of the site's Slurm. slurm.conf is the configured one, or
// else the one of the environment.
func slurmClient(p program.Process, c config.Config) *sbatch.Client {
	return &sbatch.Client{Bin: c.Slurm.Bin, Conf: cmp.Or(c.Slurm.Conf, p.Getenv("SLURM_CONF"))}
}

// findSlurm makes sure that Slurm's commands are there. Whether its controller
// answers is not asked: that may change at any time.
func findSlurm(ctx context.Context, p program.Process, c config.Config, log *slog.Logger) (*sbatch.Client, error) {
	slurm := slurmClient(p, c)
	version, err := slurm.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w; slurm.bin and slurm.conf in the configuration say where Slurm is", err)
	}
	log.InfoContext(ctx, "found Slurm", slog.String("version", version))
	return slurm, nil
}

// takeUp makes sure that the configuration and the shared directory fit what the
// ledger has, and returns the workers' programs there.
func takeUp(ctx context.Context, book *ledger.Ledger, c config.Config, layout spool.Layout) (programs.Installed, error) {
	rows, err := book.Rows(ctx)
	if err != nil {
		return programs.Installed{}, err
	}
	if err := checkQueues(c, rows); err != nil {
		return programs.Installed{}, &program.Error{Code: program.ExitUsage, Err: err}
	}
	if err := errors.Join(prepareShared(layout, len(rows)), mayRead(c.ServerStore)); err != nil {
		return programs.Installed{}, err
	}
	return programs.Install(c, layout)
}

// checkQueues refuses a configuration that lacks a queue of which the ledger
// still has bundles: nobody would report their ends.
func checkQueues(c config.Config, rows []plan.Row) error {
	for _, r := range rows {
		if r.Phase != plan.Done && c.Queue[r.Queue] == nil {
			return fmt.Errorf("[queue.%s] is gone from the configuration, and bundle %s of it is %s: keep the queue until its bundles have ended",
				r.Queue, r.Bundle, r.Phase)
		}
	}
	return nil
}

// prepareShared makes the parts of the shared directory. Where the ledger has
// bundles they have to be there already, but for that of kept results, which
// earlier versions did not make: an empty directory then is one on which the
// shared disk is not mounted.
func prepareShared(layout spool.Layout, bundles int) error {
	for _, dir := range layout.Directories() {
		if _, err := os.Stat(dir); err != nil && bundles > 0 && dir != layout.KeptDirs() {
			return fmt.Errorf("the shared directory does not hold the files of the %d bundles in the ledger: is its disk mounted? (%w)", bundles, err)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("prepare shared directory: %w", err)
		}
	}
	return nil
}

// orphanGrace is how long a job that no bundle stands for is left alone.
const orphanGrace = 10 * time.Minute

func policy(c config.Config, id string, layout spool.Layout, installed programs.Installed, slurm *sbatch.Client) plan.Policy {
	return plan.Policy{
		Bridge: id, Owner: c.User, Layout: layout, Worker: installed.Worker(), Queues: installed.Queues(c),
		SubmitGrace:     slurm.SubmitBound() + 20*time.Second,
		OrphanGrace:     orphanGrace,
		CancelOrphans:   *c.CancelStrays,
		RecordAge:       c.Slurm.MinJobAge.Duration,
		Accounting:      *c.Slurm.Accounting,
		Settle:          c.DiskSettle.Duration,
		StuckFor:        5 * time.Second,
		StagePatience:   c.StagePatience.Duration,
		OutagePatience:  c.OutagePatience.Duration,
		CollectPatience: c.CollectPatience.Duration,
		AckPatience:     10 * time.Minute,
		MaxAttempts:     c.MaxAttempts,
		KeepAfterAck:    c.KeepAfterAck.Duration,
		LowWater:        c.LowWater.LowWater,
	}
}

// downloadPace bounds all downloads together; nil where they are not bounded.
func downloadPace(c config.Config) *transfer.Pace {
	if c.Staging.Bandwidth.Bytes == 0 {
		return nil
	}
	return transfer.NewPace(c.Staging.Bandwidth.Bytes)
}

func stager(p program.Process, c config.Config, cl *client.Client, content *cache.Cache, bridge string, now func() time.Time, made convert) *staging.Stager {
	pace := downloadPace(c)
	var public func(context.Context, string) (bool, error)
	if c.Cache.Group {
		public = cl.Public
	}
	links := inPlace(c, cl, spool.Layout(c.Shared), now)
	files, from := imageFiles(c, links), imageSource(p, c, pace)
	if files != nil {
		from.OpenFile = files.Open
	}
	im := newImages(c, content, from)
	im.Files, im.Now, im.Convert = files, now, made
	return &staging.Stager{
		Images: im,
		Dependencies: &inputs.Dependencies{
			Contents: cl,
			Cache:    content,
			Public:   public,
			Limits:   tarstream.Limits{Bytes: c.Staging.MaxDependency.Bytes, Entries: int64(c.Staging.MaxFiles)},
			LowWater: c.LowWater.Of,
			AtOnce:   c.Staging.Downloads,
			Pace:     pace,
			Links:    links,
			Store:    serverStore(c),
			Layout:   spool.Layout(c.Shared),
		},
		Holder: func(bundle string) cache.Holder { return holders.Row(bridge, bundle) },
	}
}
