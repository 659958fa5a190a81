package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// imageBuilder is the program of `make worker-image`.
var imageBuilder = testenv.Program{Package: "../../scripts/workerimage"}

// TestWorkersImageRunsABundle builds the workers' image, pushes it, and starts it in Docker as a cloud does: without
// root, without privileges, and with a token in a variable. The worker in it runs a bundle in the built-in runtime.
func TestWorkersImageRunsABundle(t *testing.T) {
	t.Parallel()
	testenv.DebianMirror(t)
	testenv.PrivateNetwork(t)
	host, docker := engine.Host(t)
	registry := imagetest.Start(t)
	run := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), docker, args...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+host)
		return cmd
	}
	image := registry.Host + "/lab/cl-worker:1"
	root, err := filepath.Abs("../..")
	must(t, err)
	build := exec.CommandContext(t.Context(), imageBuilder.Path(t), "-source", root, "-platforms", "linux/"+runtime.GOARCH, "-out", "", "-push", image)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	t.Cleanup(func() { _ = run("image", "rm", "--force", image).Run() }) // it may be gone

	tools := registry.Push(t, "lab/tools:1", scriptImage(t))
	address := startTestServer(t, filepath.Join(testenv.SharedDir(t), "server"))
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	token, err := api.WorkerToken(t.Context(), "w", time.Hour)
	must(t, err)
	pod := run("run", "--rm", "--name", "cl-worker-"+codalab.NewUUID(), "--network", "host", "--cap-drop", "ALL",
		"--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined", "--device", "/dev/fuse", "--device", "/dev/net/tun",
		"--tmpfs", "/scratch:exec,mode=1777", "--env", loginVariable, image,
		"--server", address, "--id", "w", "--work-dir", "/scratch", "--fetch-private", "127.0.0.1", "--exit-after-num-runs", "1")
	pod.Env = append(pod.Env, loginVariable+"="+token)
	var log bytes.Buffer
	pod.Stdout, pod.Stderr = &log, &log
	must(t, pod.Start())
	b := runAndWait(t, api, tools)
	err = pod.Wait()
	if b.State != codalab.StateReady || err != nil {
		t.Fatalf("the bundle is %s: %v; the worker: %v: %s", b.State, b.Metadata, err, log.String())
	}
	contents, err := api.OpenContents(t.Context(), codalab.Target{BundleUUID: b.UUID, Subpath: "stdout"}, nil)
	must(t, err)
	out, err := io.ReadAll(contents)
	must(t, errors.Join(err, contents.Close()))
	if !strings.Contains(string(out), "ran\n") || strings.Contains(string(out), token) {
		t.Errorf("%s", out)
	}
}
