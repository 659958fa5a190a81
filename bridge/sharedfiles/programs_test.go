package sharedfiles

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
	queues := Programs{Workers: map[config.Architecture]string{config.Architecture("").Canonical(): "/bin/own", "s390x": "/bin/s390x"}}.Queues(c)
	if queues["here"].Worker != "" || queues["there"].Worker != "/bin/s390x" || queues["there"].Architecture != "s390x" {
		t.Errorf("%+v", queues)
	}
}
