package bridge

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// layout makes a shared directory.
func layout(t *testing.T, dir string) spool.Layout {
	t.Helper()
	l := spool.Layout(dir)
	for _, d := range l.Directories() {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func looked(t *testing.T, b *Bridge) plan.News {
	t.Helper()
	var n plan.News
	b.look("0x1", 1, time.Unix(1, 0))(&n)
	return n
}

func TestSharedDiskThatIsNotThereSaysNothingAndIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // nothing is mounted on it
	b := &Bridge{Policy: plan.Policy{Layout: spool.Layout(dir)}}
	row := plan.Row{Bundle: "0x1", Attempt: 1, Mark: "m"}
	if n := looked(t, b); n.Records != nil || n.LookFailure == "" {
		t.Errorf("look says %+v, want that it failed", n)
	}
	if c := b.close(t.Context(), row); c.Failure == "" || c.Standing.Closed {
		t.Errorf("closing says %+v, want that it failed", c)
	}
	if err := b.release(row); err == nil {
		t.Error("files count as released")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestLookReadsWhatIsThere(t *testing.T) {
	t.Parallel()
	b := &Bridge{Policy: plan.Policy{Layout: layout(t, t.TempDir())}}
	if n := looked(t, b); n.Records == nil || n.Records.Started != nil {
		t.Errorf("look at an attempt without a directory: %+v, want an empty reading", n)
	}
	a := b.Policy.Layout.Attempt("0x1", 1)
	if err := a.WriteSpec(spool.Spec{RunDir: b.Policy.Layout.RunDir("0x1", 1)}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Begin(t.Context(), spool.Started{Token: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := a.WriteExit(spool.Exit{Token: "t", Cause: spool.CauseSucceeded}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.Dir, "status.json"), []byte(`{"form`), 0o600); err != nil { // torn
		t.Fatal(err)
	}
	if err := os.WriteFile(a.OutputPath(), []byte(strings.Repeat("-", 5000)+"the end"), 0o600); err != nil {
		t.Fatal(err)
	}
	rec := looked(t, b).Records
	if rec.Started == nil || rec.Exit == nil || rec.Status != nil || len(rec.Output) != 2048 || rec.Output[2041:] != "the end" {
		t.Errorf("start %v, status %v, exit %v, %d bytes of output", rec.Started, rec.Status, rec.Exit, len(rec.Output))
	}
	// An attempt that began cannot be closed: the start stands.
	if c := b.close(t.Context(), plan.Row{Bundle: "0x1", Attempt: 1}); c.Failure != "" || c.Standing.Token != "t" {
		t.Errorf("closing says %+v, want the start that stands", c)
	}
}

func TestRecordThatTheDiskDoesNotGiveOutIsNotAbsent(t *testing.T) {
	t.Parallel()
	b := &Bridge{Policy: plan.Policy{Layout: layout(t, t.TempDir())}}
	a := b.Policy.Layout.Attempt("0x1", 1)
	// A directory where the record should be: reading it fails.
	if err := os.MkdirAll(filepath.Join(a.Dir, "exit.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Begin(t.Context(), spool.Started{Token: "t"}); err != nil {
		t.Fatal(err)
	}
	n := looked(t, b)
	if n.LookFailure == "" || n.Records == nil || n.Records.Started == nil || !n.Records.Read.IsZero() {
		t.Errorf("failure %q, records %+v; want the start, and that not all was read", n.LookFailure, n.Records)
	}
}

func TestReleaseRemovesWhatACommandLockedUp(t *testing.T) {
	t.Parallel()
	l := layout(t, t.TempDir())
	b := &Bridge{Policy: plan.Policy{Layout: l, Bridge: "b1b2b3", Owner: "ann"}}
	row := plan.Row{Bundle: "0x1", Attempt: 2}
	if err := os.MkdirAll(filepath.Join(l.RunDir("0x1", 1), "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(l.RunDir("0x1", 1), "a"), 0); err != nil {
		t.Fatal(err)
	}
	for _, m := range b.Policy.Marks(row) {
		if err := l.WriteMembers(string(m), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.release(row); err != nil {
		t.Fatal(err)
	}
	marks, err := os.ReadDir(filepath.Dir(l.Members("m")))
	if err != nil || len(marks) != 0 {
		t.Errorf("marks left: %v, %v", marks, err)
	}
	if _, err := os.Stat(l.RunsDir("0x1")); !os.IsNotExist(err) {
		t.Errorf("run directories: %v, want none", err)
	}
}

func TestMessageIsWrittenIntoPlainFilesOnly(t *testing.T) {
	t.Parallel()
	l := layout(t, t.TempDir())
	b := &Bridge{Policy: plan.Policy{Layout: l}}
	b.view.rows = map[string]plan.Row{"0x1": {Bundle: "0x1", Attempt: 1, Phase: plan.Running}}
	dir := l.RunDir("0x1", 1)
	if err := errors.Join(os.MkdirAll(dir, 0o700), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.WriteFile(filepath.Join(dir, "file"), []byte("a longer text"), 0o600), os.Symlink("/etc/hostname", filepath.Join(dir, "out"))); err != nil {
		t.Fatal(err)
	}
	write := func(name string) error {
		return b.write(codalab.Message{Type: codalab.MessageWrite, UUID: "0x1", Subpath: name, String: "hello"})
	}
	for _, name := range []string{"file", "fresh"} {
		if err := write(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != "hello" {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"pipe", "out", "..", "a/b", "."} {
		if err := write(name); err == nil {
			t.Errorf("wrote into %s", name)
		}
	}
}
