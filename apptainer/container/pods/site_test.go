package pods_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/pods"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
	"github.com/cl-slurm/cl-slurm/internal/kubetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// helper is a program that begins with runner.Main.
var helper = testenv.Program{Package: "../testdata/enter"}

func TestMain(m *testing.M) {
	code := m.Run()
	helper.Remove()
	caller.Remove()
	shell.Remove()
	os.Exit(code)
}

// shell is an image with sh and some programs, for all tests.
var shell kubetest.Shared

// shellImage returns the name of an image that all nodes have.
func shellImage(t *testing.T) string {
	t.Helper()
	return shell.Name(t, func() v1.Image {
		var files []imagetest.File
		have := map[string]bool{}
		for _, program := range strings.Fields("sh cat env id ls sleep tail touch") {
			path, err := exec.LookPath(program)
			testenv.Must(t, err)
			for _, from := range append([]string{path}, libraries(path)...) {
				to := strings.TrimPrefix(from, "/")
				if from == path {
					to = "bin/" + program
				}
				if content, err := os.ReadFile(from); err == nil && !have[to] {
					have[to] = true
					files = append(files, imagetest.Executable(to, string(content)))
				}
			}
		}
		return imagetest.Image(t, v1.Config{Env: []string{"PATH=/bin", "FROM_IMAGE=yes"}}, imagetest.GzipLayer(t, imagetest.TarStream(t, files...)))
	})
}

// libraries returns the libraries that a program is linked to.
func libraries(program string) (files []string) {
	output, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil // it is linked statically
	}
	for _, word := range strings.Fields(string(output)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	return files
}

// site is a namespace with a volume.
type site struct {
	t         *testing.T
	namespace string
	dir       string // on the volume
	runtime   pods.Runtime
}

// newSite returns a site whose caller is a root that runs in no pod.
func newSite(t *testing.T) *site {
	t.Helper()
	testenv.Root(t)
	s := &site{t: t, namespace: kubetest.Namespace(t)}
	dir, err := os.MkdirTemp("/var/tmp", "pods-test-")
	testenv.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.dir = dir
	settings, err := pods.Find(t.Context(), kubeclient.Access{Namespace: s.namespace}, "", dir)
	testenv.Must(t, err)
	program, err := os.ReadFile(helper.Path(t))
	testenv.Must(t, err)
	inside := filepath.Join(dir, "helper")
	testenv.WriteProgram(t, inside, program)
	s.runtime = pods.Runtime{Settings: settings, Helper: inside}
	return s
}

// run is a container that runs.
type run struct {
	s      *site
	exit   container.Exit
	err    error
	ended  chan struct{}
	stop   context.CancelFunc
	began  chan container.Running
	waits  chan string
	stdout string
}

// start starts a command in the shared image.
func (s *site) start(command string, change func(c *container.Container)) *run {
	s.t.Helper()
	dir, err := os.MkdirTemp(s.dir, "run-")
	testenv.Must(s.t, err)
	r := &run{s: s, ended: make(chan struct{}), began: make(chan container.Running, 1), waits: make(chan string, 1000), stdout: filepath.Join(dir, "stdout")}
	out, err := os.OpenFile(r.stdout, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	testenv.Must(s.t, err)
	c := container.Container{
		ShellCommand: command, PrivateDir: dir, Stdout: out, Stderr: out,
		OnStart: func(running container.Running) { r.began <- running },
		OnWait:  func(reason string) { r.waits <- reason },
	}
	if change != nil {
		change(&c)
	}
	if c.PinnedReference == "" {
		c.PinnedReference = shellImage(s.t)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.ended)
		r.exit, r.err = s.runtime.Run(ctx, c)
	}()
	s.t.Cleanup(func() {
		cancel()
		<-r.ended
		_ = out.Close()
	})
	return r
}

func (r *run) wait() (container.Exit, error) {
	r.s.t.Helper()
	testenv.Receive(r.s.t, "the end of the container", r.ended)
	return r.exit, r.err
}

func (r *run) output() string {
	r.s.t.Helper()
	text, err := os.ReadFile(r.stdout)
	testenv.Must(r.s.t, err)
	return string(text)
}

// awaitBegun waits until the command has written "begun".
func (r *run) awaitBegun() {
	r.s.t.Helper()
	testenv.Await(r.s.t, "the command has begun", func() bool { return strings.Contains(r.output(), "begun") })
}

// awaitWait waits for a reason with some words.
func (r *run) awaitWait(words string) {
	r.s.t.Helper()
	for {
		select {
		case <-r.ended:
			r.s.t.Fatalf("it ended, and had not waited for %q: %+v, %v", words, r.exit, r.err)
		case reason := <-r.waits:
			if strings.Contains(reason, words) {
				return
			}
		}
	}
}
