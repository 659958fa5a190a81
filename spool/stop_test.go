package spool

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The worker makes the file of stops before it looks again and again, so that no NFS client remembers that there is none. A stop
// that comes before that stands.
func TestMemberOfAPackIsStoppedByAFileThatTheWorkerExpects(t *testing.T) {
	t.Parallel()
	d := mounted(t, t.TempDir())
	spec := Spec{Bundle: "0x1", Attempt: 1, Pack: true, RunDir: d.Layout.RunDir("0x1", "1-b1")}
	stopped := func(a Attempt, want bool) {
		t.Helper()
		if got, err := a.Stopped(); err != nil || got != want {
			t.Errorf("stopped %t, %v; want %t", got, err, want)
		}
	}
	early := d.Layout.Attempt("0x1", "2-b1")
	must(t, early.WriteSpec(spec))
	must(t, errors.Join(d.StopAttempt("0x1", "2-b1"), early.ExpectStop()))
	stopped(early, true)

	a := d.Layout.Attempt("0x1", "1-b1")
	must(t, a.WriteSpec(spec))
	stopped(a, false)
	must(t, a.ExpectStop())
	file := filepath.Join(a.Dir, "stop")
	before, err := os.Stat(file)
	must(t, err)
	stopped(a, false)
	for range 2 {
		must(t, d.StopAttempt("0x1", "1-b1"))
		stopped(a, true)
	}
	must(t, a.WriteSpec(spec)) // by a bridge that was cut short
	stopped(a, true)
	if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) || after.Size() != int64(len(stopText)) {
		t.Errorf("%+v, %v: not the same file, or not one text", after, err)
	}
}

func TestAttemptHasNoFileOfStopsBeforeOneIsExpected(t *testing.T) {
	t.Parallel()
	d := mounted(t, t.TempDir())
	a := d.Layout.Attempt("0x1", "1-b1")
	must(t, a.WriteSpec(Spec{Bundle: "0x1", Attempt: 1, Pack: true, RunDir: d.Layout.RunDir("0x1", "1-b1")}))
	if stopped, err := a.Stopped(); stopped || err != nil {
		t.Errorf("%t, %v", stopped, err)
	}
	if _, err := os.Stat(filepath.Join(a.Dir, "stop")); err == nil {
		t.Error("there is a file of stops")
	}
	must(t, os.RemoveAll(a.Dir))
	if err := a.WriteStop(); !errors.Is(err, ErrGone) {
		t.Errorf("of an attempt that is gone: %v", err)
	}
	must(t, os.RemoveAll(d.Layout.spool()))
	if err := a.WriteStop(); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("on a disk that is not mounted: %v", err)
	}
}
