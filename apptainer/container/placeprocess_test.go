package container_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/builtin"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// secondOfPlace runs each container by an init that has run another one of the same image.
type secondOfPlace struct{}

func (secondOfPlace) Run(ctx context.Context, c container.Container) (container.Exit, error) {
	runtime.LockOSThread() // the init ends with the thread
	defer runtime.UnlockOSThread()
	place := builtin.Runtime{Kept: &initproc.Kept{Images: &initproc.Images{}}}
	defer place.Kept.Close()
	c.KeptDir = c.PrivateDir
	first := container.Container{
		SIF: c.SIF, OpenedSIF: c.OpenedSIF, PrivateDir: c.PrivateDir, KeptDir: c.KeptDir, MaxProcesses: c.MaxProcesses,
		Args: []string{"sh", "-c", "echo first >/made-by-the-first; ls / >/dev/shm/first"},
	}
	_, _ = place.Run(ctx, first) // some images do not have these programs
	return place.Run(ctx, c)
}

// placeAsUser is the argument with which the test binary runs the containers of a place.
const placeAsUser = "serve-place"

// placeOrder is one order for such a process. It answers all except for Stop.
type placeOrder struct {
	Run *runRequest
	// Second sends the order to another place, with the same images.
	Second bool
	Close  bool
	// Stop ends the context of the present container.
	Stop bool
	// LateStop sends the place's init a request to stop the container of this number, counted from 1. The answer says that the
	// init has read it.
	LateStop uint64
}

// servePlace serves the orders on its standard input.
func servePlace() error {
	runtime.LockOSThread()
	images := &runner.Images{}
	places := map[bool]runner.Place{false: runner.NewPlace(runner.Runner{}, images), true: runner.NewPlace(runner.Runner{}, images)}
	var mu sync.Mutex
	var stop context.CancelFunc
	orders, failed := make(chan placeOrder), make(chan error, 1)
	answers := json.NewEncoder(os.Stdout)
	reply := func(a runAnswer) error {
		mu.Lock()
		defer mu.Unlock()
		return answers.Encode(a)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		input := json.NewDecoder(os.Stdin)
		for {
			var o placeOrder
			if err := input.Decode(&o); err != nil {
				failed <- err
				return
			}
			switch {
			case o.Stop:
				mu.Lock()
				stop()
				mu.Unlock()
			case o.LateStop > 0:
				if err := errors.Join(stopLate(o.LateStop), reply(runAnswer{})); err != nil {
					failed <- err
					return
				}
			default:
				orders <- o
			}
		}
	})
	for {
		var answer runAnswer
		select {
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case o := <-orders:
			if o.Close {
				places[o.Second].Close()
				break
			}
			ctx, cancel := context.WithCancel(context.Background())
			mu.Lock()
			stop = cancel
			mu.Unlock()
			var err error
			if o.Run.Forbidden != (forbidden{}) {
				if err := o.Run.Forbidden.forbid(); err != nil {
					return err
				}
			}
			if answer, err = o.Run.run(ctx, places[o.Second]); err != nil {
				return err
			}
		}
		if err := reply(answer); err != nil {
			return err
		}
	}
}

// stopLate writes the request of a caller that stops a container when that has just ended (initproc.Kept).
func stopLate(number uint64) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
			continue
		}
		for range 2 { // the init reads the second when it has obeyed the first
			if err := unix.Sendmsg(fd, binary.NativeEndian.AppendUint64(nil, number), nil, nil, unix.MSG_NOSIGNAL); err != nil {
				return err
			}
		}
		if !testenv.Poll(func() bool {
			unread, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
			return err != nil || unread == 0
		}) {
			return errors.New("the init reads no request")
		}
		return nil
	}
	return errors.New("there is no socket of an init")
}

// place is a process of a user that runs containers, one after another.
type place struct {
	t       testing.TB
	cmd     *exec.Cmd
	orders  *json.Encoder
	answers *json.Decoder
	input   io.Closer
	dir     string // for its own files, and for the private directories of its containers
	second  bool   // the orders are for the second place
	// forbidden is the Forbidden of each order.
	forbidden forbidden
}

