package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// dockerSite is a server with a user, a registry with an image, and Docker.
type dockerSite struct {
	t             *testing.T
	user          testenv.User
	dir           string
	address       string
	api           *client.Client
	host, program string
	image         string
}

func newDockerSite(t *testing.T) *dockerSite {
	t.Helper()
	testenv.Root(t)
	s := &dockerSite{t: t, user: testenv.Researcher(t), dir: testenv.SharedDir(t)}
	s.host, s.program = engine.Host(t)
	s.address = startTestServer(t, filepath.Join(s.dir, "server"))
	var err error
	s.api, err = client.New(s.address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	// The tests share one Docker, in which an image of the same id would be another test's.
	img, err := mutate.Config(scriptImage(t), v1.Config{Labels: map[string]string{"test": s.dir}})
	must(t, err)
	s.image = imagetest.Start(t).Push(t, "lab/tools:1", img)
	must(t, os.Chown(s.dir, s.user.UID, s.user.GID))
	t.Cleanup(func() { _ = s.docker("image", "rm", "--force", s.image).Run() }) // it may be gone
	return s
}

func (s *dockerSite) docker(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+s.host)
	return cmd
}

func (s *dockerSite) hasImage() bool { return s.docker("image", "inspect", s.image).Run() == nil }

// start starts a stand-alone worker of an ordinary user with Docker, in a work directory of its own. stop ends
// it by a signal.
func (s *dockerSite) start(id string, args ...string) (stop func(os.Signal)) {
	s.t.Helper()
	cmd := s.worker(id, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must(s.t, cmd.Start())
	ended := false
	stop = func(signal os.Signal) {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(signal)
		if err := cmd.Wait(); err != nil && signal != os.Kill || s.t.Failed() {
			s.t.Errorf("the worker %s ended: %v: %s", id, err, log.String())
		}
	}
	s.t.Cleanup(func() { stop(os.Interrupt) })
	return stop
}

// worker returns the command of such a worker.
func (s *dockerSite) worker(id string, args ...string) *exec.Cmd {
	s.t.Helper()
	cmd := exec.Command(shipped.Path(s.t), append([]string{
		"--server", s.address, "--id", id, "--work-dir", filepath.Join(s.dir, "work-"+id), "--bundle-runtime", "docker", "--fetch-private", "127.0.0.1",
	}, args...)...)
	cmd.Env = []string{
		"PATH=" + filepath.Dir(s.program) + ":/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + s.dir, "DOCKER_HOST=" + s.host,
		"CODALAB_USERNAME=ann", "CODALAB_PASSWORD=" + scriptPassword,
	}
	cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: s.user.Credential}
	return cmd
}

// run runs a bundle to its end.
func (s *dockerSite) run() {
	s.t.Helper()
	if b := runAndWait(s.t, s.api, s.image); b.State != codalab.StateReady {
		s.t.Fatalf("the bundle is %s: %v", b.State, b.Metadata)
	}
}

// awaitNoImage waits until Docker's store does not have the image.
func (s *dockerSite) awaitNoImage() {
	s.t.Helper()
	testenv.Await(s.t, "Docker does not have the image", func() bool { return !s.hasImage() })
}

func TestDockersImagesAreKeptWithinTheirBound(t *testing.T) {
	t.Parallel()
	s := newDockerSite(t)
	s.start("w", "--max-image-cache-size", "1k")
	s.run()
	s.awaitNoImage()
}

func TestDockersImagesOfAWorkerThatHasEndedAreRemovedByTheNext(t *testing.T) {
	t.Parallel()
	for _, end := range []os.Signal{os.Interrupt, os.Kill} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			s := newDockerSite(t)
			stop := s.start("first")
			s.run()
			stop(end)
			if !s.hasImage() {
				t.Fatal("Docker has no image of the first worker")
			}
			s.start("next", "--max-image-cache-size", "1k")
			s.awaitNoImage()
		})
	}
}

// A stand-alone worker uses Docker where cl-worker probe names another runtime.
func TestWorkerNamesTheWeakerWallsOfItsRuntime(t *testing.T) {
	t.Parallel()
	s := newDockerSite(t)
	log, err := s.worker("w", "--exit-when-idle", "--idle-seconds", "0").CombinedOutput()
	text := string(log)
	if err != nil || !strings.Contains(text, "docker is a weaker wall than the built-in runtime: a command can ") ||
		!strings.Contains(text, ", and it can write as much as it likes into the container's root, where the engine has the files") {
		t.Errorf("%v: %s", err, log)
	}
}
