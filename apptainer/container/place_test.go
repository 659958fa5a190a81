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

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/builtin"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// secondOfPlace runs each container by an init that has run another one of the same image.
type secondOfPlace struct{}

func (secondOfPlace) Run(ctx context.Context, c container.Container) (container.Exit, error) {
	runtime.LockOSThread() // the init ends with the thread
	defer runtime.UnlockOSThread()
	place := builtin.Runtime{Kept: &initproc.Kept{}}
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
	Run   *runRequest
	Close bool
	// Stop ends the context of the present container.
	Stop bool
	// LateStop sends the place's init a request to stop the container of this number, counted from 1. The answer says that the
	// init has read it.
	LateStop uint64
}

// servePlace serves the orders on its standard input.
func servePlace() error {
	runtime.LockOSThread()
	place := runner.NewPlace(runner.Runner{})
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
				place.Close()
				break
			}
			ctx, cancel := context.WithCancel(context.Background())
			mu.Lock()
			stop = cancel
			mu.Unlock()
			var err error
			if answer, err = o.Run.run(ctx, place); err != nil {
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
	r := &run{t: p.t, cmd: p.cmd, req: runRequest{Container: c, StdoutPath: filepath.Join(userDir(p.t), "out")}}
	p.order(placeOrder{Run: &r.req})
	return r
}

