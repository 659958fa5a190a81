package assembly

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// A bridge that was silent for two minutes ends when it comes back if another bridge has taken its
// shared directory. Its error names the new holder, and it does not touch the directory.
func TestBridgeWhoseSharedDirectoryWasTakenEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var held [2]*lease.Lease
	for i, name := range []string{"first", "second"} {
		var err error
		held[i], err = lease.Acquire(t.Context(), filepath.Join(dir, "bridge"), lease.Holder{Bridge: name}, func(lease.Holder) bool { return true }, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	beats := heartbeat.Recorder{Bridge: &bridge.Bridge{Config: bridge.Config{Now: time.Now, Log: log}}, Lease: held[0], Log: log}
	beats.Config = func() config.Config { return config.Config{Shared: dir, Ledger: filepath.Join(dir, "ledger.db")} }
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	err := whileHeld(ctx, &beats, func(ctx context.Context) error { <-ctx.Done(); return nil })
	var lost *lease.LostError
	if !errors.As(err, &lost) || lost.Holder.Bridge != "second" || ctx.Err() != nil {
		t.Errorf("the bridge ends with %v, want the new holder", err)
	}
	if state, err := lease.Read(filepath.Join(dir, "bridge")); err != nil || state.Ended || state.Holder.Bridge != "second" {
		t.Errorf("the lease is %+v, %v", state, err)
	}
}
