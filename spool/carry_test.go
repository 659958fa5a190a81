package spool_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

const carried = "0x0123456789abcdef0123456789abcdef"

// carryDisk returns a disk with run directories of these attempts, each with a file of its name.
func carryDisk(t *testing.T, attempts ...spool.AttemptName) spool.Disk {
	t.Helper()
	d := spool.Disk{Layout: spool.Layout(t.TempDir()), Bridge: "b1"}
	for _, dir := range d.Layout.Directories() {
		testenv.Must(t, os.MkdirAll(dir, 0o700))
	}
	for _, a := range attempts {
		dir := d.Layout.RunDir(carried, a)
		testenv.Must(t, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "count"), []byte(a), 0o600)))
	}
	return d
}

// runDirs returns the names of the bundle's run directories.
func runDirs(t *testing.T, d spool.Disk) []string {
	t.Helper()
	entries, err := os.ReadDir(d.Layout.RunsDir(carried))
	testenv.Must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func countIn(t *testing.T, d spool.Disk, a spool.AttemptName) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(d.Layout.RunDir(carried, a), "count"))
	testenv.Must(t, err)
	return string(data)
}

func TestNextAttemptGetsACopyAndOlderOnesGo(t *testing.T) {
	t.Parallel()
	d := carryDisk(t, "1-b1", "2-b1", "3-b1", "1-other", "9-b1", "2-b1.carrying-77")
	testenv.Must(t, d.Carry(t.Context(), carried, "2-b1", "4-b1", nil))
	// Attempt 9 is of a ledger that is newer than this bridge's, and 1-other is another bridge's.
	if got, want := runDirs(t, d), []string{"1-other", "2-b1", "4-b1", "9-b1"}; !slices.Equal(got, want) {
		t.Errorf("run directories %q, want %q", got, want)
	}
	if got := countIn(t, d, "4-b1"); got != "2-b1" {
		t.Errorf("the next attempt has the files of %q", got)
	}
}

// No two attempts ever see one directory, so one that exists is not touched: the bridge may have crashed after it had
// made it, or its ledger is old and the attempt runs.
func TestDirectoryOfAnAttemptIsNeverMadeTwice(t *testing.T) {
	t.Parallel()
	d := carryDisk(t, "1-b1", "2-b1")
	testenv.Must(t, d.Carry(t.Context(), carried, "1-b1", "2-b1", nil))
	if got := countIn(t, d, "2-b1"); got != "2-b1" {
		t.Errorf("the attempt's own files were replaced by those of %q", got)
	}
}

// The bridge may die between any two lines: a half copy has no name of an attempt, and the next try begins again.
func TestHalfCopyIsNoDirectoryOfAnAttempt(t *testing.T) {
	t.Parallel()
	d := carryDisk(t, "1-b1")
	testenv.Must(t, os.WriteFile(filepath.Join(d.Layout.RunDir(carried, "1-b1"), "more"), nil, 0o600))
	ctx, die := context.WithCancel(t.Context())
	if err := d.Carry(ctx, carried, "1-b1", "2-b1", func(int) { die() }); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	if got, want := runDirs(t, d), []string{"1-b1"}; !slices.Equal(got, want) {
		t.Errorf("run directories %q, want %q", got, want)
	}
	half := filepath.Join(d.Layout.RunsDir(carried), "2-b1.carrying-1", "files")
	testenv.Must(t, os.MkdirAll(half, 0o700)) // as a bridge leaves it that was killed
	testenv.Must(t, d.Carry(t.Context(), carried, "1-b1", "2-b1", nil))
	if got, want := runDirs(t, d), []string{"1-b1", "2-b1"}; !slices.Equal(got, want) {
		t.Errorf("run directories %q, want %q", got, want)
	}
}

func TestFullDiskLeavesNoHalfCopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.SmallDisk(t, dir, "size=1m")
	d := spool.Disk{Layout: spool.Layout(dir), Bridge: "b1"}
	source := d.Layout.RunDir(carried, "1-b1")
	for _, made := range append(d.Layout.Directories(), source) {
		testenv.Must(t, os.MkdirAll(made, 0o700))
	}
	testenv.Must(t, errors.Join(os.WriteFile(filepath.Join(source, "count"), []byte("1-b1"), 0o600), os.WriteFile(filepath.Join(source, "large"), make([]byte, 600<<10), 0o600)))
	if err := d.Carry(t.Context(), carried, "1-b1", "2-b1", nil); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%v", err)
	}
	if got, want := runDirs(t, d), []string{"1-b1"}; !slices.Equal(got, want) {
		t.Errorf("run directories %q, want %q", got, want)
	}
	testenv.Must(t, os.Truncate(filepath.Join(source, "large"), 300<<10)) // there is room again
	testenv.Must(t, d.Carry(t.Context(), carried, "1-b1", "2-b1", nil))
	if got := countIn(t, d, "2-b1"); got != "1-b1" {
		t.Errorf("the next attempt has the files of %q", got)
	}
}

func TestFilesThatAreGoneAreAFinalFailure(t *testing.T) {
	t.Parallel()
	d := carryDisk(t, "1-b1")
	var gone *spool.CarryError
	err := d.Carry(t.Context(), carried, "2-b1", "3-b1", nil)
	if !errors.As(err, &gone) || gone.Transient() || err.Error() != "the files of attempt 2 are gone from the shared disk" {
		t.Errorf("%v", err)
	}
	// But not while the disk is not mounted.
	testenv.Must(t, os.Rename(d.Layout.Runs(), d.Layout.Runs()+"-away"))
	if err := d.Carry(t.Context(), carried, "1-b1", "3-b1", nil); err == nil || errors.As(err, &gone) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without runs/: %v", err)
	}
	testenv.Must(t, os.RemoveAll(filepath.Join(string(d.Layout), "spool")))
	if err := d.Carry(t.Context(), carried, "1-b1", "3-b1", nil); err == nil || !strings.HasPrefix(err.Error(), "find the shared disk: ") {
		t.Errorf("without spool/: %v", err)
	}
}
