package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestFileOnANetworkFileSystemIsRefusedAndAnotherPlaceIsNamed(t *testing.T) {
	t.Parallel()
	root := testenv.NetworkDisk(t)
	for _, where := range []string{filepath.Join(root, "ledger.db"), filepath.Join(root, "not", "yet", "ledger.db")} {
		for what, use := range map[string]func() error{
			"open":         func() error { _, err := ledger.Open(t.Context(), where); return err },
			"open to read": func() error { _, err := ledger.OpenToRead(t.Context(), where); return err },
			"lock":         func() error { _, err := ledger.Lock(t.Context(), where); return err },
			"make dir":     func() error { return ledger.MakeDir(where) },
		} {
			err := use()
			if !errors.Is(err, ledger.ErrNetwork) {
				t.Errorf("%s %s: %v, want ErrNetwork", what, where, err)
				continue
			}
			for _, want := range []string{where, "FUSE", `ledger = "/var/tmp/cl-bridge-`, "postgres://"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: no %q in %q", what, want, err)
				}
			}
		}
	}
}

func TestDirectoryOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "cl-bridge-ann")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 4242, 4242)); err != nil {
		t.Fatal(err)
	}
	where := filepath.Join(dir, "ledger.db")
	if err := ledger.MakeDir(where); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("room in another user's directory: %v", err)
	}
	mine := filepath.Join(t.TempDir(), "a", "b", "ledger.db")
	if err := ledger.MakeDir(mine); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Dir(mine)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v: want a directory of mode 700", info, err)
	}
}

func TestLedgerOfAnIdleBridgeDoesNotGrowOld(t *testing.T) {
	t.Parallel()
	where := file(t)
	_ = open(t, where)
	release, err := ledger.Lock(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	now := time.Unix(1_800_000_000, 0)
	ledger.Touch(where, now)
	entries, err := os.ReadDir(filepath.Dir(where))
	if err != nil || len(entries) != 4 {
		t.Fatalf("%v, %v: want the ledger's four files", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || !info.ModTime().Equal(now) {
			t.Errorf("%s: %v, %v", e.Name(), info.ModTime(), err)
		}
	}
}
