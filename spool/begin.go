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

// Begin takes the attempt for the worker that calls it. It returns the standing record, and whether that
// is the caller's own. The worker may run the command only if it is.
//
// An attempt begins at most once, even if Slurm starts several workers for it or the file server loses
// replies: linkonce.Settle makes one record stand, and its token names the owner. Begin tries until it
// knows the owner or ctx ends. After an error the worker must run nothing. Begin may be called again with
// the same record.
func (a Attempt) Begin(ctx context.Context, s Started) (standing Started, own bool, err error) {
	return a.settle(ctx, s)
}

// Fence takes the attempt for a bridge, so that no worker can begin it any more. It returns the standing
// record. own is false if a worker had begun before, or an earlier Fence stands (Started.Fenced). The
// error is ErrGone if the disk is mounted and the attempt's directory is gone: no worker can begin without
// its specification, but one may have begun.
func (a Attempt) Fence(ctx context.Context, at time.Time) (standing Started, own bool, err error) {
	if _, err := os.Stat(a.Dir); err != nil {
		return Started{}, false, fmt.Errorf("fence attempt: %w", a.orGone(err))
	}
	return a.settle(ctx, Started{Token: NewToken(), Fenced: true, At: at})
}

// orGone returns ErrGone in the place of the error of a file system, if the attempt's directory is missing from a mounted disk.
func (a Attempt) orGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if _, unmounted := os.Stat(a.Layout().spool()); unmounted == nil {
			return ErrGone
		}
	}
	return err
}

func (a Attempt) settle(ctx context.Context, s Started) (Started, bool, error) {
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
