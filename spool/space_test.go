package spool

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestSpaceIsThatOfTheSharedDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if s, err := (Disk{Layout: Layout(dir)}).Space(); err == nil {
		t.Errorf("of a disk that is not mounted: %+v", s)
	}
	testenv.SmallDisk(t, dir, "size=1m,nr_inodes=100")
	d := mounted(t, dir)
	before, err := d.Space()
	if err != nil || before.Total != 1<<20 || before.Free <= 0 || before.Free > before.Total || before.Files != 100 || before.FreeFiles >= 100 {
		t.Fatalf("%+v, %v", before, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "x"), make([]byte, 512<<10), 0o600))
	after, err := d.Space()
	if err != nil || before.Free-after.Free != 512<<10 || before.FreeFiles-after.FreeFiles != 1 {
		t.Errorf("%+v, %v; before %+v", after, err, before)
	}
}

func TestDisksClockGoesOnAndTakesNoRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.SmallDisk(t, dir, "size=64k,nr_inodes=10")
	d := mounted(t, dir)
	for i, full := 0, false; !full; i++ {
		full = os.WriteFile(filepath.Join(dir, string(rune('a'+i))), make([]byte, 64<<10), 0o600) != nil
	}
	first, err := d.Now()
	second, again := d.Now()
	if err != nil || again != nil || second.Before(first) || time.Since(first).Abs() > time.Minute {
		t.Errorf("%v, %v; then %v, %v", first, err, second, again)
	}
}

func TestTrashIsPutBackUnlessItsNameIsTaken(t *testing.T) {
	t.Parallel()
	d := mounted(t, t.TempDir())
	must(t, d.Prepare("1-b1", d.spec("0x1", 1)))
	left, err := d.Leftovers(func(string) bool { return false })
	if err != nil || len(left) != 2 || left[0].Kind != LeftRun || left[1].Kind != LeftRecords {
		t.Fatalf("%+v, %v", left, err)
	}
	for _, l := range left {
		if l.Bundle != "0x1" || len(l.Bridges) != 1 || l.Bridges[0] != "b1" || l.Touched.IsZero() {
			t.Errorf("%+v", l)
		}
	}
	trash, err := d.PutAside(left[1], time.Unix(1000, 0))
	if err != nil || filepath.Base(trash.Path) != ".trash-1000-0x1" {
		t.Fatalf("%+v, %v", trash, err)
	}
	if found, err := d.Leftovers(func(string) bool { return false }); err != nil || len(found) != 2 || found[0].Kind != LeftTrash || found[0].Bundle != "0x1" || !found[0].Touched.Equal(time.Unix(1000, 0)) {
		t.Errorf("%+v, %v", found, err)
	}
	if err := d.PutBack(trash); err != nil {
		t.Error(err)
	}
	if _, err := d.PutAside(left[1], time.Unix(1000, 0)); err != nil {
		t.Error(err)
	}
	if err := d.Prepare("1-b1", d.spec("0x1", 1)); err != nil { // its bundle has come back
		t.Fatal(err)
	}
	if err := d.PutBack(trash); err == nil {
		t.Error("the bundle's new records were replaced")
	}
	if err := d.Discard(trash); err != nil {
		t.Error(err)
	}
	if _, err := d.Layout.Attempt("0x1", "1-b1").ReadSpec(); err != nil {
		t.Error(err)
	}
}
