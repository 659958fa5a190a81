package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/trace"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func runCommand(p program.Process) *cobra.Command {
	s, t, debug := &site{Process: p}, tracing{limit: config.Size{Bytes: trace.DefaultLimit}}, false
	cmd := s.command("run", "Claim bundles and run them until a signal ends it", "", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		return outdated(refusedLogin(serve(ctx, p, s.Config, t, p.Log(debug))), s.flags)
	})
	t.flags(cmd)
	cmd.Flags().BoolVar(&debug, "debug", false, "log in detail")
	return cmd
}

// serve builds the bridge and runs it.
func serve(ctx context.Context, p program.Process, c config.Config, t tracing, log *slog.Logger) error {
	cl, slurm, err := connect(ctx, p, c, log)
	if err != nil {
		return program.Usage(err)
	}
	return assembly.Assembly{
		Process: p, Config: c, Log: log,
		Client:      cl,
		Scheduler:   func(context.Context) (sbatch.Scheduler, error) { return slurm, nil },
		SubmitBound: slurm.SubmitBound(),
		Settings:    slurm.Settings,
		Run:         func(ctx context.Context, b *bridge.Bridge) error { return t.runBridge(ctx, b, log) },
		TryHost:     doctor.LogHost(log),
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
