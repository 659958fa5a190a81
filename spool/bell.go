package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Bell is a directory in which a worker leaves an empty entry when there is
// something to read, so that a bridge finds out within a moment by looking at
// one directory, whatever the number of attempts. A ring may be lost; the
// bridge therefore also reads the records of its rows in turn.
type Bell struct{ dir string }

// Ring says that the records of an attempt have changed. Ringing again before
// anybody looked is harmless.
func (b Bell) Ring(bundle string, attempt int) error {
	f, err := os.OpenFile(filepath.Join(b.dir, bundle+"."+strconv.Itoa(attempt)), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("ring bell: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("ring bell: %w", err)
	}
	return nil
}

// Answer returns the attempts that rang since the last call and takes their
// entries away. A ring that comes in between is answered now or by the next
// call: entries are taken away before the caller reads the records, so what
// was written before a ring is seen after its answer.
func (b Bell) Answer() ([]Member, error) {
	// An NFS client may show a directory as it was seconds ago; a change of
	// its own makes it ask the server.
	probe := filepath.Join(b.dir, ".probe-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(probe, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
		_ = os.Remove(probe) // a leftover probe is skipped below and removed next time
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, fmt.Errorf("answer bell: %w", err)
	}
	var rang []Member
	var stuck []error
	for _, e := range entries {
		bundle, n, _ := strings.Cut(e.Name(), ".")
		attempt, err := strconv.Atoi(n)
		if bundle == "" || err != nil {
			continue
		}
		if err := os.Remove(filepath.Join(b.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			stuck = append(stuck, fmt.Errorf("answer bell: %w", err))
			continue
		}
		rang = append(rang, Member{Bundle: bundle, Attempt: attempt})
	}
	return rang, errors.Join(stuck...)
}
