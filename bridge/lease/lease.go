package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/linkonce"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// RenewEvery is how often a holder has to renew.
const RenewEvery = 10 * time.Second

// A holder is over after this many looks at intervals of lookEvery without a renewal. That is
// twelve times RenewEvery.
const (
	looks     = 60
	lookEvery = 2 * time.Second
)

// Holder is a bridge that has, or had, a lease.
type Holder struct {
	// Bridge is the six digits of its ledger, Ledger the ledger's path or URL without a
	// password.
	Bridge  string    `json:"bridge"`
	Ledger  string    `json:"ledger"`
	Host    string    `json:"host"`
	Process int       `json:"process"`
	Started time.Time `json:"started"`
	// Token is random, and tells the record from all others. Acquire makes it.
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

// LostError means that another bridge has taken the lease of one that gave no sign of life.
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

// renewal is what a holder writes.
type renewal struct {
	Token string `json:"token"`
	Count int64  `json:"count"`
	// Ended is set by the last renewal.
	Ended    bool            `json:"ended,omitempty"`
	Document json.RawMessage `json:"document,omitempty"`
}

// Acquire takes the lease of a directory, which it makes if need be; the directory above must
// exist. over reports whether a holder is certainly over. If the holder neither is over nor has
// ended, Acquire calls waiting and watches it for up to two minutes. It returns a *HeldError if
// the holder shows that it lives.
func Acquire(ctx context.Context, dir string, me Holder, over func(Holder) bool, waiting func(Holder)) (*Lease, error) {
	var token [16]byte
	_, _ = rand.Read(token[:]) // never fails: crypto/rand.Read
	me.Token = hex.EncodeToString(token[:])
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("take lease: %w", err)
	}
	d := directory(dir)
	term, holder, err := d.newest()
	if err == nil && term > 0 && !over(holder) {
		err = d.outlive(ctx, term, holder, waiting)
	}
	if err != nil {
		return nil, fmt.Errorf("take lease: %w", err)
	}
	l := &Lease{dir: d, term: term + 1, me: me}
	if err := l.settle(ctx); err != nil {
		return nil, fmt.Errorf("take lease: %w", err)
	}
	d.removeBelow(l.term)
	return l, nil
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

// Renew renews the lease and publishes a document, which is encoded as JSON; Read returns it. The
// error is a *LostError if another bridge has the lease; the caller stops then. After any other
// error the lease may still be held.
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

// State is what a directory shows of its lease.
type State struct {
	// Holder is the last one; Ended is set if it has given the lease up.
	Holder Holder
	Ended  bool
	// Document is what it published last; nil before that.
	Document json.RawMessage
}

// Read returns the state of the lease of a directory, and changes nothing. The error wraps
// fs.ErrNotExist if no bridge has ever taken it.
func Read(dir string) (State, error) {
	d := directory(dir)
	term, err := d.highest()
	if err == nil && term == 0 {
		err = fs.ErrNotExist
	}
	var s State
	if err == nil {
		s.Holder, err = d.holder(term)
	}
	var r renewal
	if err == nil {
		r, err = d.renewal(term)
	}
	if err != nil {
		return State{}, fmt.Errorf("read lease of %s: %w", dir, err)
	}
	s.Ended, s.Document = r.Ended, r.Document
	return s, nil
}

// directory has the files of a lease.
type directory string

func (d directory) lease(term int64) string { return d.file(leasePrefix, term) }

func (d directory) renewed(term int64) string { return d.file(renewedPrefix, term) }

const leasePrefix, renewedPrefix, suffix = "lease-", "renewed-", ".json"

func (d directory) file(prefix string, term int64) string {
	return filepath.Join(string(d), prefix+strconv.FormatInt(term, 10)+suffix)
}

// termOf is the number in a file's name; 0 for a file of another kind.
func termOf(name, prefix string) int64 {
	digits, ok := strings.CutPrefix(name, prefix)
	digits, json := strings.CutSuffix(digits, suffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || !json || err != nil || n < 0 {
		return 0
	}
	return n
}

// newest returns the highest term and its holder; 0 if there is none. It changes the directory
// first, because an NFS client may show an old listing, and asks the server after a change of
// its own.
func (d directory) newest() (term int64, holder Holder, err error) {
	probe, err := atomicfile.Temporary(d.file("look-", 0), nil, 0o600)
	if err == nil {
		_ = os.Remove(probe) // or a new holder has: removeBelow
		term, err = d.highest()
	}
	if err == nil && term > 0 {
		holder, err = d.holder(term)
	}
	return term, holder, err
}

func (d directory) highest() (int64, error) {
	entries, err := os.ReadDir(string(d))
	term := int64(0)
	for _, e := range entries {
		term = max(term, termOf(e.Name(), leasePrefix))
	}
	return term, err
}

func (d directory) holder(term int64) (Holder, error) {
	data, err := os.ReadFile(d.lease(term))
	if err != nil {
		return Holder{}, err
	}
	return decodeHolder(data)
}

func decodeHolder(data []byte) (Holder, error) {
	var h Holder
	err := json.Unmarshal(data, &h)
	if err == nil && h.Token == "" {
		err = errors.New("it has no token")
	}
	if err != nil {
		return h, fmt.Errorf("decode holder: %w", err)
	}
	return h, nil
}

// renewal reads the last renewal of a term; a zero one if there is none yet.
func (d directory) renewal(term int64) (renewal, error) {
	var r renewal
	data, err := os.ReadFile(d.renewed(term))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, fmt.Errorf("decode renewal: %w", err)
	}
	return r, nil
}

// outlive returns nil once the holder of a term is over, and a *HeldError if it lives.
func (d directory) outlive(ctx context.Context, term int64, holder Holder, waiting func(Holder)) error {
	var before renewal
	for look := range looks + 1 {
		newest, now, err := d.newest()
		if err != nil {
			return err
		}
		r, err := d.renewal(term)
		switch {
		case err != nil:
			return err
		case newest != term:
			return &HeldError{string(d), now}
		case r.Ended:
			return nil
		case look == 0:
			before = r
			waiting(holder)
		case r.Count != before.Count:
			return &HeldError{string(d), holder}
		}
		if look == looks {
			break
		}
		if err := pause.For(ctx, lookEvery); err != nil {
			return err
		}
	}
	return nil
}

// removeBelow removes all files but those of this term and higher ones. What stays is removed by
// the next holder.
func (d directory) removeBelow(term int64) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return
	}
	for _, e := range entries {
		if max(termOf(e.Name(), leasePrefix), termOf(e.Name(), renewedPrefix)) < term {
			_ = os.Remove(filepath.Join(string(d), e.Name())) // see above
		}
	}
}
