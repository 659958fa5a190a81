package workdir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
)

// A directory with the ledger of a worker counts as abandoned if the worker's directory is gone and the
// ledger was not written for stateKept; or for stateKeptApart if the whole work directory is gone, because
// its disk may only be unmounted.
const (
	stateKept      = 7 * 24 * time.Hour
	stateKeptApart = 30 * 24 * time.Hour
)

// sweepStates removes the abandoned directories with ledgers on this host. It skips directories that it
// cannot read or remove.
func (s Search) sweepStates(ctx context.Context) {
	for _, parent := range StateDirs(s.Getenv) {
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if dir := filepath.Join(parent, e.Name()); strings.HasPrefix(strings.TrimPrefix(e.Name(), asidePrefix), s.Host+"-") {
				s.sweepState(ctx, dir)
			}
		}
	}
}

// sweepState removes the directory of a ledger if it is abandoned and no program has locked the ledger.
func (s Search) sweepState(ctx context.Context, dir string) {
	if !s.isLeft(dir) {
		return
	}
	unlock, err := ledger.Lock(ctx, filepath.Join(dir, "ledger.db"))
	if err != nil {
		return
	}
	defer unlock()
	if s.isLeft(dir) { // also now that no worker can begin
		_ = removeAside(dir)
	}
}

// isLeft reports whether the directory of a ledger is abandoned.
func (s Search) isLeft(dir string) bool {
	of, err := readOwner(dir)
	if err != nil {
		return false
	}
	// The name is HOST-ID, and both may contain hyphens: this host's name may be the beginning of
	// another's.
	for _, id, more := strings.Cut(filepath.Base(dir), "-"); more; _, id, more = strings.Cut(id, "-") {
		if !absent(filepath.Join(Workers(of.WorkDir), id)) {
			return false
		}
	}
	kept := stateKept
	if absent(Workers(of.WorkDir)) {
		kept = stateKeptApart
	}
	for _, name := range []string{ownerName, "ledger.db", "ledger.db-wal"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && s.Now().Sub(info.ModTime()) < kept || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// absent reports whether the path does not exist. It is false if that is not known.
func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
