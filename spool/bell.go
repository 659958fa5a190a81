package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// Bell is a directory in which workers make empty entries when their records change. A bridge lists this
// one directory instead of those of all attempts. A worker rings after it has written a record that the bridge
// needs soon. A ring may be lost, so the bridge also reads the records of its rows in turn.
type Bell struct{ dir string }

// Ring means that the records of an attempt have changed.
type Ring struct {
	Bundle  string
	Attempt AttemptName
}

// Ring tells the bridge that the records of an attempt have changed. A second ring is harmless.
func (b Bell) Ring(bundle string, name AttemptName) error {
	if err := smallfile.Touch(filepath.Join(b.dir, bundle+"."+string(name)), 0o600); err != nil {
		return fmt.Errorf("ring bell: %w", err)
	}
	return nil
}

// TakeRings removes the entries of a bridge's attempts since the last call and returns them. It removes an
// entry before the caller reads the records, so this call or the next one returns a ring that comes in
// between.
func (b Bell) TakeRings(bridge string) ([]Ring, error) {
	// An NFS client may show an old listing. It asks the server after a change of its own.
	probe := filepath.Join(b.dir, ".probe-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(probe, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
		_ = os.Remove(probe) // a remaining probe is skipped below and removed next time
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, fmt.Errorf("take rings: %w", err)
	}
	var rang []Ring
	var stuck []error
	for _, e := range entries {
		bundle, name, _ := strings.Cut(e.Name(), ".")
		of, ok := AttemptName(name).bridge()
		if bundle == "" || !ok || of != bridge {
			continue
		}
		if err := os.Remove(filepath.Join(b.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			stuck = append(stuck, fmt.Errorf("take rings: %w", err))
			continue
		}
		rang = append(rang, Ring{Bundle: bundle, Attempt: AttemptName(name)})
	}
	return rang, errors.Join(stuck...)
}
