package container_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// dialAsUser is the argument with which the test binary talks to a container's port.
const dialAsUser = "dial-container"

// dialRequest is its standard input.
type dialRequest struct {
	Runner  runner.Runner
	Runtime runtimes.Name
	At      container.Running
	Port    int
	Say     string
}

// dial sends a text to a port, and prints the answer.
func dial() error {
	var req dialRequest
	if err := json.NewDecoder(os.Stdin).Decode(&req); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.WaitLimit)
	defer cancel()
	conn, err := req.Runner.Dial(ctx, req.Runtime, req.At, req.Port)
	if err != nil {
		return err
	}
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.New("the connection has no CloseWrite")
	}
	_, err = io.WriteString(conn, req.Say)
	err = errors.Join(err, half.CloseWrite())
	_, copyErr := io.Copy(os.Stdout, conn)
	return errors.Join(err, copyErr, conn.Close())
}

// ask returns the answer that the ordinary user gets, or the error.
func (req dialRequest) ask(tb testing.TB) string {
	tb.Helper()
	text, err := json.Marshal(req)
	must(tb, err)
	cmd := exec.Command("/proc/self/exe", dialAsUser)
	cmd.Stdin = bytes.NewReader(text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinaryUser(tb)}
	output, _ := cmd.CombinedOutput() // it prints its error
	return string(output)
}

// listen is a program that answers on a port of localhost.
var listen = testenv.Program{Package: "./testdata/listen"}

func TestPortOfARunningContainerIsReached(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		find    func(testing.TB) testRuntime
		runtime runtimes.Name
		network container.Network
	}{
		{"builtin", func(testing.TB) testRuntime { return testRuntime{} }, runtimes.Builtin, container.NoNetwork},
		{"builtin with the host's network", func(testing.TB) testRuntime { return testRuntime{} }, runtimes.Builtin, container.HostNetwork},
		{"builtin with a private network", privateRuntime, runtimes.Builtin, container.PrivateNetwork},
		{"apptainer", apptainerRuntime, runtimes.Apptainer, container.NoNetwork},
		{"apptainer with the host's network", apptainerRuntime, runtimes.Apptainer, container.HostNetwork},
		{"docker", dockerRuntime, runtimes.Docker, container.NoNetwork},
		{"docker with network", dockerRuntime, runtimes.Docker, container.PrivateNetwork},
		{"podman", podmanRuntime, runtimes.Podman, container.NoNetwork},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			testenv.Containers(t)
			w := tt.find(t)
			c := w.shellImage(t)
			c.ShellCommand, c.Network = "exec /listen", tt.network
			c.Binds = []container.Bind{{Source: listen.Path(t), Target: "/listen", ReadOnly: true}}
			r := w.start(t, c)
			req := dialRequest{Runner: runner.Runner{Helper: enter.Path(t)}, Runtime: tt.runtime, At: r.running(), Port: r.port(), Say: "\x00 and more"}
			if w.Engine != nil {
				req.Runner.Env = w.Engine.Env
			}
			for range 2 {
				if got := req.ask(t); got != "heard \x00 and more" {
					t.Errorf("the answer is %q", got)
				}
			}
			wrong := req
			wrong.Port = 1
			refused := "port 1 of the container: connection refused"
			if tt.network == container.HostNetwork {
				refused = "nothing in the bundle listens on port 1"
			}
			if got := wrong.ask(t); got != "connect to a container: "+refused+"\n" {
				t.Errorf("another port: %q", got)
			}
			wrong = req
			wrong.At.Started++
			wrong.At.Name += "x"
			const gone = "connect to a container: the container does not run any more\n"
			if got := wrong.ask(t); got != gone {
				t.Errorf("another container: %q", got)
			}
			must(t, r.cmd.Process.Signal(syscall.SIGTERM))
			r.wait()
			if got := req.ask(t); got != gone {
				t.Errorf("after its end: %q", got)
			}
		})
	}
}

// A program of the host does not belong to the bundle, even if the same user runs it.
func TestPortOfTheHostIsNotReachedThroughAContainer(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			foreign, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at)
			if err != nil {
				t.Skipf("this machine has no such address: %v", err)
			}
			t.Cleanup(func() { _ = foreign.Close() })
			_, port, err := net.SplitHostPort(foreign.Addr().String())
			must(t, err)
			c := testRuntime{}.shellImage(t)
			c.ShellCommand, c.Network = "echo begun; exec sleep 60", container.HostNetwork
			r := testRuntime{}.start(t, c)
			req := dialRequest{Runner: runner.Runner{Helper: enter.Path(t)}, Runtime: runtimes.Builtin, At: r.running(), Say: "x"}
			req.Port, err = strconv.Atoi(port)
			must(t, err)
			if got := req.ask(t); got != "connect to a container: nothing in the bundle listens on port "+port+"\n" {
				t.Errorf("a foreign port: %q", got)
			}
			must(t, r.cmd.Process.Signal(syscall.SIGTERM))
			r.wait()
		})
	}
}

// running is the argument of OnStart.
func (r *run) running() (running container.Running) {
	r.t.Helper()
	testenv.Await(r.t, "the container has begun", func() bool {
		text, err := os.ReadFile(r.req.StdoutPath + startedSuffix)
		return err == nil && json.Unmarshal(text, &running) == nil
	}, r.output)
	return running
}

// port is the one that the program listen has printed.
func (r *run) port() (port int) {
	r.t.Helper()
	r.awaitOutput("\n")
	if _, err := fmt.Sscanf(strings.TrimSpace(r.output()), "port %d", &port); err != nil {
		r.t.Fatal(err, r.output())
	}
	return port
}
