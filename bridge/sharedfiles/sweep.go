package sharedfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Ledger reads a bridge's ledger. *ledger.Reader is one.
type Ledger interface {
	Bridge(ctx context.Context) (string, error)
	Generation(ctx context.Context) (int64, error)
	EachUnfinished(ctx context.Context, do func(plan.Row)) error
	Phases(ctx context.Context) (map[string]plan.Phase, error)
}

// Scheduler is the part of an sbatch.Scheduler that a sweep needs.
type Scheduler interface {
	Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error)
}

// Disk is the shared disk. spool.Disk is one, and documents the methods.
type Disk interface {
	Now() (time.Time, error)
	Touch(worker string) error
	Files
	Trash
}

// Files reads the disk's files.
type Files interface {
	Leftovers(needed func(bundle string) bool) ([]spool.Leftover, error)
	Weigh(ctx context.Context, l spool.Leftover) (int64, time.Time, error)
	Members(of func(submission string) bool) ([]spool.Members, error)
}

// Trash removes leftovers in two steps.
type Trash interface {
	PutAside(l spool.Leftover, now time.Time) (spool.Leftover, error)
	PutBack(trash spool.Leftover) error
	Discard(l spool.Leftover) error
}

// Sweeper sweeps for one bridge. One goroutine at a time uses it; other sweepers of the same bridge may run at
// the same time.
type Sweeper struct {
	Ledger    Ledger
	Scheduler Scheduler
	Disk      Disk
	// Grace is the least age of a leftover's last change.
	Grace time.Duration
	// Workers are the cl-workers that the bridge's jobs run; none for a sweep outside the
	// bridge. Each sweep marks them as used.
	Workers []string
	// Now reads the clock of Slurm's snapshots.
	Now func() time.Time
}

// Finding is a leftover and its fate.
type Finding struct {
	Kind    spool.LeftoverKind `json:"kind"`
	Path    string             `json:"path"`
	Bundle  string             `json:"bundle,omitempty"`
	Bytes   int64              `json:"bytes"`
	Touched time.Time          `json:"touched"`
	// Reason is the reason for which it is not needed or, if Kept is set, for which it stays although no row
	// needs it.
	Reason string `json:"reason"`
	Kept   bool   `json:"kept"`
	// Removed is set once it is gone; Trouble is the error if it could not be removed.
	Removed bool   `json:"removed"`
	Trouble string `json:"trouble,omitempty"`

	leftover spool.Leftover
	back     bool // it is trash that a row needs
}

// Find finds unneeded files, and removes nothing. It returns an error, and no finding, if the
// disk is not there, if Slurm or the ledger does not answer, or if the ledger is old
// (plan.ErrOutdated).
func (s *Sweeper) Find(ctx context.Context) ([]Finding, error) {
	found, _, err := s.findLeftovers(ctx)
	return found, err
}

func (s *Sweeper) findLeftovers(ctx context.Context) ([]Finding, time.Time, error) {
	now, err := s.Disk.Now()
	if err != nil {
		return nil, now, fmt.Errorf("sweep: %w", err)
	}
	for _, worker := range s.Workers {
		if err := s.Disk.Touch(worker); err != nil {
			return nil, now, fmt.Errorf("sweep: %w", err)
		}
	}
	n, err := s.needs(ctx)
	if err != nil {
		return nil, now, fmt.Errorf("sweep: %w", err)
	}
	leftovers, err := s.Disk.Leftovers(n.row)
	if err != nil {
		return nil, now, fmt.Errorf("sweep: %w", err)
	}
	var found []Finding
	for _, l := range leftovers {
		f, ok := n.judge(l, now, s.Grace, leftovers)
		if !ok {
			continue
		}
		if !f.Kept {
			ok = s.weigh(ctx, &f, now)
		}
		if ctx.Err() != nil {
			return nil, now, fmt.Errorf("sweep: %w", ctx.Err())
		}
		if ok {
			found = append(found, f)
		}
	}
	return found, now, nil
}

