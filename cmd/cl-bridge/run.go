package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/metrics"
	"github.com/cl-slurm/cl-slurm/bridge/trace"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/metrics/registry"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func runCommand(p program.Process) *cobra.Command {
	s, r := &site{Process: p}, running{tracing: tracing{limit: config.Size{Bytes: trace.DefaultLimit}}}
	cmd := s.command("run", "Claim bundles and run them until a signal ends it", aboutRun, cobra.NoArgs, func(ctx context.Context, _ []string) error {
		r.log = p.LogAs(*r.format, r.debug)
		ctx, hangups, stop := reloadSignals(ctx)
		defer stop()
		r.reread = assembly.Rereading{Asked: hangups, Read: s.readAgain}
		err := outdated(refusedLogin(serve(ctx, p, s.Config, &r)), s.flags)
		if r.once {
			return r.passCode(err)
		}
		return err
	})
	r.flags(cmd)
	return cmd
}

const aboutRun = `cl-bridge run claims bundles and runs them until SIGTERM or SIGINT ends it.

At SIGHUP (systemctl --user reload cl-bridge) it reads the configuration again, and
logs each key that it follows from then on. It names the keys that have changed and
that it follows only after a new start. It keeps to what it has if the file is wrong.

With --once it makes one pass, for cron: it takes up its bundles, claims, stages and
submits new ones, delivers those that have ended, and ends when it has nothing more to do
for now. Jobs wait and run in Slurm until the next pass. If the server misses the bridge
for a minute, it shows their bundles as worker_offline, until the next pass reports them:
none is lost. A pass refuses to begin while another bridge works on the ledger.

Exit codes of a pass: 0 it did all that it could do; 1 bundles wait until a failure is
mended (cl-bridge status), or the pass failed; 2 the command line or the configuration
is wrong; 3 the server, Slurm or the shared disk did not answer, or another bridge works
on the ledger; 4 the server refused the login.`

// running are the flags of the command run, and what comes with them.
type running struct {
	tracing

	metricsListen string
	format        *program.LogFormat
	debug         bool
	once          bool
	left          bridge.Pass // what a pass has left
	log           *slog.Logger
	reread        assembly.Rereading
}

func (r *running) flags(cmd *cobra.Command) {
	r.tracing.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&r.metricsListen, "metrics-listen", "", "the `address` to serve /metrics on, instead of the configuration's")
	r.format = program.LogFormatFlag(f)
	program.CompleteLogFormat(cmd)
	f.BoolVar(&r.debug, "debug", false, "log in detail")
	f.BoolVar(&r.once, "once", false, "make one pass and end, for cron")
}

// readAgain reads the configuration again, with the ledger of the start.
func (s *site) readAgain() (config.Config, error) {
	again := site{Process: s.Process, flags: s.flags}
	err := again.read()
	return again.Config, err
}

// The bounds of a pass. The server holds a check-in for five seconds, and CodaLab's own offers one bundle in each pass of
// its manager.
const (
	passQuiet      = 12 * time.Second
	passPatience   = time.Minute
	passStuckAfter = 30 * time.Minute
)

// pass makes a bridge end after a pass.
func (r *running) pass(b *bridge.Bridge) {
	b.Once = &bridge.Once{Quiet: passQuiet, Patience: passPatience, StuckAfter: passStuckAfter, Ended: func(left bridge.Pass) { r.left = left }}
}

// passCode returns the error of a pass with its exit code.
func (r *running) passCode(err error) error {
	switch {
	case errors.Is(err, ledger.ErrLocked), errors.Is(err, bridge.ErrAway):
		return &program.Error{Code: program.ExitTransient, Err: err}
	case err == nil && r.left.Ailing+r.left.Unfinished > 0:
		return &program.Error{Code: program.ExitFailure}
	}
	return err
}

// heapGrowth is the percentage by which the heap may grow before garbage is collected; Go's default is 100. A bridge lives
// on a login node, where many users share the memory, and uses little processor time. A small heap would grow by a few megabytes
// only, and a bridge with many short runs would collect garbage several times a second. So heapBallast, which nobody touches
// and which takes no memory, counts as well: the heap may always grow by 16 MiB.
const (
	heapGrowth  = 50
	heapBallast = 32 << 20
)

// serve builds the bridge and runs it.
func serve(ctx context.Context, p program.Process, c config.Config, r *running) error {
	log := r.log
	if p.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
		if p.Getenv("GOMEMLIMIT") == "" {
			defer runtime.KeepAlive(make([]byte, heapBallast))
		}
	}
	if r.once { // passes that wait for the disk would pile up: cron begins the next one all the same
		for _, dir := range []string{c.Shared, assembly.CacheDir(c)} {
			if err := diskspace.Answers(ctx, dir); err != nil {
				return fmt.Errorf("start bridge: %w", err)
			}
		}
	}
	cl, slurm, err := connect(ctx, p, c, log)
	if err != nil {
		return program.Usage(err)
	}
	counts := metrics.New(p.Now)
	slurm.Watch = counts.Call
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	page := registry.NewPage("cl_bridge_", prometheus.Labels{"bridge": c.BridgeName(host)}, log, counts)
	page.Address, page.File = cmp.Or(r.metricsListen, c.MetricsListen), c.MetricsFile
	tryHost := doctor.LogHost(log)
	if r.once {
		tryHost = nil // cron begins a pass every few minutes
	}
	return assembly.Assembly{
		Process: p, Config: c, Log: log,
		Client:      cl,
		Scheduler:   func(context.Context) (sbatch.Scheduler, error) { return slurm, nil },
		SubmitBound: slurm.SubmitBound(),
		Settings:    slurm.Settings,
		Turns:       slurm.Turns,
		Limits:      assembly.SlurmLimits{Slurm: slurm, User: doctor.LocalUser()},
		Energy:      slurm.QueryChargesOf,
		Describe:    slurm.Describe,
		Counts:      counts,
		Reread:      r.reread,
		Run: func(ctx context.Context, b *bridge.Bridge) error {
			if r.once {
				r.pass(b)
			}
			return page.Around(ctx, func() error { return r.runBridge(ctx, b, log) })
		},
		TryHost: tryHost,
	}.Serve(ctx)
}

// tracing is the file to which the bridge records its decisions; an empty path records
// none.
type tracing struct {
	path  string
	limit config.Size
}

func (t *tracing) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.path, "trace", "", "record each decision in `FILE`, for cl-bridge replay; it holds the commands of bundles")
	cmd.Flags().TextVar(&t.limit, "trace-size", t.limit, "the largest `SIZE` of FILE and FILE.1, its older part, such as 500m")
}

// runBridge runs a bridge and records its decisions.
func (t tracing) runBridge(ctx context.Context, b *bridge.Bridge, log *slog.Logger) error {
	if t.path == "" {
		return b.Run(ctx)
	}
	w, err := trace.Open(t.path, trace.Header{Build: program.Version(), Began: b.Now(), Policy: b.Policy}, log)
	if err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	w.Limit, b.Trace, b.TracePolicy = t.limit.Bytes, w.Record, w.SetPolicy
	var writing sync.WaitGroup
	ended, end := context.WithCancel(context.WithoutCancel(ctx)) // the trace ends after the bridge
	writing.Go(func() { w.Run(ended) })
	err = b.Run(ctx)
	end()
	writing.Wait()
	return err
}
