package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// The members of a pack share one Slurm job, so scancel cannot end one of them alone. The bridge ends a member by a text in the
// attempt's file of stops, which the worker reads again and again.
//
// An NFS client may remember for a minute that a name does not exist (nfs(5): acdirmax). But when it opens a file that exists,
// it asks the server for its size (close-to-open consistency). So the worker makes the file, empty, before it looks again and
// again (ExpectStop). Whichever of the two makes it, WriteStop writes into it.

// stopText is the content of the file once the attempt has to stop.
const stopText = "stop\n"

// WriteStop tells the worker of an attempt of a pack to end it, or not to begin it. A repetition is harmless. The error is ErrGone
// if the attempt's directory is gone.
func (a Attempt) WriteStop() error {
	if err := a.writeStop(); err != nil {
		return fmt.Errorf("stop attempt: %w", a.orGone(err))
	}
	return nil
}

func (a Attempt) writeStop() error {
	f, err := os.OpenFile(a.path(stopName), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(stopText), 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ExpectStop makes the empty file of stops, if there is none. From then on Stopped sees a stop at once, on each disk. The worker of a
// member calls it when the member has run for a while: most end before, and need no such file.
func (a Attempt) ExpectStop() error {
	if err := smallfile.Touch(a.path(stopName), 0o600); err != nil {
		return fmt.Errorf("make the file of stops: %w", err)
	}
	return nil
}

// Stopped reports whether WriteStop was called for the attempt. Before ExpectStop an NFS client may see it a minute late.
func (a Attempt) Stopped() (bool, error) {
	text, err := smallfile.Read(a.path(stopName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read whether the attempt has to stop: %w", err)
	}
	return len(text) > 0, nil
}

// StopAttempt is Attempt.WriteStop for an attempt of a bundle.
func (d Disk) StopAttempt(bundle string, name AttemptName) error {
	if err := d.Layout.Attempt(bundle, name).WriteStop(); err != nil {
		return fmt.Errorf("attempt %s of %s: %w", name, bundle, err)
	}
	return nil
}
