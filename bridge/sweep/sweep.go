package sweep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Ledger is what is read of a bridge's ledger. *ledger.Reader is one.
type Ledger interface {
	Bridge(ctx context.Context) (string, error)
	Generation(ctx context.Context) (int64, error)
	Rows(ctx context.Context) ([]plan.Row, error)
}

// Scheduler is Slurm. *sbatch.Client is one.
type Scheduler interface {
	Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error)
}

// Disk is the shared disk. spool.Disk is one; its methods say what they
// promise.
type Disk interface {
	Now() (time.Time, error)
	Leftovers(needed func(bundle string) bool) ([]spool.Leftover, error)
	Weigh(ctx context.Context, l spool.Leftover) (int64, time.Time, error)
	Touch(worker string) error
	Trash
}

// Trash is how leftovers go.
type Trash interface {
	PutAside(l spool.Leftover, now time.Time) (spool.Leftover, error)
	PutBack(trash spool.Leftover) error
	Discard(l spool.Leftover) error
}

// Sweeper sweeps for one bridge. It is used by one goroutine at a time; other
// sweepers of the same bridge may be at work beside it.
type Sweeper struct {
	Ledger    Ledger
	Scheduler Scheduler
	Disk      Disk
	// Grace is for how long a leftover must not have been changed.
	Grace time.Duration
	// Workers are the cl-workers that the bridge's jobs run; none where that is
	// another one's to say. Each sweep notes that it is in use.
	Workers []string
	// Now reads the clock, for what is asked of Slurm.
	Now func() time.Time
}

// Finding is a leftover, and what becomes of it.
type Finding struct {
	Kind    spool.LeftoverKind `json:"kind"`
	Path    string             `json:"path"`
	Bundle  string             `json:"bundle,omitempty"`
	Bytes   int64              `json:"bytes"`
	Touched time.Time          `json:"touched"`
	// Reason says why it is not needed or, where Kept is set, why it stays
	// though no row needs it.
	Reason string `json:"reason"`
	Kept   bool   `json:"kept"`
	// Removed is set once it is gone; Trouble is why it could not be removed.
	Removed bool   `json:"removed"`
	Trouble string `json:"trouble,omitempty"`

	leftover spool.Leftover
	back     bool // it is trash that a row needs
}

// Find looks for what is not needed, and removes nothing. It finds nothing, but
// an error, where it cannot know: the disk is not there, Slurm or the ledger
// does not answer, or the ledger is old (plan.ErrOutdated).
func (s *Sweeper) Find(ctx context.Context) ([]Finding, error) {
	found, _, err := s.find(ctx)
	return found, err
}

func (s *Sweeper) find(ctx context.Context) ([]Finding, time.Time, error) {
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

// weigh goes through what may be removed, and says whether it still may.
func (s *Sweeper) weigh(ctx context.Context, f *Finding, now time.Time) bool {
	bytes, touched, err := s.Disk.Weigh(ctx, f.leftover)
	switch {
	case err != nil:
		f.Kept, f.Reason = true, "not all of it can be seen: "+err.Error()
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

// atOnce is how many leftovers are put aside before the ledger is read again.
const atOnce = 100

// Sweep finds what is not needed and removes it. What it returns says what
// became of each.
func (s *Sweeper) Sweep(ctx context.Context) ([]Finding, error) {
	found, now, err := s.find(ctx)
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

// putAside puts findings aside. What says whose a bundle's files were stays while
// one of these does: stuck are the bundles of which one could not be moved.
func (s *Sweeper) putAside(found []*Finding, now time.Time, stuck map[string]bool) {
	for _, f := range found {
		switch f.Kind {
		case spool.LeftTemporary, spool.LeftRing, spool.LeftTrash:
			continue
		case spool.LeftRun, spool.LeftRecords, spool.LeftMembers, spool.LeftWorker:
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

// discard makes sure that no row needs what was put aside, and removes it.
func (s *Sweeper) discard(ctx context.Context, found []*Finding) error {
	rows, err := s.Ledger.Rows(ctx)
	has := bundles(rows)
	for _, f := range found {
		needed := f.back || err != nil || has[f.Bundle]
		if needed && !f.back && !f.Removed {
			f.Kept, f.Reason = true, "its bundle may have come back meanwhile"
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

// Run sweeps after first, and then after each pause, until ctx ends. What it
// removes and what keeps it from that it logs.
func (s *Sweeper) Run(ctx context.Context, first, pause time.Duration, to *slog.Logger) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		found, err := s.Sweep(ctx)
		if ctx.Err() != nil {
			return
		}
		for _, f := range found {
			switch attrs := []any{slog.String("path", f.Path), slog.Int64("bytes", f.Bytes), slog.String("reason", f.Reason)}; {
			case f.Removed:
				to.InfoContext(ctx, "removed what nobody needs", attrs...)
			case f.Trouble != "":
				to.WarnContext(ctx, "cannot remove what nobody needs", append(attrs, slog.String("error", f.Trouble))...)
			}
		}
		if err != nil {
			to.WarnContext(ctx, "the shared disk was not swept; it is tried again", slog.String("error", err.Error()))
		}
		timer.Reset(pause)
	}
}
