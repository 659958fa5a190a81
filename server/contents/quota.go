package contents

import (
	"context"
	"fmt"
	"io"
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
	users int // goroutines that use the account; guarded by the lock of Quotas

	mu   sync.Mutex
	open map[*reservation]bool // the reservations that have not ended
	// slack is the number of bytes that the uploads may take before the store is asked again.
	slack int64
}

// reservation is one upload's part of its owner's account. It is for one goroutine.
type reservation struct {
	quotas  *Quotas
	ctx     context.Context //nolint:containedctx // of one upload
	ownerID string
	uuid    string
	account *account
	upload  plan.Upload // guarded by the account's lock
	written int64       // since the last rewind
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
		a = &account{open: map[*reservation]bool{}}
		s.accounts[ownerID] = a
	}
	a.users++
	return a
}

func (s *Quotas) leave(ownerID string, a *account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.users--; a.users == 0 {
		delete(s.accounts, ownerID)
	}
}

// growth returns the bytes by which an owner's uploads under way raise the owner's disk use.
func (s *Quotas) growth(ownerID string) (sum int64) {
	a := s.account(ownerID)
	defer s.leave(ownerID, a)
	a.mu.Lock()
	defer a.mu.Unlock()
	for r := range a.open {
		sum += r.upload.Growth()
	}
	return sum
}

// reserve begins a reservation for new contents of a bundle. What the client has announced for the
// bundle (incrementDiskUsed) does not count any more: the bytes themselves do. The caller ends it.
func (s *Quotas) reserve(ctx context.Context, b store.Bundle) (*reservation, error) {
	r := &reservation{quotas: s, ctx: ctx, ownerID: b.OwnerID, uuid: b.UUID, account: s.account(b.OwnerID)}
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	r.account.open[r], r.account.slack = true, 0
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
	if more := r.written + n - r.upload.Held; more > 0 {
		if more > r.account.slack {
			if err := r.ask(more); err != nil {
				return err
			}
		}
		r.account.slack -= more
		r.upload.Held += more
	}
	r.written += n
	return nil
}

// ask asks the store whether the upload may hold more bytes, and sets the account's slack to at least that.
func (r *reservation) ask(more int64) error {
	left, err := r.left()
	if err != nil {
		return err
	}
	others, next := r.others(), r.upload
	next.Held += more
	if most := next.Most(others, left); next.Held > most {
		return &quotaError{most}
	}
	r.account.slack = more + plan.Slack(append(others, next), left)
	return nil
}

// others returns the other uploads of the owner.
func (r *reservation) others() []plan.Upload {
	var list []plan.Upload
	for other := range r.account.open {
		if other != r {
			list = append(list, other.upload)
		}
	}
	return list
}

// left returns the bytes of the owner's quota that bundles leave; negative if they use more than it. It also
// updates the sizes of the contents that the owner's uploads replace.
func (r *reservation) left() (int64, error) {
	owner, err := r.quotas.store.User(r.ctx, r.ownerID)
	if err != nil {
		return 0, err
	}
	var uuids []string
	for one := range r.account.open {
		uuids = append(uuids, one.uuid)
	}
	bundles, err := r.quotas.store.Bundles(r.ctx, uuids)
	if err != nil {
		return 0, err
	}
	for one := range r.account.open {
		one.upload.Replaced = bundles[one.uuid].DataSize // 0 if it is deleted
	}
	return owner.DiskQuota - owner.DiskUsed, nil
}

// room returns the bytes that the reservation may still take now.
func (r *reservation) room() (int64, error) {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	left, err := r.left()
	return max(0, r.upload.Most(r.others(), left)-r.written), err
}

// rewind forgets the bytes that were written, because others replace them. The upload still holds them.
func (r *reservation) rewind() {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
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
	r.endLocked() // the store counts them now
	return nil
}

// end gives the reservation back. It may be called again.
func (r *reservation) end() {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	r.endLocked()
}

// endLocked also takes back the slack, which this upload may have brought.
func (r *reservation) endLocked() {
	if !r.account.open[r] {
		return
	}
	delete(r.account.open, r)
	r.account.slack = 0
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
	for r := range a.open {
		if r.uuid == b.UUID {
			return nil
		}
	}
	_, err := stored.Change(ctx, s.store, []string{b.UUID}, func(b plan.Bundle) plan.Bundle { return b.Announce(bytes) })
	return err
}

// Live returns a user with the disk use of uploads under way.
func (s *Quotas) Live(u store.User) store.User {
	u.DiskUsed += s.growth(u.ID)
	return u
}
