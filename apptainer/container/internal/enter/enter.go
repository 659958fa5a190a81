package enter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/seccomp"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// Command is the hidden argument with which a program runs [Main]. That program must be linked
// statically, because it runs in any image.
const Command = "container-enter"

// ExitMisused is the exit status of Main without an order.
const ExitMisused = 2

// Spec is the order for Main.
type Spec struct {
	Args         []string
	ShellCommand string
	Env          []string
	Dir          string
	KillGrace    time.Duration
	// MaxProcesses is the container's if Apptainer runs it without privileges (initproc.BoundCommand).
	MaxProcesses int64 `json:",omitempty"`
	// StderrMark is a text that Main writes to the standard error before the command begins.
	StderrMark string `json:",omitempty"`
	// Give names directories in the container. If there are any, Main runs no command: it makes
	// each directory's owner the owner of all its entries.
	Give []string `json:",omitempty"`

	// The fields below are for an order in a file (OrderFiles).

	// AddsImageEnv is set if Env has the command's own variables only, because the caller does not know the
	// image's. Main then adds those with which it was started itself.
	AddsImageEnv bool `json:",omitempty"`
	// Stdout and Stderr are set if the caller shows files for the command's output.
	Stdout, Stderr bool `json:",omitempty"`
	// Patience is the time without a beat after which the caller counts as gone.
	Patience time.Duration `json:",omitempty"`
	// Masked is the container's, for output that Main copies to files.
	Masked []string `json:",omitempty"`
}

// SpecFor returns the order to run a container's command in an image with this environment.
func SpecFor(c container.Container, imageEnv []string) Spec {
	return Spec{
		Args:         c.Args,
		ShellCommand: c.ShellCommand,
		Env:          c.Environment(imageEnv),
		Dir:          c.WorkingDir(),
		KillGrace:    c.KillGraceOrDefault(),
	}
}

// control is the way by which Main gets its order, and notices the end of its caller.
type control interface {
	// order reads the order.
	order() (Spec, error)
	// listen returns when the caller is gone. It calls stop when the caller requests the end.
	listen(stop func())
}

// Main is the first process in a container. args are those after [Command]. It returns the exit status for the program.
func Main(args []string) int {
	initproc.CloseDescriptorsOnExec()
	report, err := openReport()
	control := control(&pipeControl{json.NewDecoder(os.Stdin)})
	if len(args) > 0 && args[0] == byFiles {
		control = &fileControl{dir: controlDir}
	}
	var spec Spec
	if err == nil && os.Getpid() == 1 {
		spec, err = control.order()
	}
	if err != nil || os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, Command+" is started in every container of Apptainer, an engine or Kubernetes, and not by people")
		return ExitMisused
	}
	e := &entered{Spec: spec}
	initproc.HandleSignals()
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	syscall.Umask(0o022)
	argv, err := e.prepare()
	var output *outputFiles
	if err == nil {
		output, err = openOutputFiles(spec)
	}
	if err != nil {
		if report.Encode(Report{Failure: container.FailureOf(err)}) != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return 1
	}
	if err := report.Encode(Report{Began: true}); err != nil { // otherwise the caller would not know that the command ran
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	background.Detach(func() { // ends with this process
		<-terminated
		e.stop()
	})
	background.Detach(func() { // ends with this process
		control.listen(e.stop)
		os.Exit(1) //nolint:forbidigo // the caller is gone, and the kernel ends all other processes of the container
	})
	code := 0
	initproc.EnsureThreads()
	if len(e.Give) == 0 {
		_, _ = os.Stderr.WriteString(e.StderrMark) // without it, the caller counts all text as the command's
		code = e.runCommand(argv)
	} else if err := giveToOwners(e.Give); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	_ = report.Encode(Report{Code: &code, Usage: measure(), OutputError: output.close()})
	return code
}

// entered is one call of Main.
type entered struct {
	Spec

	stopped atomic.Bool
}

