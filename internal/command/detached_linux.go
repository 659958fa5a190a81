package command

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/affinity"
)

// Detached describes a program that outlives the process that starts it. It gets a session of its own
// without a terminal, and its standard input is empty.
type Detached struct {
	// Args is the argument vector. Args[0] is a path, or a name looked up in the PATH of Env.
	Args []string
	// Env is the whole environment of the program.
	Env []string
	// Dir is the working directory; empty means that of this process.
	Dir string
	// Output is the file to which standard output and standard error are appended. It is made if
	// it is not there. Empty discards both.
	Output string
	// CPUs are the processors on which the program may run, by their numbers; none means those
	// of this process.
	CPUs []int
}

// Held is a detached program that has been started and does not run yet: its process exists, and
// executes the program when Release is called. If the process that started it ends before that,
// the program is never executed. So a caller can record the process first, and no crash leaves a
// program that runs without a record.
//
// One goroutine may call Wait while another one calls Release.
type Held struct {
	cmd  *exec.Cmd
	gate *os.File
}

// Exited is the end of a program.
type Exited struct {
	// Code is its exit status; 0 if a signal ended it.
	Code int
	// Signal is the number of the signal that ended it; 0 if it exited by itself.
	Signal int
}

// holdScript executes its arguments, as they are, once a line comes on descriptor 3. It exits when
// that is closed without one.
const holdScript = `read -r go <&3 || exit; exec 3<&-; exec "$@"`

// Start starts the process of the program, held. If the program cannot be executed later, it ends
// with the exit status of the shell for that: 126 or 127.
func (d Detached) Start() (_ *Held, err error) {
	if len(d.Args) == 0 {
		return nil, errors.New("start a program: empty argument vector")
	}
	failed := func(err error) error { return fmt.Errorf("start %s: %w", d.Args[0], err) }
	output, err := os.OpenFile(d.outputPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, failed(err)
	}
	defer func() { _ = output.Close() }() // nothing was written through it
	held, gate, err := os.Pipe()
	if err != nil {
		return nil, failed(err)
	}
	defer func() { _ = held.Close() }()                                                        // the program has it
	cmd := exec.Command("/bin/sh", slices.Concat([]string{"-c", holdScript, "sh"}, d.Args)...) //nolint:noctx // a constant script, and the program ends with no context
	cmd.Env = d.Env
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.Dir = d.Dir
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{held}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := startOn(d.CPUs, cmd); err != nil {
		return nil, failed(errors.Join(err, gate.Close()))
	}
	return &Held{cmd: cmd, gate: gate}, nil
}

func (d Detached) outputPath() string {
	if d.Output == "" {
		return os.DevNull
	}
	return d.Output
}

// startOn starts a command on some processors. A new process has those of the thread that makes it.
func startOn(cpus []int, cmd *exec.Cmd) error {
	if len(cpus) == 0 {
		return cmd.Start() //nolint:wrapcheck // the caller adds the program's name
	}
	before := unix.NewCPUSet(affinity.Most)
	runtime.LockOSThread()
	if err := unix.SchedGetaffinityDynamic(0, before); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("read the processors of this thread: %w", err)
	}
	if err := affinity.Set(cpus); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err := cmd.Start()
	if unix.SchedSetaffinityDynamic(0, before) == nil {
		runtime.UnlockOSThread()
	} // else the thread stays with this goroutine, and serves no other
	return err //nolint:wrapcheck // the caller adds the program's name
}

// PID is the process id, which is also the id of the program's session and process group.
func (h *Held) PID() int { return h.cmd.Process.Pid }

// Release lets the program run.
func (h *Held) Release() error {
	_, err := h.gate.Write([]byte("\n"))
	return errors.Join(err, h.gate.Close())
}

// Abandon ends the process without having executed the program, and waits for its end. It is for a
// program that was not released.
func (h *Held) Abandon() error {
	err := h.gate.Close()
	_, waited := h.Wait()
	return errors.Join(err, waited)
}

// Wait waits for the end of the program. Until it returns, the kernel gives the process id to no
// other process.
func (h *Held) Wait() (Exited, error) {
	err := h.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Exited{}, fmt.Errorf("wait for %s: %w", h.cmd.Path, err)
	}
	status, ok := h.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return Exited{}, fmt.Errorf("wait for %s: it has no status", h.cmd.Path)
	case status.Signaled():
		return Exited{Signal: int(status.Signal())}, nil
	}
	return Exited{Code: status.ExitStatus()}, nil
}
