package bridge

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestMessageIsWrittenIntoPlainFilesOnly(t *testing.T) {
	t.Parallel()
	l := spool.Layout(t.TempDir())
	b := &Bridge{Policy: plan.Policy{Layout: l}}
	b.view.rows = map[string]*plan.Row{"0x1": {Bundle: "0x1", Attempt: 1, Phase: plan.Running}}
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
	// The command would not see it.
	b.Policy.Queues = map[string]plan.Queue{"": {WorkDir: spool.WorkDirLocal}}
	if err := write("fresh"); err == nil || !strings.Contains(err.Error(), "its node's own disk") {
		t.Errorf("written where the command does not work: %v", err)
	}
}
