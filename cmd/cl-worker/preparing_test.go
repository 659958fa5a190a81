package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// trickle sends the bytes of a layer slowly, but faster than the least rate of a registry, until the client is gone.
func trickle(w http.ResponseWriter, r *http.Request, size int64) {
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		_, _ = w.Write(make([]byte, 3000))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// TestRunsWhoseImageDoesNotComeLeaveTheWorkerToOthers gives a worker two runs that fill its memory and whose images
// do not come. A third run, of an image that the worker has, begins and ends.
func TestRunsWhoseImageDoesNotComeLeaveTheWorkerToOthers(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	testenv.Root(t)
	program := shipped.Path(t)
	for _, trouble := range []struct {
		name string
		// image returns the name of an image that does not come; status is a part of its runs' status.
		image  func(t *testing.T, registry *imagetest.Registry) string
		status string
	}{
		{"dripping", func(t *testing.T, registry *imagetest.Registry) string {
			t.Helper()
			noise := make([]byte, 4<<20)
			_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // it does not fail
			slow := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("slow", string(noise))))
			digest, err := slow.Digest()
			must(t, err)
			size, err := slow.Size()
			must(t, err)
			img, err := mutate.AppendLayers(scriptImage(t), slow)
			must(t, err)
			name := registry.Push(t, "lab/slow:1", img)
			registry.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, digest.String()) {
					return false
				}
				trickle(w, r, size)
				return true
			}
			return name
		}, "lab/slow:1"},
		{"dead", func(t *testing.T, _ *imagetest.Registry) string {
			t.Helper()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			must(t, listener.Close())
			return listener.Addr().String() + "/lab/dead:1"
		}, "cannot be reached"},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			t.Parallel()
			registry := imagetest.Start(t)
			here := registry.Push(t, "lab/tools:1", scriptImage(t))
			away := trouble.image(t, registry)
			api := startSmallWorker(t, program)
			if b := runAndWait(t, api, here); b.State != codalab.StateReady { // now the worker has the image
				t.Fatalf("the first run is %s: %v", b.State, b.Metadata)
			}
			var waiting []string
			for range 2 {
				waiting = append(waiting, createRun(t, api, away))
			}
			status := func(uuid string) (codalab.State, string) {
				b, err := api.Bundle(t.Context(), uuid)
				must(t, err)
				return b.State, b.Metadata.String("run_status")
			}
			said := ""
			for _, uuid := range waiting {
				testenv.Await(t, "the run's status names the trouble", func() bool {
					var state codalab.State
					state, said = status(uuid)
					return state == codalab.StatePreparing && strings.Contains(said, trouble.status)
				}, &said)
			}
			if b := runAndWait(t, api, here); b.State != codalab.StateReady {
				t.Errorf("the third run is %s: %v", b.State, b.Metadata)
			}
			for _, uuid := range waiting {
				if state, said := status(uuid); state != codalab.StatePreparing {
					t.Errorf("a run whose image does not come is %s: %s", state, said)
				}
			}
		})
	}
}

// startSmallWorker starts a server, and a worker with memory for two runs. The client is of the runs' owner.
func startSmallWorker(t *testing.T, program string) *client.Client {
	t.Helper()
	u := testenv.Researcher(t)
	dir := testenv.SharedDir(t)
	address := startTestServer(t, filepath.Join(dir, "server"))
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	must(t, os.Chown(dir, u.UID, u.GID))
	cmd := exec.Command(program, "--server", address, "--id", "small", "--work-dir", filepath.Join(dir, "work"), "--bundle-runtime", "builtin", "--max-memory", "4g", "--fetch-private", "127.0.0.1")
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + dir, "CODALAB_USERNAME=ann", "CODALAB_PASSWORD=" + scriptPassword}
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: u.Credential}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("the worker ended: %v: %s", err, log.String())
		}
	})
	return api
}