// weigh measures a leftover that may be removed, and reports whether it still may.
func (s *Sweeper) weigh(ctx context.Context, f *Finding, now time.Time) bool {
	bytes, touched, err := s.Disk.Weigh(ctx, f.leftover)
	switch {
	case err != nil:
		f.Kept, f.Reason = true, "not all of it can be read: "+err.Error()
		return true
	case f.Kind == spool.LeftTrash:
	case now.Sub(touched) < s.Grace:
		return false
	default:
		f.Touched, f.leftover.Touched = touched, touched
	}
	f.Bytes = bytes
	return true
}

// atOnce bounds the leftovers that are put aside before the ledger is read again.
const atOnce = 100

// Sweep finds unneeded files and removes them. Its findings have the fate of each.
func (s *Sweeper) Sweep(ctx context.Context) ([]Finding, error) {
	found, now, err := s.findLeftovers(ctx)
	if err != nil {
		return nil, err
	}
	var going []*Finding
	for i := range found {
		if !found[i].Kept || found[i].back {
			going = append(going, &found[i])
		}
	}
	stuck := map[string]bool{}
	for len(going) > 0 {
		part := going[:min(atOnce, len(going))]
		going = going[len(part):]
		s.putAside(part, now, stuck)
		if err := s.discard(ctx, part); err != nil {
			return found, fmt.Errorf("sweep: %w", err)
		}
	}
	return found, nil
}

// putAside puts findings aside. stuck are the bundles of which a file could not be moved; the
// files that say which bridge made it stay with that file.
func (s *Sweeper) putAside(found []*Finding, now time.Time, stuck map[string]bool) {
	for _, f := range found {
		switch f.Kind {
		case spool.LeftTemporary, spool.LeftRing, spool.LeftTrash:
			continue
		case spool.LeftRun, spool.LeftRecords, spool.LeftWorker:
		}
		if f.Bundle != "" && stuck[f.Bundle] {
			f.Trouble = "other files of its bundle could not be removed"
			continue
		}
		switch trash, err := s.Disk.PutAside(f.leftover, now); {
		case err == nil:
			f.leftover = trash
		case errors.Is(err, fs.ErrNotExist): // another sweep was here
			f.Removed = true
		default:
			f.Trouble, stuck[f.Bundle] = err.Error(), true
		}
	}
}

// discard checks that no row needs the files that were put aside, and removes them.
func (s *Sweeper) discard(ctx context.Context, found []*Finding) error {
	phases, err := s.Ledger.Phases(ctx)
	for _, f := range found {
		needed := f.back || err != nil || phases[f.Bundle] != ""
		if needed && !f.back && !f.Removed {
			f.Kept, f.Reason = true, "its bundle may have come back"
		}
		switch {
		case f.Trouble != "", f.Removed:
		case needed && f.leftover.Kind == spool.LeftTrash:
			if err := s.Disk.PutBack(f.leftover); err != nil {
				f.Trouble = err.Error()
			}
		case needed:
		case ctx.Err() != nil:
			f.Trouble = ctx.Err().Error()
		default:
			if err := s.Disk.Discard(f.leftover); err != nil {
				f.Trouble = err.Error()
			} else {
				f.Removed = true
			}
		}
	}
	return errors.Join(err, ctx.Err())
}

// Run sweeps after first, and then at intervals of every, until ctx ends. It logs removals and failures.
func (s *Sweeper) Run(ctx context.Context, first, every time.Duration, to *slog.Logger) {
	for wait := first; pause.For(ctx, wait) == nil; wait = every {
		found, err := s.Sweep(ctx)
		if ctx.Err() != nil {
			return
		}
		for _, f := range found {
			switch attrs := []any{slog.String("path", f.Path), slog.Int64("bytes", f.Bytes), slog.String("reason", f.Reason)}; {
			case f.Removed:
				to.InfoContext(ctx, "removed a leftover", attrs...)
			case f.Trouble != "":
				to.WarnContext(ctx, "cannot remove a leftover", append(attrs, slog.String("error", f.Trouble))...)
			}
		}
		if err != nil {
			to.WarnContext(ctx, "the sweep of the shared disk failed; the next one tries again", slog.String("error", err.Error()))
		}
	}
}
