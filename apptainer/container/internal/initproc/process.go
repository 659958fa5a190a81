package initproc

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/firstproc"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/seccomp"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// Work is the task of an init. It returns its command's exit status as a shell reports it. An error
// means that the command did not run to its end.
type Work func(p *Process) (code int, err error)

// Main is the program of an init: it does the work that its caller requests, and returns the exit
// status for the program. Programs call it before anything else.
func Main(works map[string]Work) int {
	CloseDescriptorsOnExec()
	control := json.NewDecoder(os.NewFile(controlFD, "control"))
	reports := json.NewEncoder(os.NewFile(reportFD, "report"))
	var spec Spec
	if control.Decode(&spec) != nil || works[spec.Work] == nil && spec.Work != keeperWork && spec.Work != imageWork || (os.Getpid() != 1 && !spec.Plain) {
		fmt.Fprintln(os.Stderr, Command+" is started with every container, and not by people")
		return 2
	}
	HandleSignals()
	syscall.Umask(0o022)
	p := &Process{Spec: spec, Stop: make(chan struct{}), reports: reports}
	background.Detach(func() { p.listen(control) }) // ends with this process
	if spec.Work == keeperWork || spec.Work == imageWork {
		var err error
		if spec.Work == keeperWork {
			_, err = p.keep(works)
		} else {
			err = p.serveImage()
		}
		p.killAll()
		_ = reports.Encode(report{Failure: container.FailureOf(err)}) // the caller may be gone
		return 1
	}
	if reports.Encode(p.do(works[spec.Work], unix.Stdout, unix.Stderr)) != nil {
		return 1
	}
	if spec.Ranged && reports.Encode(report{Note: p.giveBack()}) != nil {
		return 1
	}
	return 0
}

// do does a work with these outputs, and returns the last report about it.
func (p *Process) do(work Work, stdout, stderr int) report {
	code := 0
	var err error
	if p.output, err = openOutput(stdout, stderr, p.Masked); err == nil {
		code, err = p.work(work)
	}
	p.killAll()
	return report{Code: code, Note: p.Note, NoNetwork: p.NoNetwork, OutputError: p.output.flush(), Failure: container.FailureOf(err)}
}

// work does the work without access to the account's keys. A plain init starts a program with
// privileges (setuid), which ForbidKeys would take from it, so package enter forbids keys in the
// container.
func (p *Process) work(work Work) (code int, err error) {
	// The processes that this thread starts inherit its new keyring. Other threads keep theirs.
	runtime.LockOSThread()
	forbid := seccomp.ForbidKeys
	if p.keeper != nil {
		if err := p.keeper.enter(); err != nil {
			return 0, err
		}
		forbid = seccomp.ForbidKeysHere // the threads of later containers need other keyrings
	}
	if err := p.confine(forbid); err != nil {
		return 0, err
	}
	return work(p)
}

// HandleSignals makes this process survive a signal to the whole job, so that the command ends
// first. It handles the signals, because the programs that it starts would inherit ignored ones.
func HandleSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGALRM, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGTTIN, syscall.SIGTTOU)
}

