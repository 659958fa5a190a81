package contents

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

const mib = 1 << 20

// alicesUploads is Uploads with alice, who has a quota in MiB, and two datasets of hers. The first has contents
// of a size in MiB, which an upload may replace.
func alicesUploads(t *testing.T, quota, size int64) (s *Uploads, full, empty store.Bundle) {
	t.Helper()
	data, err := store.Open(t.Context(), t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, data.Close()) })
	alice := store.User{ID: "0x" + strings.Repeat("a", 32), Name: "alice", DiskQuota: quota * mib}
	must(t, data.AddUser(t.Context(), alice))
	var both []store.Bundle
	for _, digit := range []string{"1", "2"} {
		b := store.Bundle{UUID: "0x" + strings.Repeat(digit, 32), Type: codalab.TypeDataset, OwnerID: alice.ID, State: codalab.StateUploading, Metadata: codalab.Metadata{}}
		must(t, data.CreateBundle(t.Context(), b, ""))
		both = append(both, b)
	}
	_, err = stored.Change(t.Context(), data, time.Now(), []string{both[0].UUID}, func(b plan.Bundle) plan.Bundle { return b.Fill("contents", codalab.Extent{Bytes: size * mib}) })
	must(t, err)
	quotas := &Quotas{now: time.Now, store: data, accounts: map[string]*account{}}
	return &Uploads{log: slog.New(slog.DiscardHandler), store: data, quotas: quotas, changed: func(...string) {}}, both[0], both[1]
}

// left returns the number of bytes that a refused upload may hold; -1 if a take was not refused.
func left(err error) int64 {
	if no, ok := errors.AsType[*quotaError](err); ok {
		return no.most.Bytes
	}
	return -1
}

// However an upload ends that does not succeed, the owner's other uploads find the quota as if it had never
// been. The store has nothing of it meanwhile, so that a crash leaves nothing, either.
func TestUploadThatFailsGivesItsReservationBack(t *testing.T) {
	t.Parallel()
	errDisk := errors.New("the disk fails")
	for name, way := range map[string]struct {
		fill   func(cancel func(), room *reservation) error
		finish error
	}{
		"the disk fails":          {fill: func(func(), *reservation) error { return errDisk }},
		"the quota is too small":  {fill: func(_ func(), room *reservation) error { return room.takeBytes(9 * mib) }},
		"the client goes away":    {fill: func(cancel func(), _ *reservation) error { cancel(); return context.Canceled }},
		"it is killed at its end": {fill: func(func(), *reservation) error { return nil }, finish: errDisk},
		"it begins again":         {fill: func(_ func(), room *reservation) error { room.rewind(); return errDisk }},
		"it panics":               {fill: func(func(), *reservation) error { panic(errDisk) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, full, empty := alicesUploads(t, 8, 6)
			other, err := s.quotas.reserve(t.Context(), empty)
			must(t, errors.Join(err, other.takeBytes(1)))
			ctx, cancel := context.WithCancel(t.Context())
			func() {
				defer func() { _ = recover() }()
				err = s.storeContents(ctx, full, func(in *store.Upload, room *reservation) error {
					must(t, errors.Join(room.takeBytes(7*mib), in.File(strings.NewReader("x"))))
					if u, err := s.store.User(ctx, full.OwnerID); u.DiskUsed != 6*mib || err != nil {
						t.Errorf("the store counts %d bytes, %v", u.DiskUsed, err)
					}
					return way.fill(cancel, room)
				}, func(*store.Bundle) error { return way.finish })
				if err == nil {
					t.Error("the upload succeeds")
				}
			}()
			cancel()
			if got := left(other.takeBytes(3 * mib)); got != 2*mib {
				t.Errorf("the other upload may hold %d bytes, want %d (-1: any number)", got, 2*mib)
			}
			must(t, other.takeBytes(2*mib-1))
			if other.end(); len(s.quotas.accounts) != 0 {
				t.Errorf("%d accounts are remembered", len(s.quotas.accounts))
			}
		})
	}
}

