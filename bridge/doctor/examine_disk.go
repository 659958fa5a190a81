package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// disks checks the shared directory and the ledger's place.
func (e *Examination) disks(ctx context.Context) {
	shared := e.Config.Shared
	trouble := Writable(shared)
	var space diskspace.Space
	if trouble == nil {
		space, trouble = diskspace.Of(shared) // the bridge has not made its directories yet
	}
	e.add(Shared(shared, trouble, space, e.Config.LowWater.LowWater)...)
	e.add(e.ledger(ctx))
}

// Writable returns why this user cannot write to a directory, or nil.
func Writable(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("look at it: %w", err)
	}
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return fmt.Errorf("write to it: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// ledger checks whether the ledger can be read, or made.
func (e *Examination) ledger(ctx context.Context) Check {
	where := e.Config.Ledger
	found := LedgerFound{Where: where}
	var r *ledger.Reader
	if r, found.Err = ledger.OpenToRead(ctx, where); found.Err == nil {
		running, err := ledger.Locked(ctx, where)
		found.Running = err == nil && running
		_ = r.Close() // it was only read
	}
	if !sqldb.IsURL(where) {
		dir := nearestDir(filepath.Dir(where))
		found.Network = diskspace.Network(dir)
		if errors.Is(found.Err, ledger.ErrAbsent) {
			found.Unwritable = Writable(dir)
		}
	}
	return Ledger(found)
}

// nearestDir returns the directory, or the nearest one above it that exists.
func nearestDir(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
