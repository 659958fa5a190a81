package spool

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/linkonce"
)

// NewToken returns 128 random bits in hexadecimal.
func NewToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand.Read
	return hex.EncodeToString(b[:])
}

// Begin takes the attempt for the worker that calls it. It returns the record
// that stands, and whether that is the caller's own: only then may it run
// anything.
//
// An attempt begins at most once, whatever the number of workers that Slurm
// starts for it, and whatever replies the file server loses: linkonce.Settle
// makes one record stand, and the token in it says whose it is. While that
// cannot be learnt Begin tries again, until ctx ends; the error then means that
// the caller does not know who took the attempt, and may run nothing. Begin
// with the same record may be called again.
func (a Attempt) Begin(ctx context.Context, s Started) (standing Started, own bool, err error) {
	return a.take(ctx, s)
}

// Fence takes the attempt for a bridge, so that no worker can begin it any
// more. It returns the record that stands; own is false when a worker had
// begun before, or an earlier Fence stands (Started.Closed). Where the
// attempt's directory is gone from a disk that is there, the error is ErrGone:
// no worker can begin without its specification, but one may have begun.
func (a Attempt) Fence(ctx context.Context, at time.Time) (standing Started, own bool, err error) {
	if _, err := os.Stat(a.Dir); err != nil {
		_, mounted := os.Stat(a.Layout().spool()) //nolint:gosec // our own directory
		if errors.Is(err, fs.ErrNotExist) && mounted == nil {
			err = ErrGone
		}
		return Started{}, false, fmt.Errorf("close attempt: %w", err)
	}
	return a.take(ctx, Started{Token: NewToken(), Fenced: true, At: at})
}

func (a Attempt) take(ctx context.Context, s Started) (Started, bool, error) {
	s.Format = Format
	if err := s.check(); err != nil {
		return Started{}, false, fmt.Errorf("take attempt: %w", err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return Started{}, false, fmt.Errorf("encode started: %w", err)
	}
	standing, err := linkonce.Settle(ctx, a.path(startedName), data, 0o600, decode[Started])
	if err != nil {
		return Started{}, false, fmt.Errorf("take attempt: %w", err)
	}
	return standing, standing.Token == s.Token, nil
}
