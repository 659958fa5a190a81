package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/bridge/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// disks tries the shared directory, the ledger's place, and the programs that this
// host needs.
func (e *examination) disks(ctx context.Context) {
	trouble := writable(e.Shared)
	var space diskspace.Space
	if trouble == nil {
		space, trouble = diskspace.Of(e.Shared) // the bridge has not made its directories yet
	}
	e.note(doctor.Shared(e.Shared, trouble, space, e.LowWater.LowWater)...)
	e.note(e.ledgerCheck(ctx))
	e.images(ctx)
}

// writable returns why this user cannot write to a directory, or nil.
func writable(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("look at it: %w", err)
	}
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return fmt.Errorf("write to it: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// ledgerCheck looks whether the ledger can be read, or made.
func (e *examination) ledgerCheck(ctx context.Context) doctor.Check {
	found := doctor.LedgerFound{Where: e.Ledger}
	var r *ledger.Reader
	if r, found.Err = ledger.OpenToRead(ctx, e.Ledger); found.Err == nil {
		running, err := ledger.Locked(ctx, e.Ledger)
		found.Running = err == nil && running
		_ = r.Close() // it was only read
	}
	if !sqldb.IsURL(e.Ledger) {
		dir := existing(filepath.Dir(e.Ledger))
		found.Network = diskspace.Network(dir)
		if errors.Is(found.Err, ledger.ErrAbsent) {
			found.Unwritable = writable(dir)
		}
	}
	return doctor.Ledger(found)
}

// existing returns the directory, or the nearest one above it that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