func (p *place) order(o placeOrder) {
	p.t.Helper()
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

// server returns the place's init and its squashfuse.
func (p *place) server() (init, squashfuse process) {
	p.t.Helper()
	all := (&run{t: p.t, cmd: p.cmd}).processes()
	i := slices.IndexFunc(all, func(p process) bool { return p.name == "squashfuse_ll" })
	if i < 0 {
		p.t.Fatalf("no squashfuse among %v", all)
	}
	if servers := slices.DeleteFunc(slices.Clone(all), func(p process) bool { return p.name != "squashfuse_ll" }); len(servers) > 1 {
		p.t.Errorf("more than one squashfuse among %v", all)
	}
	return all[0], all[i]
}

func TestContainersOfAPlaceKnowNothingOfEachOther(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	onEachPlace(t, func(t *testing.T, p *place) {
		token, work := newToken(), userDir(t)
		first := container.Container{SIF: image, Env: []string{"KEY=correct-horse", "ONLY=first"}, Masked: []string{"correct-horse"}, ShmBytes: 1 << 20}
		first.Binds = []container.Bind{{Source: work, Target: "/work"}}
		first.Dir = "/made/dir"
		const look = `
echo "process $$ of" /proc/[0-9]*
echo "see" /made* /etc/made* /tmp /tmp/* /dev/shm/* /work
cat /usr/shipped
test -x /bin/true && echo true
env | grep -E '^(KEY|ONLY)'
ls /proc/self/fd
pwd
df -k /dev/shm | grep -o ' [0-9]* ' | head -1
echo error >&2
`
		p.shell(first, `
mkdir -p /tmp; touch /made-by-first /etc/made /tmp/made /dev/shm/made /work/made
echo changed >/usr/shipped; rm /bin/true
(exec setsid sleep `+token+`) &
sleep `+token+` &
while ! grep -q sleep /proc/[0-9]*/comm; do :; done`)
		if left := processesWith(t, token); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
		second := container.Container{SIF: image, Env: []string{"KEY=battery"}, ShmBytes: 2 << 20}
		got := p.shell(second, look)
		fresh := startPlace(t, p.cmd.SysProcAttr.Credential, p.cmd.Args...)
		want := fresh.shell(second, look)
		if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(got, "by the image\ntrue\nKEY=battery\n") || strings.Contains(got, "ONLY") {
			t.Errorf("the second container differs from a first one (-first +second):\n%s\nin all: %s", diff, got)
		}
		first.ShellCommand = `echo "$KEY"; echo "$KEY" >&2; exit 3`
		r := p.begin(first)
		if answer := p.end(); answer.Error != "" || answer.Exit.Code != 3 || r.output() != "***\n***\n" {
			t.Errorf("%+v, output %q", answer, r.output())
		}
		if got := p.shell(container.Container{SIF: image}, `echo correct-horse; test -e /work && echo work`+"\ntrue"); got != "correct-horse\n" {
			t.Errorf("the third container says %q", got)
		}
	})
}

// The filter for keys and the keyring belong to a thread of the init.
func TestLaterContainersOfAPlaceHaveNoKeys(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	program, err := os.ReadFile(keys.Path(t))
	must(t, err)
	image := container.Container{SIF: sif(t, shellConfig(), append(smallRoot(t), imagetest.Executable("bin/keys", string(program)))...)}
	onEachPlace(t, func(t *testing.T, p *place) {
		for range 3 {
			areRefused(t, strings.Split(strings.TrimSpace(p.shell(image, "keys try of-the-account")), "\n"))
		}
	})
}

func TestContainersOfAnImageHaveOneInit(t *testing.T) {
	t.Parallel()
	image, other := shellImage(t), compressedShellImage(t, "gzip")
	onEachPlace(t, func(t *testing.T, p *place) {
		p.shell(container.Container{SIF: image}, "true")
		init, squashfuse := p.server()
		files := func() string {
			entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", init.pid))
			return fmt.Sprint(len(entries))
		}
		before := files()
		for _, command := range []string{"true", "exit 7", "kill -KILL $$", "setsid sleep 1000 &", "no-such-program"} {
			p.begin(container.Container{SIF: image, ShellCommand: command})
			if answer := p.end(); answer.Error != "" {
				t.Errorf("%s: %+v", command, answer)
			}
			if i, s := p.server(); i != init || s != squashfuse {
				t.Errorf("%s: the init was %v with %v, and is %v with %v", command, init, squashfuse, i, s)
			}
		}
		testenv.Await(t, "the init has as many open files as after its first container", func() bool { return files() == before }, files, before)

		p.shell(container.Container{SIF: other}, "true")
		if i, s := p.server(); i == init || s == squashfuse {
			t.Errorf("another image has the init %v with %v", i, s)
		}
		p.shell(container.Container{SIF: image}, "true")
		init, squashfuse = p.server()
		p.shell(container.Container{SIF: image, Network: container.PrivateNetwork}, "true") // it has an init of its own
		if i, s := p.server(); i != init || s != squashfuse {
			t.Errorf("after a private network: the init was %v with %v, and is %v with %v", init, squashfuse, i, s)
		}
	})
}

// A memory hog may make the kernel kill these.
func TestPlaceOutlivesItsInit(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		for _, victim := range []string{"init", "squashfuse"} {
			kill := func() {
				init, squashfuse := p.server()
				must(t, syscall.Kill(map[string]int{"init": init.pid, "squashfuse": squashfuse.pid}[victim], syscall.SIGKILL))
			}
			p.shell(image, "true")
			kill()
			p.shell(image, "cat /usr/shipped") // while the init ends, or afterwards
			p.shell(image, "cat /usr/shipped")

			token := newToken()
			c := image
			c.ShellCommand = "setsid sleep " + token + " & echo begun; sleep " + token
			r := p.begin(c)
			r.awaitBegun()
			kill()
			if answer := p.end(); answer.Error == "" || answer.Fault != "" {
				t.Errorf("%s was killed: %+v, want an error of a command that may have begun", victim, answer)
			}
			testenv.Await(t, "no process is left", func() bool { return len(processesWith(t, token)) == 0 })
			p.shell(image, "cat /usr/shipped")
			p.server()
		}
	})
}

