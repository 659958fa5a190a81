package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch/batchtest"
	"github.com/cl-slurm/cl-slurm/server"
)

// managing is cl-worker-manager.
var managing = testenv.Program{Package: "../cl-worker-manager"}

// azureRuns is the number of runs, and so of workers, of the test.
const azureRuns = 3

// The time after which the server takes a silent worker for gone: a short one for tests that wait for it, and the usual
// one.
const (
	shortTimeout  = 15 * time.Second
	workerTimeout = time.Minute
)

// azureSite is a server, a Batch account whose tasks are containers of Docker, and the command line of a manager.
type azureSite struct {
	*batchtest.Service
	t     *testing.T
	api   *client.Client
	image string // for bundles
	logs  *batchtest.Container
	args  []string
}

func newAzureSite(t *testing.T, nodes int, timeout time.Duration) *azureSite {
	t.Helper()
	testenv.PrivateNetwork(t)
	host, docker := engine.Host(t)
	dir := testenv.SharedDir(t)
	address, stop := startChangedServer(t, filepath.Join(dir, "server"), server.Config{Now: time.Now, WorkerTimeout: timeout}, func(h http.Handler) http.Handler { return h })
	t.Cleanup(stop)
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	s := &azureSite{Service: batchtest.New(t, nodes), t: t, api: api, logs: batchtest.NewContainer(t)}
	s.image = imagetest.Start(t).Push(t, "lab/tools:1", scriptImage(t))
	node := batchtest.Docker{Host: host, Client: docker, Worker: shipped.Path(t), Dir: filepath.Join(dir, "nodes")}
	node.Prepare(t)
	s.Execute = node.Execute
	s.args = []string{
		"--server", address, "--min-workers", "0", "--max-workers", "8", "--worker-image", batchtest.Image, "--worker-fetch-private", "127.0.0.1",
		"--worker-idle-seconds", "5", "--worker-exit-after-num-runs", "1", "azure-batch", "--account-name", s.Account, "--service-url", s.URL, "--job-id", s.Job,
	}
	return s
}

func (s *azureSite) manager(words ...string) *exec.Cmd {
	s.t.Helper()
	c := exec.CommandContext(s.t.Context(), managing.Path(s.t), append(s.args[:len(s.args):len(s.args)], words...)...)
	c.Env = append(os.Environ(), "CODALAB_USERNAME=ann", "CODALAB_PASSWORD="+scriptPassword, "AZURE_BATCH_ACCESS_KEY="+s.Key, "CL_AZURE_LOG_CONTAINER_URL="+s.logs.URL)
	return c
}

// call runs one command, and returns its output.
func (s *azureSite) call(words ...string) string {
	s.t.Helper()
	out, err := s.manager(words...).CombinedOutput()
	s.t.Logf("$ cl-worker-manager … azure-batch … %s\n%s", strings.Join(words, " "), out)
	must(s.t, err)
	return string(out)
}

// manage runs the manager until end is called, which returns the manager's log.
func (s *azureSite) manage() (end func() string) {
	s.t.Helper()
	return runManager(s.t, s.manager(), "cl-worker-manager … azure-batch")
}

// await waits until a bundle's state holds.
func (s *azureSite) await(uuid, what string, holds func(b client.BundleInfo) bool) client.BundleInfo {
	s.t.Helper()
	return awaitBundle(s.t, s.api, uuid, what, holds)
}

// TestWorkersInTasksOfAzureBatchRunBundles is the whole way: cl-worker-manager azure-batch starts a worker for each of some
// runs. Each worker is cl-worker in a container of Docker, with the options that the task names and no login but its
// token. It runs its bundle in the built-in runtime. Then no worker is left.
func TestWorkersInTasksOfAzureBatchRunBundles(t *testing.T) {
	t.Parallel()
	s := newAzureSite(t, azureRuns, workerTimeout)
	s.call("--check")
	var uuids []string
	for range azureRuns {
		uuids = append(uuids, createRun(t, s.api, s.image))
	}
	end := s.manage()
	remotes := map[string]bool{}
	for _, uuid := range uuids {
		b := s.await(uuid, "the run has ended", func(b client.BundleInfo) bool { return b.State.Final() })
		if remote := b.Metadata.String("remote"); b.State != codalab.StateReady || !strings.Contains(remote, pilot.WorkerID("cl_worker_codalab_")) {
			t.Errorf("the run is %s in %s: %v", b.State, remote, b.Metadata)
		}
		remotes[b.Metadata.String("remote")] = true
	}
	testenv.Await(t, "all workers have ended", func() bool { return len(s.IDs("completed")) == azureRuns && len(s.IDs("")) == azureRuns })
	if out := s.call("status"); !strings.Contains(out, "no workers") || len(remotes) != azureRuns {
		t.Errorf("the runs were in %v; status says %s", remotes, out)
	}
	s.RemoveNodes()
	if out := s.call("logs", uuids[0]); !strings.Contains(out, "Worker started!") || !strings.Contains(out, uuids[0]) {
		t.Errorf("the log of the worker is %s", out)
	}
	if log := end(); strings.Contains(log, s.logs.Signature) || strings.Contains(log, s.Key) {
		t.Error("a secret is in the manager's log")
	}
}

// TestPreemptedTaskIsTheSameWorkerAgain takes the node of a worker away, as Azure does with Spot nodes. Azure Batch begins
// the task again on another node, and the run begins there again: when another node comes, or at once, while the server
// still takes the first start of the worker for alive.
func TestPreemptedTaskIsTheSameWorkerAgain(t *testing.T) {
	t.Parallel()
	t.Run("later", func(t *testing.T) {
		t.Parallel()
		preemptWorker(t, 1, shortTimeout)
	})
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		preemptWorker(t, 2, workerTimeout)
	})
}

func preemptWorker(t *testing.T, nodes int, timeout time.Duration) {
	t.Helper()
	s := newAzureSite(t, nodes, timeout)
	uuid := createRunOf(t, s.api, s.image, "sleep 100000")
	s.manage()
	runs := func(b client.BundleInfo) bool { return b.State == codalab.StateRunning }
	first := s.await(uuid, "the run has begun", runs)
	id := s.IDs("")[0]
	if out := s.call("status"); !strings.Contains(out, "tvmps_00000001_d") {
		t.Errorf("status says %s", out)
	}
	s.Preempt(id)
	if nodes == 1 { // and there is no other node yet
		s.await(uuid, "the run is staged again", func(b client.BundleInfo) bool { return b.State == codalab.StateStaged })
		s.AddNodes(1)
	}
	again := s.await(uuid, "the run has begun again", func(b client.BundleInfo) bool {
		return runs(b) && b.Metadata.Float("started") != first.Metadata.Float("started")
	})
	if first.Metadata.String("remote") != again.Metadata.String("remote") || len(s.IDs("")) != 1 {
		t.Errorf("first in %s, again in %s; tasks %q", first.Metadata.String("remote"), again.Metadata.String("remote"), s.IDs(""))
	}
	if out := s.call("status"); !strings.Contains(out, "tvmps_00000002_d") || !strings.Contains(out, " 1/1 ") {
		t.Errorf("status says %s", out)
	}
	if out := s.call("kill", id, "--yes"); !strings.Contains(out, uuid) {
		t.Errorf("kill says %s", out)
	}
	testenv.Await(t, "the task has ended", func() bool {
		_, state := s.Task(id)
		return state == "completed"
	})
	if out := s.call("logs", id); !strings.Contains(out, "Worker started!") || !strings.Contains(out, "the worker gives its runs back to the server") {
		t.Errorf("the log is %s", out)
	}
}
