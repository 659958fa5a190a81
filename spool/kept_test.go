package spool

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// keptDisk is a disk with kept results of one bundle, some of it closed.
func keptDisk(t *testing.T) (Disk, Kept) {
	t.Helper()
	d := Disk{Layout: Layout(t.TempDir())}
	dir := filepath.Join(d.Layout.KeptDir("0x1"), "a", "b")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "c"), []byte("12345"), 0o600)); err != nil {
		t.Fatal(err)
	}
	found, err := d.Kept()
	if err != nil || len(found) != 1 || found[0] != (Kept{Name: "0x1", Bundle: "0x1"}) {
		t.Fatalf("kept: %+v, %v", found, err)
	}
	return d, found[0]
}

func TestKeptResultsThatSomebodyBeganToUseArePutBack(t *testing.T) {
	t.Parallel()
	d, k := keptDisk(t)
	failure := errors.New("the ledger is away")
	for _, answer := range []struct {
		used bool
		err  error
	}{{true, nil}, {false, failure}} {
		removed, err := d.RemoveKept(k, func() (bool, error) {
			if _, err := os.Stat(d.Layout.KeptDir("0x1")); !os.IsNotExist(err) {
				t.Errorf("they can still be found while it is asked: %v", err)
			}
			return answer.used, answer.err
		})
		if removed || !errors.Is(err, answer.err) {
			t.Errorf("removed %t, %v", removed, err)
		}
		if bytes, entries, err := d.KeptSize(t.Context(), k); err != nil || bytes != 5 || entries != 3 {
			t.Errorf("%d bytes in %d entries, %v", bytes, entries, err)
		}
	}
}

func TestRemovalThatWasCutShortIsTakenUp(t *testing.T) {
	t.Parallel()
	d, k := keptDisk(t)
	if err := os.Rename(d.Layout.KeptDir("0x1"), d.Layout.KeptAside("0x1")); err != nil {
		t.Fatal(err)
	}
	found, err := d.Kept()
	if err != nil || len(found) != 1 || found[0] != (Kept{Name: ".removing-0x1", Bundle: "0x1", Removing: true}) {
		t.Fatalf("kept: %+v, %v", found, err)
	}
	// Somebody depends on them after all: they come back.
	if removed, err := d.RemoveKept(found[0], func() (bool, error) { return true, nil }); removed || err != nil {
		t.Errorf("removed %t, %v", removed, err)
	}
	if removed, err := d.RemoveKept(k, func() (bool, error) { return false, nil }); !removed || err != nil {
		t.Errorf("removed %t, %v", removed, err)
	}
	if found, err := d.Kept(); err != nil || len(found) != 0 {
		t.Errorf("left %+v, %v", found, err)
	}
}
