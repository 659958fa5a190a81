package spool

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// mounted makes a shared disk in a directory.
func mounted(t *testing.T, dir string) Disk {
	t.Helper()
	d := Disk{Layout: Layout(dir), Bridge: "b1"}
	for _, dir := range d.Layout.Directories() {
		must(t, os.MkdirAll(dir, 0o700))
	}
	return d
}

func (d Disk) spec(bundle string, attempt int) Spec {
	return Spec{Format: Format, Bundle: bundle, Attempt: attempt, SubmissionName: "m", Command: "true", RunDir: d.Layout.RunDir(bundle, NameAttempt(attempt, "b1"))}
}

func TestDiskThatIsNotMountedSaysNothingAndIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // nothing is mounted on it
	d := Disk{Layout: Layout(dir), Bridge: "b1"}
	if rec, err := d.ReadRecords("0x1", "1-b1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read: %+v, %v", rec, err)
	}
	if standing, err := d.Fence(t.Context(), "0x1", "1-b1", at(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("fence: %+v, %v", standing, err)
	}
	if err := d.Release("0x1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("release: %v", err)
	}
	if err := d.Prepare("1-b1", d.spec("0x1", 1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("prepare: %v", err)
	}
	if rang, err := d.TakeRings(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("answer: %v, %v", rang, err)
	}
	if err := d.Layout.Bell().Ring("0x1", "1-b1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ring: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestPreparedIsWhatTheWorkerReads(t *testing.T) {
	t.Parallel()
	d := mounted(t, t.TempDir())
	spec := d.spec("0x1", 2)
	must(t, errors.Join(d.Prepare("2-b1", spec), d.Prepare("2-b1", spec))) // a repetition is harmless
	got, err := d.Layout.Attempt("0x1", "2-b1").ReadSpec()
	if diff := cmp.Diff(spec, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := os.Stat(d.Layout.RunDir("0x1", "2-b1")); err != nil {
		t.Error(err)
	}
}

func TestFullDiskPreparesNothingAndStillTellsWhatStands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.SmallDisk(t, dir, "size=256k")
	d := mounted(t, dir)
	a := d.Layout.Attempt("0x1", "1-b1")
	must(t, d.Prepare("1-b1", d.spec("0x1", 1)))
	begun, _, err := a.Begin(t.Context(), Started{Token: "t", At: at(1)})
	must(t, err)
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill: %v", err)
	}
	if err := d.Prepare("2-b1", d.spec("0x1", 2)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("prepare: %v", err)
	}
	if _, err := d.Layout.Attempt("0x1", "2-b1").ReadSpec(); !errors.Is(err, ErrNone) {
		t.Errorf("half a specification: %v", err)
	}
	if rec, err := d.ReadRecords("0x1", "1-b1"); err != nil || rec.Started == nil || *rec.Started != begun {
		t.Errorf("read: %+v, %v", rec, err)
	}
	over, end := context.WithCancel(t.Context())
	end()
	if standing, err := d.Fence(over, "0x1", "1-b1", at(2)); err != nil || standing != begun {
		t.Errorf("fence what has begun: %+v, %v", standing, err)
	}
	if standing, err := d.Fence(over, "0x1", "2-b1", at(2)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("fence what has not: %+v, %v", standing, err)
	}
}

func TestRecordsThatAreThereAreRead(t *testing.T) {
	t.Parallel()
	d := mounted(t, t.TempDir())
	read := func() Records {
		t.Helper()
		rec, err := d.ReadRecords("0x1", "1-b1")
		must(t, err)
		return rec
	}
	if rec := read(); rec != (Records{}) {
		t.Errorf("of an attempt without a directory: %+v", rec)
	}
	must(t, d.Prepare("1-b1", d.spec("0x1", 1)))
	if rec := read(); rec != (Records{}) {
		t.Errorf("of an attempt that has not begun: %+v", rec)
	}
	a := d.Layout.Attempt("0x1", "1-b1")
	begun, _, err := a.Begin(t.Context(), Started{Token: "t", At: at(1)})
	status := Status{Format: Format, Token: "t", Stage: StageRunning, At: at(2)}
	exit := Exit{Format: Format, Token: "t", Cause: CauseSucceeded, CommandEnded: at(3)}
	must(t, errors.Join(err, a.WriteStatus(status), a.WriteExit(exit)))
	write(t, a.OutputPath(), strings.Repeat("-", 5000)+"the end")
	want := Records{Started: &begun, Status: &status, Exit: &exit, Output: strings.Repeat("-", 2041) + "the end"}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Error(diff)
	}
	write(t, a.path("status.json"), `{"form`)
	write(t, a.path("exit.json"), `{"format":2,"token":"t","cause":"user"}`) // of another build
	want.Status, want.Exit = nil, nil
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Error(diff)
	}
}

// Reading a directory in a record's place fails.
func TestRecordThatTheDiskDoesNotGiveOutIsNotAbsent(t *testing.T) {
	t.Parallel()
	d := mounted(t, t.TempDir())
	a := d.Layout.Attempt("0x1", "1-b1")
	must(t, os.MkdirAll(a.path("exit.json"), 0o700))
	if _, _, err := a.Begin(t.Context(), Started{Token: "t"}); err != nil {
		t.Fatal(err)
	}
	if rec, err := d.ReadRecords("0x1", "1-b1"); err == nil || rec.Started == nil || rec.Exit != nil {
		t.Errorf("%+v, %v; want the start, and that not all was read", rec, err)
	}
	write(t, filepath.Join(d.Layout.BundleDir("0x2")), "no directory")
	if rec, err := d.ReadRecords("0x2", "1-b1"); err == nil {
		t.Errorf("of an attempt that cannot be reached: %+v", rec)
	}
}

func TestDiskFencesWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	d := mounted(t, t.TempDir())
	if _, err := d.Fence(t.Context(), "0x1", "1-b1", at(1)); !errors.Is(err, ErrGone) {
		t.Errorf("an attempt without a directory: %v, want that it is gone", err)
	}
	must(t, os.MkdirAll(d.Layout.Attempt("0x1", "1-b1").Dir, 0o700))
	fenced, err := d.Fence(t.Context(), "0x1", "1-b1", at(1))
	if err != nil || !fenced.Fenced || !fenced.At.Equal(at(1)) {
		t.Errorf("%+v, %v", fenced, err)
	}
	if again, err := d.Fence(t.Context(), "0x1", "1-b1", at(2)); err != nil || again != fenced {
		t.Errorf("fenced again: %+v, %v", again, err)
	}
	a := d.Layout.Attempt("0x1", "2-b1")
	must(t, os.MkdirAll(a.Dir, 0o700))
	begun, _, err := a.Begin(t.Context(), Started{Token: "t"})
	must(t, err)
	if standing, err := d.Fence(t.Context(), "0x1", "2-b1", at(1)); err != nil || standing != begun {
		t.Errorf("of a begun attempt: %+v, %v", standing, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	write(t, d.Layout.BundleDir("0x2"), "no directory")
	if standing, err := d.Fence(ctx, "0x2", "1-b1", at(1)); err == nil {
		t.Errorf("where it cannot be written: %+v", standing)
	}
}

// It runs as an ordinary user, because no permissions stop root.
func TestReleaseRemovesWhatACommandLockedUp(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	d := mounted(t, t.TempDir())
	for _, bundle := range []string{"0x1", "0x2"} {
		must(t, d.Prepare("1-b1", d.spec(bundle, 1)))
	}
	locked := filepath.Join(d.Layout.RunDir("0x1", "1-b1"), "a")
	must(t, errors.Join(os.MkdirAll(filepath.Join(locked, "b"), 0o700), os.Chmod(locked, 0)))
	for range 2 { // a repetition is harmless
		must(t, d.Release("0x1"))
	}
	for path, want := range map[string]bool{
		d.Layout.RunsDir("0x1"): false, d.Layout.BundleDir("0x1"): false,
		d.Layout.RunsDir("0x2"): true, d.Layout.BundleDir("0x2"): true,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
}

// A bridge whose ledger was lost has a new id, and may get a bundle of which the old bridge left files.
func TestAttemptsOfTwoBridgesKeepApart(t *testing.T) {
	t.Parallel()
	one := mounted(t, t.TempDir())
	other := Disk{Layout: one.Layout, Bridge: "b2"}
	prepare := func(d Disk, name AttemptName, submissionName string) {
		t.Helper()
		must(t, d.Prepare(name, Spec{Bundle: "0x1", Attempt: 1, SubmissionName: submissionName, RunDir: d.Layout.RunDir("0x1", name)}))
		begun := Started{Token: submissionName, At: at(1)}
		_, _, err := d.Layout.Attempt("0x1", name).Begin(t.Context(), begun)
		must(t, errors.Join(err, d.Layout.Bell().Ring("0x1", name)))
	}
	prepare(one, NameAttempt(1, one.Bridge), "of one")
	prepare(other, NameAttempt(1, other.Bridge), "of other")
	for name, want := range map[AttemptName]string{"1-b1": "of one", "1-b2": "of other"} {
		if rec, err := one.ReadRecords("0x1", name); err != nil || rec.Started == nil || rec.Started.Token != want {
			t.Errorf("%s: %+v, %v; want the start of %s", name, rec.Started, err, want)
		}
	}
	rang, err := one.TakeRings()
	if d := cmp.Diff([]Ring{{"0x1", "1-b1"}}, rang); d != "" || err != nil {
		t.Errorf("rings of one: %v (-want +got):\n%s", err, d)
	}
	if rang, err := other.TakeRings(); err != nil || len(rang) != 1 || rang[0].Attempt != "1-b2" {
		t.Errorf("rings of the other: %v, %v", rang, err)
	}
	moved := string(other.Layout.RunDir("0x1", "1-b2")) + ".moved"
	must(t, os.WriteFile(moved, nil, 0o600))
	must(t, os.Mkdir(one.Layout.RunDir("0x1", "2"), 0o700)) // its name shows no bridge
	must(t, one.Release("0x1"))
	if _, err := os.Stat(moved); err != nil {
		t.Errorf("the file next to the other bridge's run directory: %v", err)
	}
	for name, want := range map[AttemptName]bool{"1-b1": false, "1-b2": true, "2": false} {
		_, err := os.Stat(one.Layout.RunDir("0x1", name))
		if _, specErr := one.Layout.Attempt("0x1", name).ReadSpec(); (err == nil) != want || (specErr == nil) != want {
			t.Errorf("%s: run directory %v, specification %v; want it there: %v", name, err, specErr, want)
		}
	}
	must(t, other.Release("0x1"))
	for _, dir := range []string{one.Layout.BundleDir("0x1"), one.Layout.RunsDir("0x1")} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want that it is gone", dir, err)
		}
	}
}
