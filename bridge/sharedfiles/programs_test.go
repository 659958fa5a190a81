package sharedfiles

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestWorkerOfAnotherArchitectureIsRefused(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	layout := spool.Layout(t.TempDir())
	if _, err := installWorker(self, "s390x", layout); err == nil || !strings.Contains(err.Error(), "the queue's nodes are s390x") {
		t.Errorf("error %v", err)
	}
	worker, err := installWorker(self, config.Architecture("").Canonical(), layout)
	if err != nil || filepath.Base(worker.Path) != spool.WorkerName {
		t.Errorf("%+v, %v", worker, err)
	}
}

func TestWorkerOfNodesIsTakenWhereItIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"cl-worker", "cl-worker-node"} {
		testenv.WriteProgram(t, filepath.Join(dir, name), []byte("a program"))
		if got := filepath.Base(workerIn(dir)); got != name {
			t.Errorf("%s is taken in place of %s", got, name)
		}
	}
}

// A queue of other nodes runs another worker, and no other queue does.
func TestQueueRunsTheWorkerOfItsNodes(t *testing.T) {
	t.Parallel()
	c := config.Config{Queue: map[string]*config.Queue{"here": {}, "there": {Architecture: "s390x"}}}
	queues := Programs{Workers: map[config.Architecture]sbatch.Program{config.Architecture("").Canonical(): {Path: "/bin/own"}, "s390x": {Path: "/bin/s390x"}}}.Queues(c)
	if queues["here"].Worker != (sbatch.Program{}) || queues["there"].Worker.Path != "/bin/s390x" || queues["there"].Architecture != "s390x" {
		t.Errorf("%+v", queues)
	}
}

// A program that somebody has changed, or put there, is not taken for the right one because it is there.
func TestProgramThatWasReplacedIsInstalledAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	layout, source := spool.Layout(filepath.Join(dir, "shared")), filepath.Join(dir, "cl-worker")
	testenv.Must(t, os.WriteFile(source, []byte("#!/bin/sh\nexit 0\n"), 0o700))
	first, err := installWorker(source, config.Architecture("").Canonical(), layout)
	testenv.Must(t, err)
	again, err := installWorker(source, config.Architecture("").Canonical(), layout)
	if err != nil || again != first {
		t.Errorf("%+v, %v; want the same file as before, %+v", again, err, first)
	}
	testenv.Must(t, os.WriteFile(first.Path, []byte("#!/bin/sh\nexit 1\n"), 0o700))
	if _, err := installWorker(source, config.Architecture("").Canonical(), layout); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(first.Path); err != nil || string(got) != "#!/bin/sh\nexit 0\n" {
		t.Errorf("%q, %v", got, err)
	}
	out, err := exec.CommandContext(t.Context(), "stat", "-L", "-c", "%i %s %.9Z", again.Path).Output()
	if again, _ := installWorker(source, config.Architecture("").Canonical(), layout); err != nil || strings.TrimSpace(string(out)) != again.Stamp {
		t.Errorf("the stamp is %q, and stat prints %q, %v", again.Stamp, out, err)
	}
}
