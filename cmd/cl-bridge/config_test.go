package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/config"
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
	path, err := installWorker(self, config.Architecture("").Canonical(), layout)
	if err != nil || filepath.Base(path) != spool.WorkerName {
		t.Errorf("%s, %v", path, err)
	}
}

// A queue of other nodes runs another worker, and no other queue does.
func TestQueueRunsTheWorkerOfItsNodes(t *testing.T) {
	t.Parallel()
	c := config.Config{Queue: map[string]*config.Queue{"here": {}, "there": {Architecture: "s390x"}}}
	queues := programs{workers: map[config.Architecture]string{config.Architecture("").Canonical(): "/bin/own", "s390x": "/bin/s390x"}}.queues(c)
	if queues["here"].Worker != "" || queues["there"].Worker != "/bin/s390x" || queues["there"].Architecture != "s390x" {
		t.Errorf("%+v", queues)
	}
}

func TestPasswordFileOfOthersIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := credentials(config.Config{User: "ann", PasswordFile: path})
	if user, password, err := ask(t.Context()); err != nil || user != "ann" || password != "secret" {
		t.Errorf("credentials = %q, %q, %v", user, password, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(t.Context()); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a readable password file: %v", err)
	}
}

func TestSharedDiskThatIsNotMountedIsNotTakenForAnEmptyOne(t *testing.T) {
	t.Parallel()
	layout := spool.Layout(t.TempDir())
	if err := prepareShared(layout, 3); err == nil || !strings.Contains(err.Error(), "is its disk mounted?") {
		t.Errorf("an empty directory for a ledger with bundles: %v", err)
	}
	if entries, err := os.ReadDir(string(layout)); err != nil || len(entries) > 0 {
		t.Errorf("made %v, %v", entries, err)
	}
	for _, bundles := range []int{0, 3} {
		if err := prepareShared(layout, bundles); err != nil {
			t.Errorf("with %d bundles: %v", bundles, err)
		}
	}
	if err := os.Remove(layout.KeptDirs()); err != nil { // as an earlier version leaves it
		t.Fatal(err)
	}
	if err := prepareShared(layout, 3); err != nil {
		t.Errorf("without a directory of kept results: %v", err)
	}
}