// CloseDescriptorsOnExec keeps all descriptors except the standard ones from the container,
// including those that the caller inherited.
func CloseDescriptorsOnExec() {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	// Before Linux 5.11.
	syscall.CloseOnExec(controlFD)
	syscall.CloseOnExec(reportFD)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// Process is the init itself, for its work.
type Process struct {
	Spec

	// Stop is closed when the caller requests the end.
	Stop chan struct{}
	// Deaths receives each child that has ended, including orphans that this process adopted. It is
	// closed when there are no children.
	Deaths chan Death
	// Note becomes the Note of the Exit, and NoNetwork its NoNetwork.
	Note, NoNetwork string

	output  output
	reports *json.Encoder
	began   bool
	// keeper is set for a container of a keeper, and first for one of these whose first process has started.
	keeper *keeper
	first  *firstproc.First
	frame  *Frame // of a container of an init of its own
	made   string // see ownDir
	// reapOne, if not nil, waits for a child in place of wait4(2).
	reapOne func(status *syscall.WaitStatus) (pid int, err error)
}

// Death is a child that has ended.
type Death struct {
	PID    int
	Status syscall.WaitStatus
}

// String describes the end of the child.
func (d Death) String() string {
	if d.Status.Signaled() {
		return d.Status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", d.Status.ExitStatus())
}

// errStopped is the cause if the caller requested the end before the command began.
var errStopped = errors.New("stopped before the command began")

// listen waits until the caller requests the end. When the caller is gone, it ends this process and
// with it the container.
func (p *Process) listen(control *json.Decoder) {
	var request struct{}
	if control.Decode(&request) == nil {
		close(p.Stop)
		_ = control.Decode(&request)
	}
	if p.Plain {
		killSession(os.Getpid())
		_ = p.output.flush() // nobody is there to read its error
	}
	os.Exit(1) //nolint:forbidigo // the caller is gone
}

// ReadDetails decodes Spec.Details.
func (p *Process) ReadDetails(details any) error {
	if err := json.Unmarshal(p.Details, details); err != nil {
		return fmt.Errorf("read the order for its init: %w", err)
	}
	return nil
}

// EnterPrivateDir makes PrivateDir the working directory. A container of a keeper works in that of the keeper.
func (p *Process) EnterPrivateDir() error {
	if p.keeper != nil {
		return nil
	}
	if err := os.Chdir(p.PrivateDir); err != nil {
		return fmt.Errorf("enter its private directory: %w", err)
	}
	return nil
}

// ownDir returns a directory for this init or this container alone.
func (p *Process) ownDir() (dir string, err error) {
	if p.keeper == nil {
		return p.PrivateDir, nil
	}
	if p.made == "" {
		p.made, err = makePrivateDir(p.PrivateDir, containerPrefix)
	}
	return p.made, err
}

// Dir returns the working directory.
func (p *Process) Dir() string {
	if p.keeper != nil {
		return p.keeper.PrivateDir
	}
	return p.PrivateDir
}

// MountProc mounts the /proc of the init's own pid namespace.
func (p *Process) MountProc() error {
	if p.keeper != nil {
		return nil // it has one
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return procError(err)
	}
	return nil
}

// unpacks reports to the caller that an image is about to be unpacked.
func (p *Process) unpacks() {
	_ = p.reports.Encode(report{Unpacks: true}) // if the caller is gone, listen ends this process
}

// Begin reports to the caller, once, that the command begins. A failure before it counts as the
// host's fault. After it, the command may have begun.
func (p *Process) Begin() {
	if !p.began {
		p.began = true
		_ = p.reports.Encode(report{Began: true, Shared: p.Image != nil}) // if the caller is gone, listen ends this process
	}
}

// Start starts a child. Deaths receives its end.
func (p *Process) Start(args []string, attr *syscall.ProcAttr) (pid int, err error) {
	pid, err = syscall.ForkExec(args[0], args, attr)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", args[0], err)
	}
	p.startReaping()
	if p.keeper != nil {
		p.keeper.noteChild()
	}
	return pid, nil
}

// startReaping makes Deaths.
func (p *Process) startReaping() {
	if p.Deaths == nil {
		deaths := make(chan Death)
		p.Deaths = deaths
		background.Detach(func() { p.reap(deaths) }) // returns when there are no children
	}
}

// reap waits for children and orphans, which is the duty of the first process of a PID namespace.
func (p *Process) reap(deaths chan<- Death) {
	defer close(deaths)
	reapOne := p.reapOne
	if reapOne == nil {
		reapOne = func(status *syscall.WaitStatus) (int, error) { return syscall.Wait4(-1, status, 0, nil) }
	}
	for {
		var status syscall.WaitStatus
		pid, err := reapOne(&status)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		deaths <- Death{pid, status}
	}
}

// killAll kills all processes of the container and waits for their end, so that their processor
// time is known. Another child may be started afterwards.
func (p *Process) killAll() {
	switch {
	case p.Deaths == nil:
	case p.keeper != nil:
		p.keeper.killRest(p.first)
	case p.Plain:
		p.endSession()
	default:
		_ = syscall.Kill(-1, syscall.SIGKILL)
		for range p.Deaths { // until there are none
		}
	}
	p.Deaths = nil
}
