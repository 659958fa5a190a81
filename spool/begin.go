package spool

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
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
// starts for it, and whatever replies the file server loses:
//
//	worker                            file server
//	write .started.tmp-x, flush
//	link .started.tmp-x → started ──► first link wins; the reply may be lost
//	open started, read ◄───────────── the token that stands
//
// What link returned is ignored: a link that succeeded may report EEXIST when
// its lost reply was asked for again. The token that stands decides, once it is
// flushed to the disk. While it cannot be read the link is tried again, with
// the same temporary, until ctx ends; the error then means that the caller does
// not know who took the attempt, and may run nothing. Begin with the same
// token may be called again.
func (a Attempt) Begin(ctx context.Context, s Started) (standing Started, own bool, err error) {
	return a.take(ctx, s, a.disk())
}

// Close takes the attempt for a bridge, so that no worker can begin it any
// more. It returns the record that stands; own is false when a worker had
// begun before, or an earlier Close stands (Started.Closed). It makes the
// attempt's directory and that of the bundle, but not what is above.
func (a Attempt) Close(ctx context.Context, at time.Time) (standing Started, own bool, err error) {
	if err := makeTwo(a.Dir); err != nil {
		return Started{}, false, fmt.Errorf("close attempt: %w", err)
	}
	return a.take(ctx, Started{Token: NewToken(), Closed: true, At: at}, a.disk())
}

// retryBegin is the pause between two tries of taking an attempt.
const retryBegin = 200 * time.Millisecond

// disk is what taking an attempt asks of the file server.
type disk struct {
	link func(oldname, newname string) error
	read func() (Started, error)
}

func (a Attempt) disk() disk { return disk{link: os.Link, read: a.readFlushed} }

// readFlushed reads who took the attempt, after making sure that a crash does
// not undo it.
func (a Attempt) readFlushed() (Started, error) {
	s, err := a.ReadStarted()
	if err != nil {
		return Started{}, err
	}
	return s, atomicfile.SyncDir(a.Dir)
}

func (a Attempt) take(ctx context.Context, s Started, d disk) (Started, bool, error) {
	s.Format = Format
	if err := s.check(); err != nil {
		return Started{}, false, fmt.Errorf("take attempt: %w", err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return Started{}, false, fmt.Errorf("encode started: %w", err)
	}
	path := a.path(startedName)
	tmp, err := atomicfile.Temporary(path, data, 0o600)
	if err != nil {
		return Started{}, false, fmt.Errorf("take attempt: %w", err)
	}
	defer func() { _ = os.Remove(tmp) }() // a leftover temporary has no meaning
	for {
		linkErr := d.link(tmp, path)
		standing, readErr := d.read()
		if readErr == nil {
			return standing, standing.Token == s.Token, nil
		}
		timer := time.NewTimer(retryBegin)
		select {
		case <-ctx.Done():
			timer.Stop()
			return Started{}, false, fmt.Errorf("take attempt %s: %w", a.Dir, errors.Join(ctx.Err(), linkErr, readErr))
		case <-timer.C:
		}
	}
}
