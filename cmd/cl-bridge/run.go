package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/cacheadmin"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/bridge/status"
	"github.com/cl-slurm/cl-slurm/bridge/trace"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func runCommand(p program.Process) *cobra.Command {
	s, t, debug := &site{Process: p}, tracing{limit: config.Size{Bytes: trace.DefaultLimit}}, false
	cmd := s.command("run", "Claim bundles and run them until a signal ends it", "", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		level := slog.LevelInfo
		if debug {
			level = slog.LevelDebug
		}
		log := slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: level}))
		return outdated(refusedLogin(serve(ctx, p, s.Config, t, log)), s.flags)
	})
	t.flags(cmd)
	cmd.Flags().BoolVar(&debug, "debug", false, "log what the bridge does in detail")
	return cmd
}

// serve builds the bridge and runs it.
func serve(ctx context.Context, p program.Process, c config.Config, t tracing, log *slog.Logger) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	cl, slurm, err := connect(ctx, p, c, log)
	if err != nil {
		return program.Usage(err)
	}
	book, release, err := takeLedger(ctx, c.Ledger)
	if err != nil {
		return err
	}
	defer release()
	layout := spool.Layout(c.Shared)
	installed, err := prepareSite(ctx, book, c, layout)
	if err != nil {
		return err
	}
	var b *bridge.Bridge
	now := steadyClock(time.Now())
	watched := &sbatch.Observer{Scheduler: slurm, Interval: c.Slurm.ObserveEvery.Duration, Now: now}
	judge := cacheadmin.Judge{Ledger: &book.Reader, Observe: watched.Observe, Now: now, Ready: func() bool { return b.Observed() }}
	content, err := cache.Open(cacheDir(c), cacheOptions(c, judge.Over))
	if err != nil {
		return err
	}
	stage, im := stager(p, c, cl, content, book.ID, now, imageJobs(c, watched, installed))
	b = &bridge.Bridge{
		Policy:     policy(c, book.ID, layout, installed, slurm),
		Name:       cmp.Or(c.Name, c.User+"-"+host),
		Hostname:   host,
		SharedDisk: c.ServerStore != "",
		Ledger:     book,
		Scheduler:  watched,
		Service:    cl,
		Spool:      spool.Disk{Layout: layout, Bridge: book.ID},
		Gauge:      spool.Disk{Layout: layout},
		Stager:     stage,
		Collector:  collector(c, cl, now),
		Log:        log,
		Now:        now,
		Settings:   slurm.Settings, Adapt: func(p *plan.Policy, s sbatch.Settings) { adapt(c.Slurm, p, s) },
		ObserveEvery:  watched.Interval,
		DoorbellEvery: 350 * time.Millisecond,
		ReadEvery:     5 * time.Second,
	}
	me := lease.Holder{Bridge: book.ID, Ledger: ledger.Name(c.Ledger), Host: host, Process: os.Getpid(), Started: now()}
	held, err := takeShared(ctx, layout, me, log)
	if err != nil {
		return err
	}
	heartbeats := status.Recorder{Bridge: b, Config: c, Ledger: book, Lease: held, Holder: me, Log: log}
	sweeps := sweeper(c, book, watched, installed.Paths(), now)
	return whileHeld(ctx, &heartbeats, func(ctx context.Context) error {
		return runBeside(ctx, func() error { return t.runBridge(ctx, b, log) },
			func(ctx context.Context) { tryHost(ctx, installed.Worker(), log) },
			func(ctx context.Context) { cacheadmin.KeepTrimmed(ctx, b.Observed, content, im, log) },
			func(ctx context.Context) { sweeps.Run(ctx, sweepFirst, sweepEvery, log) })
	})
}

// tryHost logs what this host lacks for containers.
func tryHost(ctx context.Context, worker string, log *slog.Logger) {
	if c := doctor.Host(ctx, worker); c.Verdict != doctor.OK && ctx.Err() == nil {
		log.WarnContext(ctx, "this host was tried", slog.String("found", c.Found), slog.String("do", c.Do))
	}
}

// whileHeld runs work beside the heartbeats that renew its lease, and ends it if the lease is
// lost.
func whileHeld(ctx context.Context, heartbeats *status.Recorder, work func(ctx context.Context) error) error {
	working, stop := context.WithCancelCause(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { stop(heartbeats.Run(working)) })
	err := work(working)
	stop(nil)
	beats.Wait()
	if lost := new(lease.LostError); errors.As(context.Cause(working), &lost) {
		return lost // and leave the lease to its new holder
	}
	heartbeats.End(ctx, err)
	return err
}

// takeShared takes the lease of the shared directory for a bridge that has locked its ledger.
func takeShared(ctx context.Context, layout spool.Layout, me lease.Holder, log *slog.Logger) (*lease.Lease, error) {
	// A holder with the same ledger had the lock that this bridge has now.
	over := func(h lease.Holder) bool {
		return h.Bridge == me.Bridge && h.Ledger == me.Ledger && (h.Host == me.Host || sqldb.IsURL(me.Ledger))
	}
	waiting := func(h lease.Holder) {
		log.WarnContext(ctx, "another bridge has not given up the shared directory; this one watches it for up to two minutes", slog.String("holder", h.String()))
	}
	l, err := lease.Acquire(ctx, layout.BridgeDir(), me, over, waiting)
	if err != nil {
		return nil, fmt.Errorf("start bridge: %w", err)
	}
	return l, nil
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

// steadyClock returns a clock that goes on from start. The bridge measures time with it, so
// that a change of the machine's clock does not matter.
func steadyClock(start time.Time) func() time.Time {
	return func() time.Time { return start.Round(0).Add(time.Since(start)) }
}

// prepareSite sets the ledger as configured, checks that the configuration and the shared
// directory fit the ledger's rows, and installs the programs of jobs.
func prepareSite(ctx context.Context, book *ledger.Ledger, c config.Config, layout spool.Layout) (sharedfiles.Programs, error) {
	book.KeepHistory = c.KeepHistory.Duration
	rows, err := book.Outline(ctx)
	if err != nil {
		return sharedfiles.Programs{}, err
	}
	if err := c.CheckRows(rows.Rows); err != nil {
		return sharedfiles.Programs{}, program.Usage(err)
	}
	if err := sharedfiles.Prepare(c, layout, len(rows.Rows)+len(rows.Done)); err != nil {
		return sharedfiles.Programs{}, err
	}
	return sharedfiles.InstallPrograms(c, layout)
}

// tracing says where the bridge records its decisions. An empty path means nowhere.
type tracing struct {
	path  string
	limit config.Size
}

func (t *tracing) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.path, "trace", "", "record each decision in `FILE`, for cl-bridge replay; it holds the commands of bundles")
	cmd.Flags().TextVar(&t.limit, "trace-size", t.limit, "how much FILE and FILE.1, its older part, may hold, a `SIZE` such as 500m")
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
