package firstproc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shell returns a command with this standard output.
func shell(command string, stdout *os.File) Command {
	return Command{
		Programs: []string{"/no/such", "/bin/sh"}, Args: []string{"sh", "-c", command}, Env: []string{"KEY=value", "PATH=/usr/bin:/bin"},
		Files: [3]uintptr{0, stdout.Fd(), stdout.Fd()},
	}
}

// start starts a command, and returns a function that waits for its end and returns its status.
func start(t *testing.T, s *Setup, c Command) (*First, func() int) {
	t.Helper()
	testenv.Root(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	first, err := s.Start(c, unix.CLONE_NEWNS)
	must(t, err)
	t.Cleanup(func() {
		first.Close()
		s.Close()
	})
	return first, func() int {
		t.Helper()
		var status syscall.WaitStatus
		for {
			_, err := syscall.Wait4(first.PID, &status, 0, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			must(t, err)
			if status.Signaled() {
				return 1000 + int(status.Signal())
			}
			return status.ExitStatus()
		}
	}
}

// output makes a file for the output of a command, and returns a function that reads it.
func output(t *testing.T) (*os.File, func() string) {
	t.Helper()
	out, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	must(t, err)
	t.Cleanup(func() { _ = out.Close() })
	return out, func() string {
		text, err := os.ReadFile(out.Name())
		must(t, err)
		return string(text)
	}
}

func TestFirstProcessReportsTheEndOfItsCommand(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]int{
		"true": 0, "exit 3": 3, "kill -KILL $$": 128 + 9, "kill -TERM $$": 128 + 15, "(exit 4) & wait; exit 5": 5,
		"sleep 1000 & exit 6": 6, "setsid sleep 1000 & exit 7": 7,
	} {
		out, read := output(t)
		first, wait := start(t, &Setup{}, shell("echo $KEY $$ $PPID; "+command, out))
		if got := wait(); got != want || !strings.HasPrefix(read(), "value 2 1\n") {
			t.Errorf("%s: status %d, output %q", command, got, read())
		}
		if code, ended := first.Code(); !ended || code != want {
			t.Errorf("%s: the report says %d, %t", command, code, ended)
		}
		if what, err := first.Failure(); err != nil {
			t.Errorf("%s: %s: %v", command, what, err)
		}
	}
}

func TestFirstProcessReportsTheCallThatFailed(t *testing.T) {
	t.Parallel()
	out, _ := output(t)
	s := &Setup{}
	s.TryCall("may fail", unix.SYS_CLOSE, 1000)
	s.Mount("/no/such", "/no/such", "", unix.MS_BIND, "")
	s.SetAttributes("/", 0)
	first, wait := start(t, s, shell("true", out))
	wait()
	if what, err := first.Failure(); what != "mount /no/such" || !errors.Is(err, unix.ENOENT) {
		t.Errorf("%q, %v", what, err)
	}
	for program, want := range map[string]error{"/no/such/program": unix.ENOENT, "/etc/passwd": unix.EACCES, "/etc/passwd/x": unix.ENOTDIR} {
		c := shell("true", out)
		c.Programs = []string{program}
		first, wait := start(t, &Setup{}, c)
		wait()
		if what, err := first.Failure(); what != "" || !errors.Is(err, want) {
			t.Errorf("%s: %q, %v", program, what, err)
		}
	}
}

func TestZeroByteIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []Command{{Args: []string{"a\x00b"}}, {Args: []string{"a"}, Env: []string{"A=\x00"}}, {Programs: []string{"\x00"}}} {
		s := &Setup{}
		defer s.Close()
		if first, err := s.Start(c, 0); err == nil || !strings.Contains(err.Error(), "holds a zero byte") {
			t.Errorf("started %t, %v", first != nil, err)
		}
	}
	s := &Setup{}
	defer s.Close()
	s.EnterRoot("/", "/a\x00b")
	if first, err := s.Start(Command{}, 0); err == nil || !strings.Contains(err.Error(), "holds a zero byte") {
		t.Errorf("started %t, %v", first != nil, err)
	}
}

func TestFirstProcessThatEndsBeforeTheCommandIsSilent(t *testing.T) {
	t.Parallel()
	out, _ := output(t)
	s := &Setup{}
	s.Call("wait", unix.SYS_PPOLL) // for ever
	first, wait := start(t, s, shell("true", out))
	must(t, unix.Kill(first.PID, unix.SIGKILL))
	if got := wait(); got != 1000+9 || !first.Silent() {
		t.Errorf("status %d, silent %t", got, first.Silent())
	}
	first, wait = start(t, &Setup{}, shell("true", out))
	if got := wait(); got != 0 || first.Silent() {
		t.Errorf("after a command: status %d, silent %t", got, first.Silent())
	}
}

