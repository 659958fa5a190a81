package contents

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// cl announces an upload's bytes while the server reads the bundle for the upload.
func TestAnnouncementBeforeTheUploadIsForgotten(t *testing.T) {
	t.Parallel()
	data, err := store.Open(t.Context(), t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, data.Close()) })
	alice := store.User{ID: "0xa", Name: "alice"}
	b := store.Bundle{UUID: "0x" + strings.Repeat("1", 32), Type: codalab.TypeDataset, OwnerID: alice.ID, State: codalab.StateUploading, Metadata: codalab.Metadata{}}
	must(t, errors.Join(data.AddUser(t.Context(), alice), data.CreateBundle(t.Context(), b, "")))
	quotas := &Quotas{now: time.Now, store: data, accounts: map[string]*account{}}
	must(t, quotas.Announce(t.Context(), b, 100))
	r, err := quotas.reserve(t.Context(), b) // b is older than the announcement
	must(t, err)
	r.end()
	if u, err := data.User(t.Context(), b.OwnerID); err != nil || u.DiskUsed != 0 {
		t.Errorf("%d bytes used by nothing, %v", u.DiskUsed, err)
	}
	if n := len(quotas.accounts); n != 0 {
		t.Errorf("%d accounts are remembered", n)
	}
}

func TestFullDiskIsSaidToBeFull(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		cause := fmt.Errorf("store file: %w", &fs.PathError{Op: "write", Path: "/data/secret", Err: errno})
		if status, message := uploadError(cause); status != 500 || message != "the server's disk is full" {
			t.Errorf("%v: %d %s", errno, status, message)
		}
	}
}

var must = testenv.Must
