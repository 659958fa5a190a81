package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/cacheadmin"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/status"
	"github.com/cl-slurm/cl-slurm/bridge/trace"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/results"
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
		return &program.Error{Code: program.ExitUsage, Err: err}
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
	stage := stager(p, c, cl, content, book.ID, now, imageJobs(c, watched, installed))
	b = &bridge.Bridge{
		Policy:        policy(c, book.ID, layout, installed, slurm),
		Name:          cmp.Or(c.Name, c.User+"-"+host),
		Hostname:      host,
		SharedDisk:    c.ServerStore != "",
		Ledger:        book,
		Scheduler:     watched,
		Service:       cl,
		Spool:         spool.Disk{Layout: layout},
		Gauge:         spool.Disk{Layout: layout},
		Stager:        stage,
		Collector:     &results.Collector{Contents: cl, Store: serverStore(c), Layout: layout, Now: now},
		Log:           log,
		Now:           now,
		ObserveEvery:  watched.Interval,
		DoorbellEvery: 350 * time.Millisecond,
		ReadEvery:     5 * time.Second,
	}
	path, err := heartbeatFile(p, c, book.ID)
	if err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	heartbeats := status.Recorder{Bridge: b, Path: path, Host: host, Process: os.Getpid(), Started: now()}
	sweeps := sweeper(c, book, watched, installed.Paths(), now)
	err = runBeside(ctx, func() error { return t.runBridge(ctx, b, log) },
		func(ctx context.Context) { cacheadmin.KeepTrimmed(ctx, b.Observed, content, stage.Images, log) },
		func(ctx context.Context) { sweeps.Run(ctx, sweepFirst, sweepEvery, log) },
		heartbeats.Run)
	heartbeats.End(err)
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

// steadyClock returns a clock that goes on from start. The bridge measures time with it, so
// that a change of the machine's clock does not matter.
func steadyClock(start time.Time) func() time.Time {
	return func() time.Time { return start.Round(0).Add(time.Since(start)) }
}
