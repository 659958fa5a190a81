package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/linkonce"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/spool"
)

// RenewEvery is the interval at which a holder has to renew.
const RenewEvery = 10 * time.Second

// silentLooks is the number of looks, at intervals of LookEvery, without a renewal after which a holder counts as
// over. Together they take twelve times RenewEvery.
const silentLooks = 60

// LookEvery is the pause between two looks at a holder.
const LookEvery = 2 * time.Second

// Holder is a bridge that has, or had, a lease.
type Holder struct {
	// Bridge is the six digits of its ledger, Ledger the ledger's path, or its URL without a password.
	Bridge  string    `json:"bridge"`
	Ledger  string    `json:"ledger"`
	Host    string    `json:"host"`
	Process int       `json:"process"`
	Started time.Time `json:"started"`
	// Token is random and unique. NewCandidate makes it.
	Token string `json:"token"`
}

// String names the holder for people.
func (h Holder) String() string {
	return fmt.Sprintf("bridge %s (process %d on %s, with the ledger %s)", h.Bridge, h.Process, h.Host, h.Ledger)
}

// HeldError means that another bridge has the lease.
type HeldError struct {
	Dir    string
	Holder Holder
}

// Error names the holder.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is held by %s, which runs: stop that one first, or give this one a shared directory and a name of its own", e.Dir, e.Holder)
}

// LostError means that another bridge has taken a lease that was not renewed in time.
type LostError struct {
	Dir    string
	Holder Holder
}

// Error names the new holder.
func (e *LostError) Error() string {
	return fmt.Sprintf("%s was taken by %s, because this bridge gave no sign of life for two minutes", e.Dir, e.Holder)
}

// Lease is a lease that was taken. Its methods are not safe for concurrent use.
type Lease struct {
	dir   directory
	term  int64
	me    Holder
	count int64
}

// Acquire takes the lease of a directory, and makes the directory if it is missing; its parent must
// exist. over reports whether a holder is certainly over. If it is not, and has not ended, Acquire calls
// waiting and watches it for up to two minutes. It returns a *HeldError if the holder shows that it lives.
func Acquire(ctx context.Context, dir string, me Holder, over func(Holder) bool, waiting func(Holder)) (*Lease, error) {
	c, err := NewCandidate(dir, me, over)
	if err != nil {
		return nil, err
	}
	for {
		isOver, err := c.Look()
		switch {
		case err != nil:
			return nil, err
		case isOver:
			return c.Take(ctx)
		case c.looks == 1:
			waiting(c.holder)
		}
		if err := pause.For(ctx, LookEvery); err != nil {
			return nil, fmt.Errorf("take lease: %w", err)
		}
	}
}

// Candidate is a bridge that wants the lease of a directory. It offers the steps of Acquire to a caller with
// its own clock. Its methods are not safe for concurrent use.
type Candidate struct {
	lease  *Lease
	holder Holder // of the previous term
	isOver bool   // the holder is over, or there is none
	before renewal
	looks  int
}

// NewCandidate makes the directory if it is missing, and reads the holder of its lease. The arguments are
// Acquire's.
func NewCandidate(dir string, me Holder, over func(Holder) bool) (*Candidate, error) {
	me.Token = spool.NewToken()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("take lease: %w", err)
	}
	d := directory(dir)
	term, holder, err := d.newest()
	if err != nil {
		return nil, fmt.Errorf("take lease: %w", err)
	}
	return &Candidate{lease: &Lease{dir: d, term: term + 1, me: me}, holder: holder, isOver: term == 0 || over(holder)}, nil
}

// Look observes the holder once, and reports whether it is over; until then the caller repeats it every
// LookEvery. The error is a *HeldError if the holder shows that it lives.
func (c *Candidate) Look() (isOver bool, err error) {
	if c.isOver {
		return true, nil
	}
	d, term := c.lease.dir, c.lease.term-1
	newest, now, err := d.newest()
	var r renewal
	if err == nil {
		r, err = d.renewal(term)
	}
	switch {
	case err != nil:
	case newest != term:
		err = &HeldError{string(d), now}
	case r.Ended:
		return true, nil
	case c.looks == 0:
		c.before = r
	case r.Count != c.before.Count:
		err = &HeldError{string(d), c.holder}
	}
	if err != nil {
		return false, fmt.Errorf("take lease: %w", err)
	}
	c.looks++
	return c.looks > silentLooks, nil
}

// Take takes the lease, after Look has returned true. The error is a *HeldError if another bridge was
// quicker.
func (c *Candidate) Take(ctx context.Context) (*Lease, error) {
	if err := c.lease.settle(ctx); err != nil {
		return nil, fmt.Errorf("take lease: %w", err)
	}
	c.lease.dir.removeBelow(c.lease.term)
	return c.lease, nil
}

// settle takes the term, or fails with a *HeldError.
func (l *Lease) settle(ctx context.Context) error {
	record, err := json.Marshal(l.me)
	if err != nil {
		return fmt.Errorf("encode holder: %w", err)
	}
	standing, err := linkonce.Settle(ctx, l.dir.lease(l.term), record, 0o600, decodeHolder)
	if err != nil {
		return err
	}
	term, holder, err := l.dir.newest()
	switch {
	case err != nil:
		return err
	case term > l.term:
		return &HeldError{string(l.dir), holder}
	case standing.Token != l.me.Token:
		return &HeldError{string(l.dir), standing}
	}
	return nil
}

// Renew renews the lease and publishes a document, which is encoded as JSON; Read returns it. After a
// *LostError another bridge has the lease, and the caller has to stop. After any other error the lease may
// still be held.
func (l *Lease) Renew(ctx context.Context, document any) error {
	if err := l.write(document, false); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	term, holder, err := l.dir.newest()
	if err == nil && term < l.term { // a site's purge of old files has removed the record
		var held *HeldError
		holder = l.me
		if err = l.settle(ctx); errors.As(err, &held) {
			holder, err = held.Holder, nil
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("renew lease: %w", err)
	case term > l.term || holder.Token != l.me.Token:
		return &LostError{string(l.dir), holder}
	}
	return nil
}

// End publishes a last document, and gives the lease up.
func (l *Lease) End(document any) error {
	if err := l.write(document, true); err != nil {
		return fmt.Errorf("give lease up: %w", err)
	}
	return nil
}

func (l *Lease) write(document any, ended bool) error {
	encoded, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("encode document: %w", err)
	}
	l.count++
	data, err := json.Marshal(renewal{Token: l.me.Token, Count: l.count, Ended: ended, Document: encoded})
	if err != nil {
		return fmt.Errorf("encode renewal: %w", err)
	}
	return atomicfile.Write(l.dir.renewed(l.term), append(data, '\n'), 0o600)
}

// State is the state of a directory's lease.
type State struct {
	// Holder is the last holder; Ended is set if it has given the lease up.
	Holder Holder
	Ended  bool
	// Document is the holder's last document; nil before the first.
	Document json.RawMessage
}

// Read returns the state of the lease of a directory, and changes nothing. The error wraps
// fs.ErrNotExist if no bridge has ever taken it.
func Read(dir string) (State, error) {
	d := directory(dir)
	term, holder, err := d.last()
	if err == nil && term == 0 {
		err = fs.ErrNotExist
	}
	var r renewal
	if err == nil {
		r, err = d.renewal(term)
	}
	if err != nil {
		return State{}, fmt.Errorf("read lease of %s: %w", dir, err)
	}
	return State{Holder: holder, Ended: r.Ended, Document: r.Document}, nil
}