// prepare confines this process, and finds the command. The command inherits the capabilities of
// the calling thread.
func (e *entered) prepare() (argv []string, err error) {
	runtime.LockOSThread()
	if err := dropCapabilities(); err != nil { // before an emulation of root takes capset's effect
		return nil, err
	}
	emulate := seccomp.OnlyRoot()
	if len(e.Give) > 0 {
		emulate = false
	}
	if err := seccomp.Confine(emulate); err != nil {
		return nil, err
	}
	if emulate == seccomp.Root {
		initproc.SetAptUserInside()
	}
	err = os.MkdirAll(e.Dir, 0o755)
	if err == nil {
		err = os.Chdir(e.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", container.InImage(err))
	}
	if len(e.Args) > 0 || len(e.Give) > 0 {
		return e.Args, nil
	}
	for _, sh := range container.Shells() {
		if checkExecutable(sh) == nil {
			return []string{sh, "-c", e.ShellCommand}, nil
		}
	}
	return nil, container.ErrNoShell
}

// LookPath finds a program as execvp(3) does: a name without a slash is looked up in the PATH of
// the command's environment.
func (e *Spec) LookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, checkExecutable(name)
	}
	search := ""
	for _, assignment := range e.Env {
		if value, ok := strings.CutPrefix(assignment, "PATH="); ok {
			search = value
		}
	}
	err := error(fs.ErrNotExist)
	for _, dir := range filepath.SplitList(search) {
		file := path.Join("/", dir, name)
		if dir == "" || !path.IsAbs(dir) {
			file = path.Join(e.Dir, dir, name)
		}
		fault := checkExecutable(file)
		if fault == nil {
			return file, nil
		}
		if errors.Is(fault, fs.ErrPermission) {
			err = fault
		}
	}
	return "", err
}

func checkExecutable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fs.ErrPermission
	}
	return nil
}

// runCommand runs the command in its own session and returns its exit status as a shell reports it.
// Processes that the command leaves behind end with this one.
func (e *entered) runCommand(argv []string) int {
	program, err := e.LookPath(argv[0])
	var pid int
	if err == nil {
		pid, err = initproc.BoundCommand(e.MaxProcesses, func() (int, error) { return e.start(program, argv) })
	}
	if err != nil {
		return NotExecuted(argv[0], err)
	}
	for {
		var status syscall.WaitStatus
		dead, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 128 + int(syscall.SIGKILL) // cannot happen: the command is a child
		case dead == pid && status.Signaled():
			return 128 + int(status.Signal())
		case dead == pid:
			return status.ExitStatus()
		}
	}
}

// NotExecuted prints the reason why a program could not be executed, and returns a shell's exit status for it.
func NotExecuted(name string, err error) (code int) {
	if at, ok := errors.AsType[*fs.PathError](err); ok { // it repeats the program's name
		err = at.Err
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	if errors.Is(err, fs.ErrNotExist) {
		return 127
	}
	return 126
}

func (e *entered) start(program string, argv []string) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()
	return syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Env:   e.Env,
		Files: []uintptr{null.Fd(), 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// giveToOwners makes each directory's owner the owner of all its entries.
func giveToOwners(dirs []string) error {
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("give: %w", err)
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("give %s: its owner is unknown", dir)
		}
		var failed error
		give := func(dir int, name string) (enter bool, err error) {
			err = unix.Fchownat(dir, name, int(owner.Uid), int(owner.Gid), unix.AT_SYMLINK_NOFOLLOW)
			if err != nil && !errors.Is(err, fs.ErrPermission) { // otherwise its owner is unknown to this container, so the command did not make it
				failed = &fs.PathError{Op: "chown", Path: name, Err: err}
			}
			return true, nil
		}
		err = treewalk.Walk(unix.AT_FDCWD, dir, treewalk.Visitor{Entry: give, Failed: func(_ int, name string, err error) error {
			if !treewalk.IsGone(err) {
				failed = &fs.PathError{Op: "open", Path: name, Err: err}
			}
			return nil
		}})
		err = errors.Join(err, failed)
		if err != nil {
			return fmt.Errorf("give: %w", err)
		}
	}
	return nil
}

// pipeControl is a control by standard input, which the caller holds open.
type pipeControl struct{ *json.Decoder }

func (c *pipeControl) order() (spec Spec, err error) { return spec, c.Decode(&spec) }

func (c *pipeControl) listen(stop func()) {
	var request struct{}
	if c.Decode(&request) == nil {
		stop()
		_ = c.Decode(&request)
	}
}

// stop sends TERM to every other process and, after the grace, KILL.
func (e *entered) stop() {
	if e.stopped.Swap(true) {
		return
	}
	_ = syscall.Kill(-1, syscall.SIGTERM)
	time.AfterFunc(e.KillGrace, func() { _ = syscall.Kill(-1, syscall.SIGKILL) })
}
