package contents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// Quotas reserves disk quota for contents that are being written. disk_used in the store counts
// only contents that bundles have. Reservations are in memory, since a crash ends the uploads.
type Quotas struct {
	now   func() time.Time
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
	// slack is the space that the uploads may take before the store is asked again.
	slack codalab.Space
}

// reservation is one upload's part of its owner's account. It is for one goroutine.
type reservation struct {
	quotas  *Quotas
	ctx     context.Context //nolint:containedctx // of one upload
	ownerID string
	uuid    string
	account *account
	upload  plan.Upload   // guarded by the account's lock
	written codalab.Space // since the last rewind
}

// quotaError means that contents exceed the rest of their owner's disk quota.
type quotaError struct {
	wanted, most codalab.Space
	running      int64 // the bytes of the quota that running runs use
}

// Error begins with a sentence of CodaLab's own server (codalab/model/bundle_model.py: enforce_disk_quota).
func (e *quotaError) Error() string {
	if e.wanted.Bytes <= e.most.Bytes {
		return fmt.Sprintf("%s It has more files, directories and links than the user's quota of them has left: %d", codalab.OverDiskQuota, max(0, e.most.Entries))
	}
	text := fmt.Sprintf("%s Bundle size greater than user's disk quota left: %d", codalab.OverDiskQuota, max(0, e.most.Bytes))
	if e.running > 0 {
		text += fmt.Sprintf(" (running runs use %s of the quota)", codalab.FormatSize(e.running))
	}
	return text
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

// growth returns the space by which an owner's uploads under way raise the owner's disk use.
func (s *Quotas) growth(ownerID string) (sum codalab.Space) {
	a := s.account(ownerID)
	defer s.leave(ownerID, a)
	a.mu.Lock()
	defer a.mu.Unlock()
	for r := range a.open {
		sum = sum.Plus(r.upload.Growth())
	}
	return sum
}

// reserve begins a reservation for new contents of a bundle. What the client has announced for the
// bundle (incrementDiskUsed) does not count any more: the bytes themselves do. The caller ends it.
func (s *Quotas) reserve(ctx context.Context, b store.Bundle) (*reservation, error) {
	r := &reservation{quotas: s, ctx: ctx, ownerID: b.OwnerID, uuid: b.UUID, account: s.account(b.OwnerID)}
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	r.account.open[r], r.account.slack = true, codalab.Space{}
	if b.State.OnWorker() { // nobody announces bytes of results
		return r, nil
	}
	b, err := s.store.Bundle(ctx, b.UUID) // the client may have announced bytes since b was read
	if err == nil && stored.Plan(b).Uncount().DataSize != b.DataSize {
		_, err = stored.Change(ctx, s.store, s.now(), []string{b.UUID}, plan.Bundle.Uncount)
	}
	if err != nil {
		r.endLocked()
		return nil, err
	}
	return r, nil
}

// takeBytes reserves n bytes of files before they are written, or fails with a quotaError.
func (r *reservation) takeBytes(n int64) error { return r.take(codalab.Space{Bytes: n}) }

// takeEntry reserves a file, a directory or a link before it is made, or fails with a quotaError.
func (r *reservation) takeEntry() error { return r.take(codalab.Extent{Entries: 1}.Space()) }

// limits returns the limits of an archive that is unpacked within the quota.
func (r *reservation) limits() tarstream.Limits {
	return tarstream.Limits{Entries: maxEntries, Reserve: r.takeBytes, ReserveEntry: r.takeEntry}
}

func (r *reservation) take(some codalab.Space) error {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	return r.takeLocked(some)
}

func (r *reservation) takeLocked(some codalab.Space) error {
	none := codalab.Space{}
	if more := r.written.Plus(some).Minus(r.upload.Held).AtLeast(none); more != none {
		if !more.Within(r.account.slack) {
			if err := r.ask(more); err != nil {
				return err
			}
		}
		r.account.slack = r.account.slack.Minus(more)
		r.upload.Held = r.upload.Held.Plus(more)
	}
	r.written = r.written.Plus(some)
	return nil
}

// ask asks the store whether the upload may hold more, and sets the account's slack to at least that.
func (r *reservation) ask(more codalab.Space) error {
	left, err := r.left()
	if err != nil {
		return err
	}
	others, next := r.others(), r.upload
	next.Held = next.Held.Plus(more)
	if most := next.Most(others, left); !next.Held.Within(most) {
		return r.refuse(next.Held, most)
	}
	r.account.slack = more.Plus(plan.Slack(append(others, next), left))
	return nil
}

// refuse returns the error of an upload that would hold more than it may.
func (r *reservation) refuse(wanted, most codalab.Space) error {
	running, err := r.quotas.store.RunningUse(r.ctx, []string{r.ownerID})
	return errors.Join(&quotaError{wanted, most, running[r.ownerID].Disk}, err)
}

// expect refuses contents before they come, if their sender tells their extent and they exceed the quota.
func (r *reservation) expect(extent codalab.Extent) error {
	if extent == (codalab.Extent{}) {
		return nil
	}
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	left, err := r.left()
	if err != nil {
		return err
	}
	if most := r.upload.Most(r.others(), left); !extent.Space().Within(most) {
		return r.refuse(extent.Space(), most)
	}
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

// left returns the space of the owner's quota that bundles leave; negative if they use more than it. It also
// updates the space of the contents that the owner's uploads replace.
func (r *reservation) left() (codalab.Space, error) {
	owner, err := r.quotas.store.User(r.ctx, r.ownerID)
	if err != nil {
		return codalab.Space{}, err
	}
	var uuids []string
	for one := range r.account.open {
		uuids = append(uuids, one.uuid)
	}
	bundles, err := r.quotas.store.Bundles(r.ctx, uuids, "data_size") // the metadata may be large
	if err != nil {
		return codalab.Space{}, err
	}
	for one := range r.account.open {
		b := bundles[one.uuid] // the zero value if it is deleted
		one.upload.Replaced, one.upload.Stored = b.Extent().Space(), codalab.Space{}
		if b.Contents != "" {
			one.upload.Stored = one.upload.Replaced
		}
	}
	return codalab.Space{Bytes: owner.DiskQuota - owner.DiskUsed, Entries: owner.EntriesQuota - owner.EntriesUsed}, nil
}

// room returns the bytes that the reservation may still take now.
func (r *reservation) room() (int64, error) {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	left, err := r.left()
	return max(0, r.upload.Most(r.others(), left).Minus(r.written).Bytes), err
}

// rewind forgets what was written, because other files replace it. The upload still holds it.
func (r *reservation) rewind() {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	r.written = codalab.Space{}
}

// takeRestLocked reserves what contents of this extent take beyond what was written, such as their directories, or fails with a
// quotaError. The caller has the account's lock until the store counts the contents.
func (r *reservation) takeRestLocked(extent codalab.Extent) error {
	return r.takeLocked(extent.Space().Minus(r.written).AtLeast(codalab.Space{}))
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
	r.account.slack = codalab.Space{}
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
		if err := r.r.takeBytes(int64(n)); err != nil {
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
	_, err := stored.Change(ctx, s.store, s.now(), []string{b.UUID}, func(b plan.Bundle) plan.Bundle { return b.Announce(bytes) })
	return err
}

// RefusesNew returns the sentence that refuses new bundles to a user who has used up a quota; empty for other users.
func (s *Quotas) RefusesNew(ctx context.Context, u store.User) (string, error) {
	quota := stored.Quota(s.Live(u))
	if quota.RefusesNew() == "" {
		return "", nil
	}
	running, err := s.store.RunningUse(ctx, []string{u.ID})
	quota.Running = stored.Running(running[u.ID])
	return quota.RefusesNew(), err
}

// Within calls take, by which an owner gets bundles that count this much, if they fit into the rest of the owner's quota
// beside the uploads under way. Else it fails with a quotaError. It returns the rest.
func (s *Quotas) Within(ctx context.Context, ownerID string, some codalab.Space, take func() error) (left codalab.Space, err error) {
	a := s.account(ownerID)
	defer s.leave(ownerID, a)
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &reservation{quotas: s, ctx: ctx, ownerID: ownerID, account: a}
	if left, err = r.left(); err != nil {
		return left, err
	}
	for _, other := range r.others() {
		left = left.Minus(other.Growth())
	}
	if !some.Within(left) {
		return left, r.refuse(some, left)
	}
	a.slack = codalab.Space{} // the uploads ask the store again
	return left, take()
}

// Live returns a user with the disk use of uploads under way.
func (s *Quotas) Live(u store.User) store.User {
	more := s.growth(u.ID)
	u.DiskUsed += more.Bytes
	u.EntriesUsed += more.Entries
	return u
}