func TestStopOfAContainerIsNotThatOfTheNext(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		work := userDir(t)
		c := image
		c.Binds = []container.Bind{{Source: work, Target: "/work"}}
		c.ShellCommand = "trap 'echo told; exit 3' TERM; echo begun; while ! test -e /work/go; do sleep 0.01; done; sleep 0; echo went"
		for number := range uint64(3) {
			r := p.begin(c)
			r.awaitBegun()
			p.order(placeOrder{Stop: true})
			if answer := p.end(); answer.Error != "" || answer.Exit.Code != 3 || !strings.HasSuffix(r.output(), "told\n") {
				t.Errorf("stopped: %+v, output %q", answer, r.output())
			}
			p.order(placeOrder{Stop: true})
			p.stopLate(number + 1)
		}
		init, _ := p.server()
		r := p.begin(c)
		r.awaitBegun()
		for _, number := range []uint64{1, 3, 5} {
			p.stopLate(number)
		}
		must(t, os.WriteFile(filepath.Join(work, "go"), nil, 0o644))
		if answer := p.end(); answer.Error != "" || answer.Exit.Code != 0 || r.output() != "begun\nwent\n" {
			t.Errorf("after requests to stop others: %+v, output %q", answer, r.output())
		}
		p.shell(image, "true")
		if i, _ := p.server(); i != init {
			t.Errorf("the init was %v, and is %v", init, i)
		}
	})
}

func TestClosedPlaceLeavesNoProcessAndNoMount(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		p.close() // before its first container
		for range 2 {
			for range 2 {
				p.shell(image, "setsid sleep 1000 & touch /made /dev/shm/made")
			}
			init, _ := p.server()
			testenv.Await(t, "no thread of the init has mounts of a container", func() bool {
				return !mountedIn(t, fmt.Sprintf("/proc/%d/task/*/mountinfo", init.pid), filepath.Join(p.dir, "container-"))
			})
			p.close()
			all := (&run{t: t, cmd: p.cmd}).processes()
			if len(all) > 0 || mounted(t, p.dir) {
				t.Errorf("left: %v, mounted %v", all, mounted(t, p.dir))
			}
		}
	})
}

func TestUseOfAContainerHasNothingOfEarlierOnes(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		// Every process of the first uses time and memory: one that ends before the command, one that the command waits
		// for, and one that is killed at its end.
		const burn = `x=0123456789; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do x=$x$x; done; test ${#x} -gt 9000000`
		for range 2 {
			c := image
			c.ShellCommand = "(" + burn + ") & wait; setsid sh -c '" + burn + "; : >/done; sleep 1000' & while ! test -e /done; do sleep 0.01; done; " + burn
			p.begin(c)
			large := p.end()
			c.ShellCommand = "true"
			p.begin(c)
			small := p.end()
			if large.Error != "" || small.Error != "" || large.Exit.Code != 0 {
				t.Fatalf("%+v and %+v", large, small)
			}
			if u := large.Exit.Usage; u.MemoryPeak < 9<<20 || u.User+u.System <= 0 {
				t.Errorf("the large one used %+v", u)
			}
			if u := small.Exit.Usage; u.MemoryPeak <= 0 || u.MemoryPeak >= large.Exit.Usage.MemoryPeak-4<<20 || u.User+u.System >= large.Exit.Usage.User+large.Exit.Usage.System {
				t.Errorf("the small one used %+v, after %+v", u, large.Exit.Usage)
			}
		}
	})
}

// An init that is kept unpacks no image.
func TestPlaceUnpacksAnImageThatCannotBeMounted(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	image := container.Container{SIF: shellImage(t)}
	for name, preparation := range map[string]string{"squashfuse fails": brokenServer, "no /dev/fuse": fuseNotOurs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPlaceOnHost(t, preparation)
			for range 3 {
				wantUnpacked(t, p, image)
			}
		})
	}
	t.Run("no overlay over the scratch", func(t *testing.T) {
		t.Parallel()
		scratch := userDir(t)
		p := startPlaceOnHost(t, overlayOn+scratch)
		p.dir = scratch
		for range 3 {
			wantUnpacked(t, p, image)
		}
	})
}

// wantUnpacked runs a container that has to unpack its image.
func wantUnpacked(t *testing.T, p *place, c container.Container) {
	t.Helper()
	c.ShellCommand = "cat /usr/shipped; touch /made"
	r := p.begin(c)
	if answer := p.end(); answer.Error != "" || answer.Exit.Code != 0 || !answer.Unpacked || !strings.HasPrefix(answer.Exit.Note, unpackedForThis) || r.output() != "by the image\n" {
		t.Errorf("%+v, output %q", answer, r.output())
	}
}
