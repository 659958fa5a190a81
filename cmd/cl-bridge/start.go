package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/spool"
)

// prepareSite fails where the configuration or the shared directory does not fit the
// ledger's bundles. It installs the programs of jobs.
func prepareSite(ctx context.Context, book *ledger.Ledger, c config.Config, layout spool.Layout) (sharedfiles.Programs, error) {
	rows, err := book.Rows(ctx)
	if err != nil {
		return sharedfiles.Programs{}, err
	}
	if err := checkQueues(c, rows); err != nil {
		return sharedfiles.Programs{}, &program.Error{Code: program.ExitUsage, Err: err}
	}
	if err := errors.Join(prepareShared(layout, len(rows)), checkReadable(c.ServerStore)); err != nil {
		return sharedfiles.Programs{}, err
	}
	return sharedfiles.InstallPrograms(c, layout)
}

// checkQueues refuses a configuration that lacks a queue of which the ledger still has
// bundles: no check-in would report their ends.
func checkQueues(c config.Config, rows []plan.Row) error {
	for _, r := range rows {
		if r.Phase != plan.Done && c.Queue[r.Queue] == nil {
			return fmt.Errorf("[queue.%s] is gone from the configuration, and bundle %s of it is %s: keep the queue until its bundles have ended",
				r.Queue, r.Bundle, r.Phase)
		}
	}
	return nil
}

// prepareShared makes the parts of the shared directory. Where the ledger has bundles, the
// parts must exist: else the shared disk is not mounted. The part of kept results may be
// absent, because earlier versions did not make it.
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

// checkReadable fails where the server's store is configured and cannot be read.
func checkReadable(store string) error {
	if store == "" {
		return nil
	}
	d, err := os.Open(store)
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		return fmt.Errorf("open server_store: %w", err)
	}
	return nil
}
