package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
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

// workersImage is the workers' image, in a registry of a test, and an engine of Docker.
type workersImage struct {
	*imagetest.Registry
	host, docker, name string
}

func newWorkersImage(t *testing.T, in *testenv.Docker) *workersImage {
	t.Helper()
	testenv.DebianMirror(t)
	testenv.PrivateNetwork(t)
	w := &workersImage{Registry: imagetest.Start(t)}
	w.host, w.docker = in.Host(t)
	w.name = w.Host + "/lab/cl-worker:1"
	root, err := filepath.Abs("../..")
	must(t, err)
	build := exec.CommandContext(t.Context(), imageBuilder.Path(t), "-source", root, "-platforms", "linux/"+runtime.GOARCH, "-out", "", "-push", w.name)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	t.Cleanup(func() { _ = w.command("image", "rm", "--force", w.name).Run() }) // it may be gone
	return w
}

func (w *workersImage) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.docker, args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+w.host)
	return cmd
}

// run returns the command that starts a container with all that the built-in runtime needs, which is no privilege.
func (w *workersImage) run(settings []string, args ...string) *exec.Cmd {
	return w.command(slices.Concat([]string{
		"run", "--rm", "--network", "host", "--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined",
		"--device", "/dev/fuse", "--device", "/dev/net/tun", "--tmpfs", "/tmp:exec,mode=1777",
	}, settings, []string{w.name}, args)...)
}

// TestWorkersImageRunsABundle builds the workers' image, pushes it, and starts it in Docker as a cloud does: with a
// token in a variable. The worker in it runs a bundle in the built-in runtime.
func TestWorkersImageRunsABundle(t *testing.T) {
	t.Parallel()
	image := newWorkersImage(t, &engine)
	tools := image.Push(t, "lab/tools:1", scriptImage(t))
	address := startTestServer(t, filepath.Join(testenv.SharedDir(t), "server"))
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	for _, user := range []struct {
		settings []string
		ids      string // what probe says of the ids of its runs
	}{
		{[]string{"--cap-drop", "ALL", "--security-opt", "no-new-privileges"}, `no .*no_new_privs`},
		{[]string{"--user", "12345:0", "--cap-drop", "ALL"}, `no .*/etc/subuid`}, // a user without a name, as on OpenShift
		{[]string{"--user", "root"}, `yes +1-65535 +/usr/bin/newuidmap`},
	} {
		probe, err := image.run(user.settings, "probe").CombinedOutput()
		want := regexp.MustCompile(`(?m)^subordinate ids +` + user.ids + `\b.*\n(.*\n)*builtin: nothing else was asked for, and this node has all that it needs`)
		if err != nil || !want.Match(probe) {
			t.Errorf("%q: %v: %s", user.settings, err, probe)
		}
		token, err := api.WorkerToken(t.Context(), "w", time.Hour)
		must(t, err)
		pod := image.run(append(user.settings, "--env", loginVariable),
			"--server", address, "--id", "w", "--work-dir", "/tmp/work", "--fetch-private", "127.0.0.1", "--exit-after-num-runs", "1")
		pod.Env = append(pod.Env, loginVariable+"="+token)
		var log bytes.Buffer
		pod.Stdout, pod.Stderr = &log, &log
		must(t, pod.Start())
		b := runAndWait(t, api, tools)
		err = pod.Wait()
		if b.State != codalab.StateReady || err != nil {
			t.Fatalf("%q: the bundle is %s: %v; the worker: %v: %s", user.settings, b.State, b.Metadata, err, log.String())
		}
		contents, err := api.OpenContents(t.Context(), codalab.Target{BundleUUID: b.UUID, Subpath: "stdout"}, nil)
		must(t, err)
		out, err := io.ReadAll(contents)
		must(t, errors.Join(err, contents.Close()))
		if !strings.Contains(string(out), "ran\n") || strings.Contains(string(out), token) {
			t.Errorf("%s", out)
		}
	}
}