// Without its stack, the first process would crash.
func TestForkIsRefusedWithoutItsStack(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := &Setup{}
	defer s.Close()
	m := put(&s.memory, image{flags: unix.CLONE_NEWPID, page: 1}) // the stack does not begin with a page
	if pid, err := m.forkBlocked(); pid != 0 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("process %d, %v", pid, err)
	}
}

// Stacks of goroutines share pages: each fork needs one that another may just have kept back again.
//
//nolint:paralleltest // as for TestFirstProcessHasNoCopyOfTheHeap
func TestThreadsForkAtTheSameTime(t *testing.T) {
	testenv.Root(t)
	_, err := KeepBack(0)
	must(t, err)
	const threads, forks = 16, 60
	ended := make(chan string)
	for range threads {
		background.Detach(func() {
			for range forks {
				<-background.Go(func() { ended <- forkOnce() })
			}
		})
	}
	for range threads * forks {
		if got := testenv.Receive(t, "the end of a first process", ended); got != "exit status 7" {
			t.Error(got)
		}
	}
}

// forkOnce forks a first process that exits at once, and returns its end.
func forkOnce() string {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := &Setup{}
	defer s.Close()
	exit := putAll(&s.memory, []call{{number: unix.SYS_EXIT_GROUP, args: [6]uintptr{7}}})
	// With larger pages, more stacks share them.
	pid, err := put(&s.memory, image{flags: unix.CLONE_NEWPID, page: 64 << 10, calls: exit}).forkBlocked()
	if err != nil {
		return err.Error()
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if status.Signaled() {
		return status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

func TestCommandDoesNotBeginAfterTheCallersEnd(t *testing.T) {
	t.Parallel()
	out, read := output(t)
	s := &Setup{}
	ends := [2]int{}
	must(t, unix.Pipe2(ends[:], unix.O_CLOEXEC))
	// Descriptors are closed in the first process before its own calls, but for the standard ones.
	s.Call("wait for the test", unix.SYS_READ, 0, pointer(s, byte(0)), 1)
	c := shell("echo begun", out)
	c.Files[0] = uintptr(ends[0])
	first, wait := start(t, s, c)
	first.Tell()
	must(t, errors.Join(unix.Close(ends[0]), unix.Close(ends[1]))) // it reads the end of the file
	if got := wait(); got != 128+15 || read() != "" {
		t.Errorf("status %d, output %q", got, read())
	}
	if code, ended := first.Code(); code != 128+15 || !ended {
		t.Errorf("the report says %d, %t", code, ended)
	}
}

// As with execvp(3).
func TestScriptWithoutAnInterpreterIsThatOfAShell(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script")
	must(t, os.WriteFile(script, []byte("echo \"$0 $*\"; exit 4\n"), 0o700))
	for want, c := range map[string]Command{
		script + " a b\n": {Programs: []string{"/no/such", script}, Args: []string{"script", "a", "b"}},
		script + " \n":    {Programs: []string{script}},
	} {
		out, read := output(t)
		c.Files = [3]uintptr{0, out.Fd(), out.Fd()}
		_, wait := start(t, &Setup{}, c)
		if got := wait(); got != 4 || read() != want {
			t.Errorf("status %d, output %q, want %q", got, read(), want)
		}
	}
	out, _ := output(t)
	first, wait := start(t, &Setup{}, Command{Args: []string{""}, Files: [3]uintptr{0, out.Fd(), out.Fd()}})
	wait()
	if what, err := first.Failure(); what != "" || !errors.Is(err, unix.ENOENT) {
		t.Errorf("no program: %q, %v", what, err)
	}
}

// A caller that stops the container leaves the time of its grace to processes that outlive the command.
func TestToldProcessLeavesTheOthers(t *testing.T) {
	t.Parallel()
	out, read := output(t)
	must(t, os.WriteFile(out.Name()+".wait", nil, 0o600))
	first, wait := start(t, &Setup{}, shell("echo begun; (while ! read line </proc/1/comm || test -e "+out.Name()+".wait; do sleep 0.01; done; echo saved) & while test -e "+out.Name()+".wait; do sleep 0.01; done; exit 3", out))
	testenv.Await(t, "the command has begun", func() bool { return read() == "begun\n" })
	first.Tell()
	must(t, os.Remove(out.Name()+".wait"))
	if got := wait(); got != 3 || read() != "begun\nsaved\n" {
		t.Errorf("status %d, output %q", got, read())
	}
}

func TestFirstProcessHasNoFilesAndSignalsOfItsCaller(t *testing.T) {
	t.Parallel()
	out, read := output(t)
	kept, err := os.Open("/") // not to be inherited
	must(t, err)
	defer func() { _ = kept.Close() }()
	_, _, errno := unix.Syscall(unix.SYS_FCNTL, kept.Fd(), unix.F_SETFD, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	_, wait := start(t, &Setup{}, shell("ls /proc/self/fd; cat /proc/self/status", out))
	status := wait()
	// 3 is the directory that ls reads.
	if status != 0 || !strings.HasPrefix(read(), "0\n1\n2\n3\nName") {
		t.Errorf("status %d, output %q", status, read())
	}
	for _, set := range []string{"SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"} {
		if !strings.Contains(read(), "\n"+set+":\t0000000000000000\n") {
			t.Errorf("no empty %s in %q", set, read())
		}
	}
}

func TestPeakIsThatOfTheChildren(t *testing.T) {
	t.Parallel()
	out, _ := output(t)
	first, wait := start(t, &Setup{}, shell("x=0123456789; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do x=$x$x; done", out))
	wait()
	if peak := first.Peak(0); peak < 9<<20 {
		t.Errorf("peak %d", peak)
	}
	if peak := first.Peak(1 << 40); peak != 1<<40 {
		t.Errorf("peak %d, want that of a larger child", peak)
	}
}

// The heap may have secrets of other containers.
//
//nolint:paralleltest // no Setup may hold memory when KeepBack is called
func TestFirstProcessHasNoCopyOfTheHeap(t *testing.T) {
	if !keepsBack {
		t.Skip("with cgo it has")
	}
	mapped, err := KeepBack(0)
	must(t, err)
	secret := []byte("correct-horse-" + strconv.Itoa(os.Getpid()))
	secrets := bytes.Repeat(secret, int(mapped)/len(secret)) // the heap grows
	if now, err := KeepBack(mapped); err != nil || now < mapped+uint64(len(secrets))/2 {
		t.Fatalf("%d bytes, after %d: %v", now, mapped, err)
	}
	out, _ := output(t)
	s := &Setup{}
	s.Call("wait", unix.SYS_PPOLL) // for ever
	first, wait := start(t, s, shell("true", out))
	defer wait()
	defer func() { _ = unix.Kill(first.PID, unix.SIGKILL) }()
	memory := func(pid int) (all []byte) {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		must(t, err)
		mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		must(t, err)
		defer func() { _ = mem.Close() }()
		for line := range strings.Lines(string(maps)) {
			var from, to int64
			var mode string
			if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") {
				continue
			}
			part := make([]byte, min(to-from, 64<<20))
			n, _ := mem.ReadAt(part, from)
			all = append(all, part[:n]...)
		}
		return all
	}
	many := bytes.Repeat(secret, 3) // one may be on the stack, of which the first process has a part
	if !bytes.Contains(memory(os.Getpid()), many) {
		t.Error("this process does not have the secret")
	}
	if bss := fmt.Sprintf("%x", uintptr(unsafe.Pointer(&syscall.ForkLock))); len(memory(first.PID)) == 0 || !has(t, first.PID, bss) {
		t.Errorf("the first process does not have the zeroed variables of the program, such as that at %s", bss)
	}
	if bytes.Contains(memory(first.PID), many) {
		t.Error("the first process has the secret")
	}
	runtime.KeepAlive(secrets)
}

// has reports whether a process has memory at an address.
func has(t *testing.T, pid int, address string) bool {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	must(t, err)
	var at uintptr
	_, err = fmt.Sscanf(address, "%x", &at)
	must(t, err)
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err == nil && from <= at && at < to {
			return true
		}
	}
	return false
}

//nolint:paralleltest // as above
func TestHeapThatHasNotGrownIsNotLookedAt(t *testing.T) {
	if !keepsBack {
		t.Skip("with cgo it never is")
	}
	mapped, err := KeepBack(0)
	must(t, err)
	if allocations := testing.AllocsPerRun(100, func() {
		mapped, err = KeepBack(mapped)
		must(t, err)
	}); allocations > 4 {
		t.Errorf("%v allocations", allocations)
	}
}
