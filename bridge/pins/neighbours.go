package pins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Neighbours judges the rows of other bridges, each with a shared directory of its own below one directory,
// that use the same caches: the stand-alone workers of one work directory.
//
// The pins of a bridge stay while it has a shared directory, also if it does not run: its runs may go on,
// and the next bridge of the directory takes them up. A bridge without one is over. It may have just been
// started, where this host does not see it yet, so it is over only once it was missing for missingFor.
type Neighbours struct {
	// Dir has the shared directories. Own is that of the caller, which is not judged.
	Dir, Own string
	Now      func() time.Time

	mu sync.Mutex
	// missing says since when a bridge has no shared directory, by its six digits.
	missing map[string]time.Time
}

// missingFor is much longer than any host may take to see a new directory.
const missingFor = 10 * time.Minute

// judge adds the holders that are over. It is called with those that are rows of other bridges.
func (n *Neighbours) judge(holders []cache.Holder, over map[cache.Holder]bool) error {
	present, err := n.present()
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.missing == nil {
		n.missing = map[string]time.Time{}
	}
	for bridge := range present {
		delete(n.missing, bridge)
	}
	for _, h := range holders { // of one cache; others have other ones
		bridge, _, ok := RowOf(h)
		if !ok || present[bridge] {
			continue
		}
		since, known := n.missing[bridge]
		if !known {
			since = n.Now()
			n.missing[bridge] = since
		}
		if n.Now().Sub(since) >= missingFor {
			over[h] = true
		}
	}
	return nil
}

// present returns the bridges that have a shared directory.
func (n *Neighbours) present() (map[string]bool, error) {
	entries, err := os.ReadDir(n.Dir)
	if err != nil {
		return nil, fmt.Errorf("look for other workers: %w", err)
	}
	present := map[string]bool{}
	for _, e := range entries {
		dir := filepath.Join(n.Dir, e.Name())
		if dir == n.Own || !e.IsDir() {
			continue
		}
		state, err := lease.Read(spool.Layout(dir).BridgeDir())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has pinned nothing yet, or goes
		}
		if err != nil {
			return nil, err // then nobody is judged
		}
		present[state.Holder.Bridge] = true
	}
	return present, nil
}

// keepUncollected is the time for which a silent neighbour's directory stays if results in it may be
// uncollected.
const keepUncollected = 30 * 24 * time.Hour

// RemoveEnded removes the shared directories of neighbours that have shown no sign of life for a time, by
// the disk's clock: nobody takes their runs up any more. Those with an exit record stay for keepUncollected,
// because the results may be uncollected. It takes the lease of each first, which takes two minutes if the
// neighbour did not give it up, and leaves a neighbour that has just come back. It returns the directories
// that it removed.
func (n *Neighbours) RemoveEnded(ctx context.Context, silentFor time.Duration) ([]string, error) {
	entries, err := os.ReadDir(n.Dir)
	if err != nil {
		return nil, fmt.Errorf("look for other workers: %w", err)
	}
	var removed []string
	for _, e := range entries {
		dir := filepath.Join(n.Dir, e.Name())
		if dir == n.Own || ctx.Err() != nil {
			continue
		}
		silent, err := n.silence(dir)
		if err != nil || silent < silentFor || silent < keepUncollected && hasResults(dir) {
			continue
		}
		if removeNeighbour(ctx, dir) == nil {
			removed = append(removed, dir)
		}
	}
	return removed, ctx.Err()
}

// hasResults reports whether a neighbour has runs that have ended.
func hasResults(dir string) bool {
	found, err := filepath.Glob(filepath.Join(dir, "spool", "*", "*", "exit.json"))
	return err != nil || len(found) > 0
}

// removeNeighbour removes the directory of a neighbour unless somebody has its lease or its ledger.
func removeNeighbour(ctx context.Context, dir string) error {
	layout := spool.Layout(dir)
	state, err := lease.Read(layout.BridgeDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before := state.Holder
	unlock, err := lockLedger(ctx, before)
	if err != nil {
		return err
	}
	locked := unlock != nil
	if locked {
		defer unlock()
	}
	// The pins are judged by the bridge in the lease, so it stays. The neighbour itself takes the lease back
	// at once if it returns.
	me := before
	me.Process = os.Getpid()
	over := func(h lease.Holder) bool { return locked && h.Host == before.Host && h.Ledger == before.Ledger }
	held, err := lease.Acquire(ctx, layout.BridgeDir(), me, over, func(lease.Holder) {})
	if err != nil {
		return err
	}
	if err := held.Renew(ctx, nil); err != nil {
		return err // also if the neighbour has returned
	}
	aside := filepath.Join(filepath.Dir(dir), ".ended-"+filepath.Base(dir))
	if err := os.Rename(dir, aside); err != nil {
		return err
	}
	return filetree.Remove(aside)
}

// lockLedger locks the ledger of a holder if it is a file of this host, so that the holder cannot return until
// unlock is called. Else unlock is nil.
func lockLedger(ctx context.Context, of lease.Holder) (unlock func(), err error) {
	if host, err := os.Hostname(); err != nil || of.Host != host {
		return nil, err
	}
	if _, err := os.Stat(of.Ledger); err != nil { // a URL, or gone
		return nil, nil //nolint:nilerr // there is nothing to lock
	}
	return ledger.Lock(ctx, of.Ledger)
}

// silence returns the time since a neighbour last renewed its lease.
func (n *Neighbours) silence(dir string) (time.Duration, error) {
	disk := spool.Disk{Layout: spool.Layout(n.Own)}
	now, err := disk.Now()
	if err != nil {
		return 0, err
	}
	last, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	newest := last.ModTime()
	for _, pattern := range []string{"bridge", "bridge/*", "spool", "runs", "spool/*/*/status.json"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return 0, err
		}
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
		}
	}
	return now.Sub(newest), nil
}