// An upload may fail. Then its bundle keeps its contents, and the owner's other uploads must not have taken
// their room.
func TestOnlyTheUploadItselfUsesTheRoomOfWhatItReplaces(t *testing.T) {
	t.Parallel()
	s, full, empty := alicesUploads(t, 8, 6)
	replacing, err := s.quotas.reserve(t.Context(), full)
	must(t, err)
	other, err := s.quotas.reserve(t.Context(), empty)
	must(t, errors.Join(err, replacing.takeBytes(1)))
	if got := left(other.takeBytes(3 * mib)); got != 2*mib {
		t.Errorf("the other upload may hold %d bytes, want %d (-1: any number)", got, 2*mib)
	}
	must(t, errors.Join(other.takeBytes(1*mib), replacing.takeBytes(7*mib-1)))
	if got := left(replacing.takeBytes(1)); got != 7*mib {
		t.Errorf("the upload may hold %d bytes, want %d", got, 7*mib)
	}
	if u := s.quotas.Live(store.User{ID: full.OwnerID, DiskUsed: 6 * mib}); u.DiskUsed != 8*mib {
		t.Errorf("%d bytes used", u.DiskUsed)
	}
	replacing.end()
	other.end()
}

// A zip archive and its files are on the disk at the same time.
func TestBytesBeforeARewindStayReserved(t *testing.T) {
	t.Parallel()
	s, full, empty := alicesUploads(t, 8, 0)
	zip, err := s.quotas.reserve(t.Context(), full)
	must(t, errors.Join(err, zip.takeBytes(6*mib)))
	zip.rewind()
	other, err := s.quotas.reserve(t.Context(), empty)
	must(t, err)
	if got := left(other.takeBytes(3 * mib)); got != 2*mib {
		t.Errorf("the other upload may hold %d bytes, want %d (-1: any number)", got, 2*mib)
	}
	must(t, errors.Join(other.takeBytes(2*mib), zip.takeBytes(6*mib)))
	if got := left(zip.takeBytes(1)); got != 6*mib {
		t.Errorf("the upload may hold %d bytes, want %d", got, 6*mib)
	}
	zip.account.mu.Lock()
	must(t, zip.takeRestLocked(codalab.Extent{Bytes: 5 * mib}))
	zip.account.mu.Unlock()
	zip.end()
	other.end()
}

// Contents that take no more than those that they replace fit whatever the quota: a client whose answer was lost sends them again.
func TestOwnerBeyondTheQuotaMayReplaceContentsByNoLargerOnes(t *testing.T) {
	t.Parallel()
	s, full, empty := alicesUploads(t, 4, 6)
	replacing, err := s.quotas.reserve(t.Context(), full)
	must(t, err)
	other, err := s.quotas.reserve(t.Context(), empty)
	must(t, errors.Join(err, replacing.expect(codalab.Extent{Bytes: 6 * mib}), replacing.takeBytes(6*mib)))
	if got := left(replacing.takeBytes(1)); got != 6*mib {
		t.Errorf("the upload may hold %d bytes, want %d", got, 6*mib)
	}
	err = other.takeBytes(1)
	if got := left(err); got != 0 || !strings.HasSuffix(err.Error(), "left: 0") {
		t.Errorf("another upload may hold %d bytes, want none: %v", got, err)
	}
	replacing.end()
	other.end()
}

// A file that is empty takes a block and an entry, and so does each directory and link. The last of the quota of
// either refuses the next one.
func TestEntriesCountHoweverSmallTheyAre(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		quota store.User
		why   string
	}{
		"disk":    {store.User{DiskQuota: 100 * codalab.BlockSize, EntriesQuota: 1000}, "Bundle size greater than user's disk quota left: 409600"},
		"entries": {store.User{DiskQuota: 1 << 40, EntriesQuota: 102}, "It has more files, directories and links than the user's quota of them has left: 100"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, empty := alicesUploads(t, 8, 0)
			_, err := s.store.ChangeUser(t.Context(), empty.OwnerID, func(u *store.User) error {
				u.DiskQuota, u.EntriesQuota = test.quota.DiskQuota, test.quota.EntriesQuota
				return nil
			})
			must(t, err)
			room, err := s.quotas.reserve(t.Context(), empty)
			must(t, err)
			for range 100 {
				must(t, room.takeEntry())
			}
			if err := room.takeEntry(); err == nil || !strings.HasSuffix(err.Error(), test.why) {
				t.Errorf("the 101st entry: %v, want %s", err, test.why)
			}
			room.end()
		})
	}
}