// onEachPlace runs a test with the places of several users.
func onEachPlace(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	testenv.Containers(t)
	serve := []string{"/proc/self/exe", placeAsUser}
	for name, start := range map[string]func(t *testing.T) *place{
		"subordinate ids": func(t *testing.T) *place {
			testenv.SubordinateIDs(t)
			return startPlace(t, ordinaryUser(t), serve...)
		},
		"one id": func(t *testing.T) *place {
			return startPlaceOnHost(t, "true")
		},
		"root": func(t *testing.T) *place {
			testenv.Root(t)
			return startPlace(t, nil, serve...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// startPlaceOnHost starts a place after a preparation of its host; see startRequestOnHost.
func startPlaceOnHost(tb testing.TB, preparation string) *place {
	tb.Helper()
	return startPlace(tb, ordinaryUser(tb), "unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", preparation+"; exec "+self+" "+placeAsUser)
}

func startPlace(tb testing.TB, as *syscall.Credential, command ...string) *place {
	tb.Helper()
	p := &place{t: tb, dir: userDir(tb), cmd: exec.Command(command[0], command[1:]...)}
	if as == nil { // a private directory is its user's own
		must(tb, os.Chown(p.dir, os.Getuid(), os.Getgid()))
	}
	exe, err := os.Open("/proc/self/exe")
	must(tb, err)
	defer func() { _ = exe.Close() }()
	p.cmd.ExtraFiles = []*os.File{exe}
	p.cmd.Env = []string{"PATH=/usr/bin:/bin", "SECRET=of the host"}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	input, err := p.cmd.StdinPipe()
	must(tb, err)
	output, err := p.cmd.StdoutPipe()
	must(tb, err)
	p.cmd.Stderr = os.Stderr
	p.input, p.orders, p.answers = input, json.NewEncoder(input), json.NewDecoder(output)
	must(tb, p.cmd.Start())
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
	})
	return p
}

// begin begins a container.
func (p *place) begin(c container.Container) *run {
	p.t.Helper()
	c.Runtime, c.KeptDir, c.PrivateDir, c.MaxProcesses = runtimes.Builtin, p.dir, p.dir, usualProcesses
	r := &run{t: p.t, cmd: p.cmd, req: runRequest{Container: c, StdoutPath: filepath.Join(userDir(p.t), "out"), Forbidden: p.forbidden}}
	p.order(placeOrder{Run: &r.req})
	return r
}

func (p *place) order(o placeOrder) {
	p.t.Helper()
	o.Second = p.second
	must(p.t, p.orders.Encode(o))
}

// end waits for the end of the container.
func (p *place) end() (answer runAnswer) {
	p.t.Helper()
	if err := p.answers.Decode(&answer); err != nil {
		p.t.Fatalf("the place has ended: %v", err)
	}
	return answer
}

// shell runs a command line, and wants exit status 0.
func (p *place) shell(c container.Container, command string) string {
	p.t.Helper()
	c.ShellCommand = command
	r := p.begin(c)
	if answer := p.end(); answer.Error != "" || answer.Exit.Code != 0 {
		p.t.Fatalf("%s: ended with %+v and the output %q", command, answer, r.output())
	}
	return r.output()
}

// stopLate asks the place's init to stop a container that has ended, or has not begun.
func (p *place) stopLate(number uint64) {
	p.t.Helper()
	p.order(placeOrder{LateStop: number})
	p.end()
}

// close closes the place, whose process goes on.
func (p *place) close() {
	p.t.Helper()
	p.order(placeOrder{Close: true})
	p.end()
}

// server returns the place's init, which has a directory of this name, and the squashfuse of its image.
func (p *place) server() (init, squashfuse process) {
	p.t.Helper()
	all := (&run{t: p.t, cmd: p.cmd}).processes()
	i := slices.IndexFunc(all, func(p process) bool {
		dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.pid))
		return strings.HasPrefix(filepath.Base(dir), "kept-")
	})
	servers := slices.DeleteFunc(slices.Clone(all), func(p process) bool { return p.name != "squashfuse_ll" })
	if i < 0 || len(servers) != 1 {
		p.t.Fatalf("no init, or not one squashfuse, among %v", all)
	}
	return all[i], servers[0]
}
