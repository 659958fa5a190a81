package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/trace"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

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
	w.Limit, b.Trace = t.limit.Bytes, w.Record
	var writing sync.WaitGroup
	ended, end := context.WithCancel(context.WithoutCancel(ctx)) // the trace ends after the bridge
	writing.Go(func() { w.Run(ended) })
	err = b.Run(ctx)
	end()
	writing.Wait()
	return err
}
