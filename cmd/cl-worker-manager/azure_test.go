package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch/batchtest"
)

// azureSite is a server, a Batch account whose tasks are processes of this machine, and the command line of a manager.
type azureSite struct {
	*batchtest.Service
	t    *testing.T
	logs *batchtest.Container
	env  map[string]string
	args []string // up to the flags of azure-batch
}

func newAzureSite(t *testing.T, server string, nodes int) *azureSite {
	t.Helper()
	s := &azureSite{Service: batchtest.New(t, nodes), t: t, logs: batchtest.NewContainer(t)}
	dir := t.TempDir()
	s.Execute = batchtest.Processes(dir, "PATH="+os.Getenv("PATH"))
	key := filepath.Join(dir, "key")
	testenv.Must(t, os.WriteFile(key, []byte(s.Key+"\n"), 0o600))
	s.env = map[string]string{"CODALAB_USERNAME": "ann", "CODALAB_PASSWORD": "secret", "CL_AZURE_LOG_CONTAINER_URL": s.logs.URL}
	s.args = []string{
		"--server", server, "--min-workers", "0", "--max-workers", "8", "--worker-idle-seconds", "60", "--worker-exit-after-num-runs", "1", "--worker-image", "lab/cl-worker:1", "azure-batch",
		"--account-name", s.Account, "--account-key-file", key, "--service-url", s.URL, "--job-id", s.Job,
	}
	return s
}

// call runs one command, and returns its output.
func (s *azureSite) call(words ...string) string {
	s.t.Helper()
	out, err := runHere(s.t, s.env, append(s.args[:len(s.args):len(s.args)], words...)...)
	if err != nil {
		s.t.Fatalf("%q: %v: %s", words, err, out)
	}
	return out
}

// manage runs the manager until the test ends, or end is called.
func (s *azureSite) manage() (log *testenv.Output, end func()) {
	s.t.Helper()
	log = &testenv.Output{}
	ctx, stop := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, program.Process{
			Args: s.args, Stdin: strings.NewReader(""), Stdout: log, Stderr: log, Getenv: func(name string) string { return s.env[name] }, Now: time.Now,
		})
	}()
	end = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			s.t.Errorf("the manager: %v: %s", err, log)
		}
	})
	s.t.Cleanup(end)
	return log, end
}

// TestWorkersRunInTasksOfAzureBatch goes from no worker to eight and back to none. All of it is real but the service:
// the server, the manager and the processes of the tasks.
func TestWorkersRunInTasksOfAzureBatch(t *testing.T) {
	t.Parallel()
	web := startServer(t, filepath.Join(t.TempDir(), "server"))
	api := connectAnn(t, web.URL)
	s := newAzureSite(t, web.URL, 8)
	if out := s.call("--check"); strings.Contains(out, " no ") || !strings.Contains(out, "job prod-cpu of account lab is active") {
		t.Errorf("--check says %s", out)
	}
	uuids := stage(t, api, 8, nil)
	log, end := s.manage()
	remotes := map[string]string{}
	for _, uuid := range uuids {
		remotes[uuid] = awaitState(t, api, uuid, codalab.StateReady).Metadata.String("remote")
	}
	if ids := s.IDs(""); len(ids) != 8 {
		t.Errorf("%d tasks for 8 runs", len(ids))
	}
	testenv.Await(t, "all tasks have ended", func() bool { return len(s.IDs("completed")) == len(s.IDs("")) }, log.String)
	if out := s.call("status"); !strings.Contains(out, "no workers") {
		t.Errorf("status says %s", out)
	}
	for uuid, remote := range remotes {
		if out := s.call("logs", uuid); !strings.Contains(out, "the worker takes "+uuid) {
			t.Errorf("the log of the worker of %s is %s", uuid, out)
		}
		if blob := s.logs.Blob(strings.TrimPrefix(remote, "host-") + "/stdout.txt"); !strings.Contains(string(blob), uuid) {
			t.Errorf("the blob of %s is %q", remote, blob)
		}
	}
	s.RemoveNodes()
	if out := s.call("logs", uuids[0]); !strings.Contains(out, "the worker takes "+uuids[0]) {
		t.Errorf("without nodes the log of %s is %s", remotes[uuids[0]], out)
	}
	end()
	if text := log.String(); strings.Contains(text, s.logs.Signature) || strings.Contains(text, s.Key) || strings.Count(text, "WARN") != 1 || !strings.Contains(text, loopbackWarning) {
		t.Errorf("the manager's log: %s", text)
	}
}

// TestWorkerInATaskIsKilledAndItsRunIsStagedAgain also reads the log of a running worker from its node.
func TestWorkerInATaskIsKilledAndItsRunIsStagedAgain(t *testing.T) {
	t.Parallel()
	web := startServer(t, filepath.Join(t.TempDir(), "server"))
	api := connectAnn(t, web.URL)
	s := newAzureSite(t, web.URL, 1)
	uuid := stage(t, api, 1, codalab.Metadata{"name": "sleep"})[0]
	s.manage()
	remote := awaitState(t, api, uuid, codalab.StateRunning).Metadata.String("remote")
	var out string
	testenv.Await(t, "the log names the run", func() bool {
		out = s.call("logs", uuid)
		return strings.Contains(out, "the worker takes "+uuid)
	}, &out)
	first := strings.TrimPrefix(remote, "host-")
	if out := s.call("status"); !regexp.MustCompile(first + ` .*running .*tvmps_00000001_d`).MatchString(out) {
		t.Errorf("status says %s", out)
	}
	out = s.call("kill", pilot.ID(first), "--yes")
	if !strings.Contains(out, uuid) || !strings.Contains(out, remote) {
		t.Errorf("kill says %s", out)
	}
	testenv.Await(t, "the task has ended", func() bool {
		_, state := s.Service.Task(first)
		return state == "completed"
	})
	if out := s.call("logs", first); !strings.Contains(out, "the worker got TERM") {
		t.Errorf("the log is %s", out)
	}
}
