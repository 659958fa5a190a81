package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// startSite gives a script the environment of a site. $SLURM is the directory of
// scripts with the names of Slurm's commands. $SERVER is a CodaLab server on
// which ann has the password secret. $WORKER is the path of a cl-worker.
func startSite(t *testing.T, env *testscript.Env) {
	t.Helper()
	_, _, web := startServer(t, filepath.Join(env.WorkDir, "..", filepath.Base(env.WorkDir)+"-server"))
	worker, err := testedWorker(env)
	if err != nil {
		t.Fatal(err)
	}
	env.Setenv("SLURM", string(writeSlurmCommands(t, t.TempDir())))
	env.Setenv("SERVER", web.URL)
	env.Setenv("WORKER", worker)
}

// testedWorker finds the program that the scripts use as cl-worker.
func testedWorker(env *testscript.Env) (string, error) {
	for _, dir := range filepath.SplitList(env.Getenv("PATH")) {
		path := filepath.Join(dir, "cl-worker")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", os.ErrNotExist
}

// nodeWorker is the cl-worker of the scripts' jobs. It knows `probe --meet DIR …` and `probe
// --json`, and reports a node that has everything.
func nodeWorker() {
	r := probe.Report{
		Node: "n1", Kernel: "6.1", Machine: "x86_64", Cgroup: "/sys/fs/cgroup/memory/job", MemoryLimit: 512 << 20,
		Choice: &container.Choice{Runtime: runtimes.Builtin, Reason: "this node has all that it needs"},
		Facts:  &probe.Facts{ScratchDir: "/tmp", Container: &probe.Trial{Seconds: 0.02}, Now: time.Now()},
	}
	if len(os.Args) == 3 && json.NewEncoder(os.Stdout).Encode(r) == nil {
		return
	}
	if len(os.Args) < 4 || (probe.Meeting{Dir: os.Args[3]}).Attend(context.Background(), r, time.Now) != nil {
		os.Exit(1)
	}
}
