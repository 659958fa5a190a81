package spool

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const keptBundle = "0x0123456789abcdef0123456789abcdef"

// keptDisk is a disk with the kept results of one bundle: a file of five bytes
// and two directories.
func keptDisk(t *testing.T) (Disk, KeptResults) {
	t.Helper()
	d := Disk{Layout: Layout(t.TempDir())}
	dir := filepath.Join(d.Layout.KeptDir(keptBundle), "a", "b")
	must(t, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "c"), []byte("12345"), 0o600)))
	found, err := d.ListKeptResults()
	if err != nil || len(found) != 1 || found[0] != (KeptResults{Name: keptBundle, Bundle: keptBundle, Identity: keptBundle}) {
		t.Fatalf("kept: %+v, %v", found, err)
	}
	return d, found[0]
}

func TestKeptResultsThatCameIntoUseArePutBack(t *testing.T) {
	t.Parallel()
	d, k := keptDisk(t)
	failure := errors.New("the ledger cannot be reached")
	for _, answer := range []struct {
		used bool
		err  error
	}{{true, nil}, {false, failure}} {
		removed, err := d.RemoveKeptResults(k, func() (bool, error) {
			if _, err := os.Stat(d.Layout.KeptDir(keptBundle)); !os.IsNotExist(err) {
				t.Errorf("they can still be found while it is asked: %v", err)
			}
			return answer.used, answer.err
		})
		if removed || !errors.Is(err, answer.err) {
			t.Errorf("removed %t, %v", removed, err)
		}
		if bytes, entries, err := d.MeasureKeptResults(t.Context(), k); err != nil || bytes != 5 || entries != 3 {
			t.Errorf("%d bytes in %d entries, %v", bytes, entries, err)
		}
	}
}

func TestRemovalThatWasCutShortIsTakenUp(t *testing.T) {
	t.Parallel()
	d, k := keptDisk(t)
	must(t, os.Rename(d.Layout.KeptDir(keptBundle), d.Layout.KeptRemovingDir(keptBundle)))
	found, err := d.ListKeptResults()
	if err != nil || len(found) != 1 || found[0] != (KeptResults{Name: ".removing-" + keptBundle, Bundle: keptBundle, Identity: keptBundle, Removing: true}) {
		t.Fatalf("kept: %+v, %v", found, err)
	}
	// A bundle depends on them after all, so they come back.
	if removed, err := d.RemoveKeptResults(found[0], func() (bool, error) { return true, nil }); removed || err != nil {
		t.Errorf("removed %t, %v", removed, err)
	}
	if removed, err := d.RemoveKeptResults(k, func() (bool, error) { return false, nil }); !removed || err != nil {
		t.Errorf("removed %t, %v", removed, err)
	}
	if found, err := d.ListKeptResults(); err != nil || len(found) != 0 {
		t.Errorf("left %+v, %v", found, err)
	}
}

func TestKeptResultsAreThoseWithTheNamesThatTheyAreGiven(t *testing.T) {
	t.Parallel()
	d, k := keptDisk(t)
	want := []KeptResults{
		{Name: ".removing-" + keptBundle, Bundle: keptBundle, Identity: keptBundle, Removing: true},
		{Name: ".removing-" + keptBundle + ".2", Bundle: keptBundle, Identity: keptBundle, Superseded: true, Removing: true},
		k,
		{Name: keptBundle + ".10", Bundle: keptBundle, Identity: keptBundle, Superseded: true},
	}
	names := []string{
		"mydata", ".removing-mydata", "0x0123", "0X" + keptBundle[2:], "0x0123456789ABCDEF0123456789ABCDEF", keptBundle + "0",
		keptBundle + "-backup", keptBundle + ".", keptBundle + ".old", keptBundle + ".0", keptBundle + ".1.old", "old" + keptBundle, ".removing-" + keptBundle + "\n",
	}
	for _, k := range want {
		names = append(names, k.Name)
	}
	for _, name := range names {
		must(t, os.MkdirAll(filepath.Join(d.Layout.KeptDirs(), name), 0o700))
	}
	must(t, os.WriteFile(d.Layout.KeptDir(keptBundle+".3"), nil, 0o600))
	found, err := d.ListKeptResults()
	if diff := cmp.Diff(want, found); err != nil || diff != "" {
		t.Errorf("kept: %v (-want +got)\n%s", err, diff)
	}
}
