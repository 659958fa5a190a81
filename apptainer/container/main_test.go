package container_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/kubetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// runAsUser is the argument with which the test binary runs one container.
const runAsUser = "run-container"

// probeAsUser is the argument with which it probes the host. A scratch directory and the program
// that enters containers follow.
const probeAsUser = "probe-host"

// removeAsUser is the argument with which it removes a directory, which follows.
const removeAsUser = "remove-tree"

// runRequest is the standard input of such a run.
type runRequest struct {
	Runtime    testRuntime
	Container  container.Container
	Opened     string // the image that the container's caller has opened, if not empty
	StdoutPath string
	Forbidden  forbidden    // a system call that fails in the process and its children
	Others     []runRequest // for the same process, at the same time
}

// runAnswer is its output.
type runAnswer struct {
	Exit     container.Exit
	Error    string
	NoShell  bool
	Fault    string // "host", "host, doubtful" or "request"; empty if the command may have begun
	Canceled bool
	Choice   container.Choice // if the host chooses the runtime
	Unpacked bool             // OnUnpack was called before OnStart
	Started  []int            // the calls of OnStart
	Others   []runAnswer
}

func TestMain(m *testing.M) {
	if code, ran := runner.Main(os.Args); ran {
		os.Exit(code)
	}
	parts := map[string]func() error{
		probeAsUser:  printHost,
		removeAsUser: func() error { return filetree.Remove(os.Args[2]) },
		dialAsUser:   dial,
		placeAsUser:  servePlace,
		runAsUser:    runContainer,
	}
	if len(os.Args) > 1 && parts[os.Args[1]] != nil {
		if err := parts[os.Args[1]](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	for _, all := range []map[string]*sharedImage{sharedImages, debian.sifs} {
		for _, shared := range all {
			if shared.path != "" {
				_ = os.RemoveAll(filepath.Dir(shared.path))
			}
		}
	}
	for _, program := range []*testenv.Program{&bomb, &calls, &calls32, &enter, &keys, &keys32, &listen, &neighbour, &reach} {
		program.Remove()
	}
	onNodes.Remove()
	if cluster.namespace != "" {
		kubetest.RemoveNamespace(cluster.namespace)
	}
	if err := errors.Join(forgetEngines(), docker.Remove()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// printHost prints the host as runner.Runner sees it.
func printHost() error {
	host, err := runner.Runner{Helper: os.Args[3]}.Probe(context.Background(), os.Args[2], runtimes.Auto)
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(host))
}

// runContainer serves one runRequest. TERM ends the container's context.
func runContainer() error {
	var req runRequest
	if err := json.NewDecoder(os.Stdin).Decode(&req); err != nil {
		return err
	}
	if req.Forbidden != (forbidden{}) {
		if err := req.Forbidden.forbid(); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	containers := req.Runtime.runtime()
	answers := make([]runAnswer, 1+len(req.Others))
	var group errgroup.Group
	for i, r := range append([]runRequest{req}, req.Others...) {
		group.Go(func() (err error) {
			answers[i], err = r.run(ctx, containers)
			return errors.Join(err, os.WriteFile(r.StdoutPath+endedSuffix, nil, 0o644))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	answers[0].Others = answers[1:]
	return json.NewEncoder(os.Stdout).Encode(answers[0])
}

// forbidden is a system call that fails, with ENOSYS as on a kernel without it.
type forbidden struct {
	Call  int
	Errno syscall.Errno
}

// withoutMountSetattr is a kernel on which bubblewrap sets containers up. The user of such a process has no subordinate ids, because
// newuidmap gets no privileges.
func withoutMountSetattr() forbidden { return forbidden{unix.SYS_MOUNT_SETATTR, unix.ENOSYS} }

// forbid makes the call fail in this process and its children (seccomp(2), on all threads).
func (f forbidden) forbid() error {
	const number = 0 // of the call, in struct seccomp_data
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(f.Call)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(f.Errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return errno
	}
	return nil
}

// Suffixes of a container's output file, for the files that are made when its command has begun and
// when the container has ended.
const (
	startedSuffix = ".started"
	endedSuffix   = ".ended"
)

// run runs one container of a request.
func (req runRequest) run(ctx context.Context, containers container.Runtime) (answer runAnswer, err error) {
	c := req.Container
	out, err := os.OpenFile(req.StdoutPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return answer, err
	}
	c.Stdout, c.Stderr = out, out
	if req.Opened != "" {
		if c.OpenedSIF, err = os.Open(req.Opened); err != nil {
			return answer, err
		}
	}
	c.OnStart = func(r container.Running) {
		answer.Started = append(answer.Started, r.PID)
		text, err := json.Marshal(r)
		if err == nil {
			_ = os.WriteFile(req.StdoutPath+startedSuffix, text, 0o644) // a test that waits for it fails
		}
	}
	c.OnUnpack = func() { answer.Unpacked = len(answer.Started) == 0 }
	c.OnChoice = func(choice container.Choice) { answer.Choice = choice }
	answer.Exit, err = containers.Run(ctx, c)
	if err != nil {
		answer.Error = err.Error()
		answer.NoShell = errors.Is(err, container.ErrNoShell)
		answer.Fault = fault(err)
		answer.Canceled = errors.Is(err, context.Canceled)
	}
	return answer, nil
}

// fault returns the party at fault if a command did not begin.
func fault(err error) string {
	var host *container.HostError
	var request *container.RequestError
	switch {
	case errors.As(err, &host) && host.Doubtful:
		return "host, doubtful"
	case errors.As(err, &host):
		return "host"
	case errors.As(err, &request), errors.Is(err, container.ErrNoShell):
		return "request"
	}
	return ""
}
