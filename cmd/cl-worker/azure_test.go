package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch/batchtest"
)

// managing is cl-worker-manager.
var managing = testenv.Program{Package: "../cl-worker-manager"}

// azureRuns is the number of runs, and so of workers, of the test.
const azureRuns = 3

// TestWorkersInTasksOfAzureBatchRunBundles is the whole way: cl-worker-manager azure-batch starts a worker for each of some
// runs. Each worker is cl-worker in a container of Docker, with the options that the task names and no login but its
// token. It runs its bundle in the built-in runtime. Then no worker is left.
func TestWorkersInTasksOfAzureBatchRunBundles(t *testing.T) {
	t.Parallel()
	testenv.PrivateNetwork(t)
	host, docker := engine.Host(t)
	dir := testenv.SharedDir(t)
	address := startTestServer(t, filepath.Join(dir, "server"))
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	image := imagetest.Start(t).Push(t, "lab/tools:1", scriptImage(t))
	service, logs := batchtest.New(t, azureRuns), batchtest.NewContainer(t)
	node := batchtest.Docker{Host: host, Client: docker, Worker: shipped.Path(t), Dir: filepath.Join(dir, "node")}
	node.Prepare(t)
	service.Execute = node.Execute
	manager := func(words ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), managing.Path(t), append([]string{
			"--server", address, "--min-workers", "0", "--max-workers", "8", "--worker-image", batchtest.Image, "--worker-fetch-private", "127.0.0.1",
			"--worker-idle-seconds", "5", "--worker-exit-after-num-runs", "1", "azure-batch",
			"--account-name", service.Account, "--service-url", service.URL, "--job-id", service.Job,
		}, words...)...)
		c.Env = append(os.Environ(), "CODALAB_USERNAME=ann", "CODALAB_PASSWORD="+scriptPassword, "AZURE_BATCH_ACCESS_KEY="+service.Key, "CL_AZURE_LOG_CONTAINER_URL="+logs.URL)
		return c
	}
	call := func(words ...string) string {
		out, err := manager(words...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", words, err, out)
		}
		t.Logf("$ cl-worker-manager … azure-batch … %s\n%s", strings.Join(words, " "), out)
		return string(out)
	}
	call("--check")
	var uuids []string
	for range azureRuns {
		uuids = append(uuids, createRun(t, api, image))
	}
	running := manager()
	var log bytes.Buffer
	running.Stdout, running.Stderr = &log, &log
	must(t, running.Start())
	end := sync.OnceFunc(func() {
		_ = running.Process.Signal(os.Interrupt)
		_ = running.Wait()
		t.Log(log.String())
	})
	t.Cleanup(end)
	remotes := map[string]string{}
	for _, uuid := range uuids {
		var b client.BundleInfo
		testenv.Await(t, "the run has ended", func() bool {
			b, err = api.Bundle(t.Context(), uuid)
			must(t, err)
			return b.State.Final()
		}, &b.State, &b.Metadata)
		if b.State != codalab.StateReady {
			t.Errorf("the run is %s: %v", b.State, b.Metadata)
		}
		remotes[b.Metadata.String("remote")] = uuid
	}
	if len(remotes) != azureRuns {
		t.Errorf("the runs were in %q", remotes)
	}
	testenv.Await(t, "all workers have ended", func() bool { return len(service.IDs("completed")) == azureRuns && len(service.IDs("")) == azureRuns })
	if out := call("status"); !strings.Contains(out, "no workers") {
		t.Errorf("status says %s", out)
	}
	service.RemoveNodes()
	if out := call("logs", uuids[0]); !strings.Contains(out, "Worker started!") || !strings.Contains(out, uuids[0]) {
		t.Errorf("the log of the worker is %s", out)
	}
	for remote := range remotes {
		if !strings.Contains(remote, pilot.WorkerID("cl_worker_codalab_")) {
			t.Errorf("a run was in %s", remote)
		}
	}
	end()
	if strings.Contains(log.String(), logs.Signature) || strings.Contains(log.String(), service.Key) {
		t.Error("a secret is in the manager's log")
	}
}
