package contents

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// Quotas reserves disk quota for contents that are being written. disk_used in the store counts
// only contents that bundles have. Reservations are in memory, since a crash ends the uploads.
type Quotas struct {
	store *store.Store

	mu       sync.Mutex
	accounts map[string]*account // by owner
}

// account has the reservations of one owner's uploads. Its lock is held while reserved contents
// become counted, so that no bytes count twice.
type account struct {
	open int // reservations; guarded by the lock of quotas

	mu      sync.Mutex
	uploads plan.Account
	bundles map[string]int // the number of reservations of each bundle
}

// reservation is one upload's part of its owner's account. It is for one goroutine.
type reservation struct {
	quotas  *Quotas
	ctx     context.Context //nolint:containedctx // of one upload
	ownerID string
	uuid    string
	account *account
	written int64
	ended   bool
}

// quotaError means that contents exceed the rest of their owner's disk quota.
type quotaError struct{ left int64 }

// Error is a sentence of CodaLab's own server (codalab/model/bundle_model.py: enforce_disk_quota).
func (e *quotaError) Error() string {
	return fmt.Sprintf("Can't save bundle, user disk quota exceeded. Bundle size greater than user's disk quota left: %d", e.left)
}

func (e *quotaError) Unwrap() error { return store.ErrTooLarge }

// account returns an owner's account, which the caller leaves.
func (s *Quotas) account(ownerID string) *account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[ownerID]
	if a == nil {
		a = &account{bundles: map[string]int{}}
		s.accounts[ownerID] = a
	}
	a.open++
	return a
}

func (s *Quotas) leave(ownerID string, a *account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.open--; a.open == 0 {
		delete(s.accounts, ownerID)
	}
}

// written returns the bytes that an owner's uploads under way have written.
func (s *Quotas) written(ownerID string) int64 {
	a := s.account(ownerID)
	defer s.leave(ownerID, a)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.uploads.Written
}

// reserve begins a reservation for new contents of a bundle. What the client has announced for the
// bundle (incrementDiskUsed) does not count any more: the bytes themselves do. The caller ends it.
func (s *Quotas) reserve(ctx context.Context, b store.Bundle) (*reservation, error) {
	r := &reservation{quotas: s, ctx: ctx, ownerID: b.OwnerID, uuid: b.UUID, account: s.account(b.OwnerID)}
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	r.account.bundles[b.UUID]++
	b, err := s.store.Bundle(ctx, b.UUID) // the client may have announced bytes since b was read
	if err == nil && stored.Plan(b).Uncount().DataSize != b.DataSize {
		_, err = stored.Change(ctx, s.store, []string{b.UUID}, plan.Bundle.Uncount)
	}
	if err != nil {
		r.endLocked()
		return nil, err
	}
	return r, nil
}

// take reserves n bytes before they are written, or fails with a quotaError.
func (r *reservation) take(n int64) error {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	return r.takeLocked(n)
}

func (r *reservation) takeLocked(n int64) error {
	if !r.account.uploads.Covers(n) {
		left, err := r.left()
		if err != nil {
			return err
		}
		more, ok := r.account.uploads.Reserve(n, left)
		if !ok {
			return &quotaError{left - (r.account.uploads.Written - r.written)}
		}
		r.account.uploads = more
	}
	r.written += n
	r.account.uploads = r.account.uploads.Write(n)
	return nil
}

// left returns the bytes that the owner's uploads under way may hold together. They replace the present
// contents of their bundles, so those do not count.
func (r *reservation) left() (int64, error) {
	owner, err := r.quotas.store.User(r.ctx, r.ownerID)
	if err != nil {
		return 0, err
	}
	bundles, err := r.quotas.store.Bundles(r.ctx, slices.Collect(maps.Keys(r.account.bundles)))
	left := owner.DiskQuota - owner.DiskUsed
	for _, b := range bundles {
		left += b.DataSize
	}
	return left, err
}

// room returns the bytes that the reservation may still take now.
func (r *reservation) room() (int64, error) {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	left, err := r.left()
	return max(0, left-r.account.uploads.Written), err
}

// rewind forgets the bytes that were written, because others replace them. They stay reserved.
func (r *reservation) rewind() {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	r.account.uploads = r.account.uploads.Rewind(r.written)
	r.written = 0
}

// settle calls count, which makes the contents count in the store, with size bytes; if they exceed
// the quota, it fails with a quotaError instead. It ends the reservation if it does not fail.
func (r *reservation) settle(size int64, count func() error) error {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	if size > r.written {
		if err := r.takeLocked(size - r.written); err != nil {
			return err
		}
	}
	if err := count(); err != nil {
		return err
	}
	r.account.uploads = r.account.uploads.Settle(r.written) // the store counts them now
	r.written = 0
	r.endLocked()
	return nil
}

// end gives the reservation back. It may be called again.
func (r *reservation) end() {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	r.endLocked()
}

func (r *reservation) endLocked() {
	if r.ended {
		return
	}
	r.ended = true
	r.account.uploads = r.account.uploads.Rewind(r.written)
	if r.account.bundles[r.uuid]--; r.account.bundles[r.uuid] == 0 {
		delete(r.account.bundles, r.uuid)
	}
	r.quotas.leave(r.ownerID, r.account)
}

// reader returns a reader of in that reserves the bytes that it reads.
func (r *reservation) reader(in io.Reader) io.Reader { return reservingReader{in, r} }

type reservingReader struct {
	in io.Reader
	r  *reservation
}

func (r reservingReader) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if n > 0 {
		if err := r.r.take(int64(n)); err != nil {
			return 0, err
		}
	}
	return n, err
}

// Announce counts bytes of an upload before they have arrived, unless the upload is under way and
// counts them itself.
func (s *Quotas) Announce(ctx context.Context, b store.Bundle, bytes int64) error {
	a := s.account(b.OwnerID)
	defer s.leave(b.OwnerID, a)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bundles[b.UUID] > 0 {
		return nil
	}
	_, err := stored.Change(ctx, s.store, []string{b.UUID}, func(b plan.Bundle) plan.Bundle { return b.Announce(bytes) })
	return err
}

// Live returns a user with the disk use of uploads under way.
func (s *Quotas) Live(u store.User) store.User {
	u.DiskUsed += s.written(u.ID)
	return u
}
