package initproc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/smallfile"
	"github.com/cl-slurm/cl-slurm/internal/subids"
)

// Command is the hidden argument with which a program runs [Main].
const Command = "container-init"

// Descriptors that an init inherits.
const (
	controlFD = 3
	reportFD  = 4
)

// KillDelay is the time after a container's grace in which its init must report before it is
// killed.
const KillDelay = 5 * time.Second

// Spec is the order for an init.
type Spec struct {
	// Work names one of the functions that the init's program passed to Main. That function reads
	// Details with Process.Details.
	Work    string
	Details json.RawMessage
	// Plain is set for an init without namespaces.
	Plain bool
	// PrivateDir is an empty directory for this init alone. A keeper's container may make such a directory in it.
	PrivateDir string
	KillGrace  time.Duration
	// MaxProcesses is the container's; see StartBounded.
	MaxProcesses int64 `json:",omitempty"`
	// Masked is the container's.
	Masked []string `json:",omitempty"`
	// Ranged is set for an init whose namespace has the user's subordinate ids. Written are the
	// host's directories that its command may write to. At the end, everything in them is given
	// back to the user.
	Ranged  bool     `json:",omitempty"`
	Written []string `json:",omitempty"`
	// Image is set for a keeper that gets its image as imageFD, and the SIF as openedFD.
	Image *sharedMount `json:",omitempty"`
}

// report is an init's message before it unpacks an image, when its command begins, and at the end.
type report struct {
	Unpacks bool `json:",omitempty"`
	Began   bool `json:",omitempty"`
	// Shared is set if a keeper has begun with the mount of its caller.
	Shared bool `json:",omitempty"`
	Code   int
	Note   string `json:",omitempty"`
	// NoNetwork becomes the NoNetwork of the Exit.
	NoNetwork string `json:",omitempty"`
	// OutputError becomes the OutputError of the Exit.
	OutputError syscall.Errno `json:",omitempty"`
	// Usage is the use of a keeper's container.
	Usage container.Usage `json:",omitzero"`
	container.Failure
}

// Init describes an init to run.
type Init struct {
	// Program is the path of a program that runs Main if its first argument is Command; empty means
	// this program.
	Program string
	Spec    Spec
	// Details, if not nil, becomes Spec.Details.
	Details any
	// IDs, if not nil, is the map of the init's namespace. If the host refuses it, the Exit notes
	// the reason, and the init has one id, as without IDs.
	IDs *subids.Map
	// Stdout and Stderr are the init's and its command's.
	Stdout, Stderr *os.File
	// OnUnpack, if not nil, is called before the init unpacks an image.
	OnUnpack func()
	// OnStart, if not nil, is called with the init's process id when the command begins.
	OnStart func(pid int)
	// KilledFirst is the container's.
	KilledFirst bool
	// Began, if not nil, reports whether the command of an init has begun. It is called if the init
	// ended without a report. Without Began, an init calls Process.Begin before its command can
	// begin.
	Began func() bool

	// Base, if not nil, lets a kept init run the container, whose PrivateDir is then that of container.Container.
	Base *Base

	note   string     // of the Exit
	orders int        // a keeper's descriptor for orders, or an image server's; 0 for other inits
	image  imageFiles // of Spec.Image
}

// For returns an Init that runs a container by the work of this name, in a new directory of the
// container's private directory. With a base, that directory is made when it is needed.
func For(c container.Container, program, work string, details any, base *Base) (i Init, err error) {
	dir := c.PrivateDir
	if base == nil {
		if dir, err = makePrivateDir(dir, containerPrefix); err != nil {
			return Init{}, err
		}
	}
	var onStart func(pid int)
	if c.OnStart != nil {
		onStart = func(pid int) { c.OnStart(c.RunningAs(pid, "")) }
	}
	return Init{
		Base: base, Program: program, Details: details, Stdout: c.Stdout, Stderr: c.Stderr, OnUnpack: c.OnUnpack, OnStart: onStart, KilledFirst: c.KilledFirst,
		Spec: Spec{Work: work, PrivateDir: dir, KillGrace: c.KillGraceOrDefault(), MaxProcesses: c.MaxProcesses, Masked: c.Masked},
	}, nil
}

// containerPrefix begins the names of containers' directories.
const containerPrefix = "container-"

// makePrivateDir makes a directory for the files of one init.
func makePrivateDir(in, prefix string) (string, error) {
	dir, err := os.MkdirTemp(in, prefix)
	if err != nil {
		return "", fmt.Errorf("make its private directory: %w", err)
	}
	return dir, nil
}

// runningInit is an init as its caller sees it.
type runningInit struct {
	child   child
	control *os.File
	report  *os.File
}

// Run starts the init and waits for its end. When ctx ends it tells the init to stop.
//
// An error is a *container.HostError unless the command may have begun, the work failed with a
// *container.RequestError, or ctx has ended. The Exit of a *container.HostError has the code that
// the work returned.
func (i Init) Run(ctx context.Context) (container.Exit, error) {
	if i.Base != nil {
		return i.Base.Kept.run(ctx, i)
	}
	// The kernel kills the init when the thread that started it ends (PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := i.start()
	if err != nil {
		return container.Exit{}, container.NotBegun(fmt.Errorf("start its init: %w", err))
	}
	exit, err := p.wait(ctx, i)
	if err != nil && i.Spec.Plain { // its init may have been killed
		killSession(int(p.child))
	}
	if err != nil && i.Spec.Ranged && exit.Code == CodeOneID {
		i.useOneID(err)
		return i.Run(ctx)
	}
	exit.Note = joinNotes(i.note, exit.Note)
	return exit, err
}

// CodeOneID is the code of a work that has failed because a file system refuses files of the
// subordinate ids. The init then starts again without them.
const CodeOneID = 3

// useOneID makes the init start without the subordinate ids.
func (i *Init) useOneID(reason error) {
	i.IDs, i.Spec.Ranged = nil, false
	i.note = container.OneID(reason.Error())
}

func joinNotes(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
}

func (i *Init) start() (_ *runningInit, err error) {
	if i.Details != nil {
		if i.Spec.Details, err = json.Marshal(i.Details); err != nil {
			return nil, fmt.Errorf("encode its order: %w", err)
		}
	}
	controlIn, control, err := pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(controlIn) }()
	report, reportOut, err := pipe()
	if err != nil {
		return nil, errors.Join(err, unix.Close(control))
	}
	defer func() { _ = unix.Close(reportOut) }()
	p := &runningInit{control: os.NewFile(uintptr(control), "control"), report: os.NewFile(uintptr(report), "report")}
	if i.Spec.MaxProcesses > 0 && !i.Spec.Plain && countsApart() {
		raiseOwnLimit()
	}
	if i.IDs != nil {
		if p.child, err = i.forkRanged(controlIn, reportOut); err == nil {
			return p, nil
		}
		i.useOneID(err)
	}
	if p.child, err = i.fork(controlIn, reportOut); err != nil {
		return nil, errors.Join(namespaceError(err), p.control.Close(), p.report.Close())
	}
	return p, nil
}

// forkRanged is fork with the ids of IDs. It runs newuidmap while the init starts and waits for its order.
func (i *Init) forkRanged(control, report int) (child, error) {
	c, err := i.fork(control, report)
	if err != nil {
		return 0, err
	}
	if err = i.IDs.Apply(int(c)); err != nil {
		_ = c.kill()
		_, _ = c.wait() // it was killed
		return 0, err
	}
	i.Spec.Ranged = true
	return c, nil
}

// fork starts the init with its ends of both pipes.
func (i *Init) fork(control, report int) (child, error) {
	null, err := openNull()
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(null) }()
	files := []uintptr{uintptr(null), fdOr(i.Stdout, null), fdOr(i.Stderr, null), uintptr(control), uintptr(report)}
	if i.orders > 0 {
		files = append(files, uintptr(i.orders))
	}
	if i.Spec.Image != nil {
		files = append(files, uintptr(i.image.mount), uintptr(i.image.sif))
	}
	attributes := &syscall.SysProcAttr{Setsid: true}
	if !i.Spec.Plain {
		attributes = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		}
		if i.IDs != nil {
			i.IDs.Prepare(attributes)
		}
	}
	c, err := startChild(cmp.Or(i.Program, "/proc/self/exe"), []string{Command}, &syscall.ProcAttr{Env: initEnv(), Files: files, Sys: attributes})
	if err == nil && i.KilledFirst {
		killFirst(int(c))
	}
	return c, err
}

// killFirst makes the kernel prefer a process, and those that it starts, to this one when it has to kill one of them for memory
// (proc_pid_oom_score_adj(5)). Without /proc the largest process ends, which is the command's, too.
func killFirst(pid int) {
	const more, most = 500, 1000
	text, err := smallfile.Read("/proc/self/oom_score_adj")
	if err != nil {
		return
	}
	own, _ := strconv.Atoi(strings.TrimSpace(string(text))) // it is a number
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(min(own+more, most))), 0)
}

// initEnv returns the environment of an init. An init does one thing at a time, so it limits Go's
// threads. Its command gets none of these variables.
func initEnv() []string { return append(podEnvironment(), "GOMAXPROCS=2") }

// pipe makes a pipe of plain descriptors. os.Pipe would make five more system calls for each end.
func pipe() (r, w int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, os.NewSyscallError("pipe2", err)
	}
	return ends[0], ends[1], nil
}

func openNull() (int, error) {
	fd, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	return fd, nil
}

func fdOr(f *os.File, other int) uintptr {
	if f == nil {
		return uintptr(other)
	}
	return f.Fd()
}

// WriterOrNil returns a nil Writer for a nil *os.File.
func WriterOrNil(f *os.File) io.Writer {
	if f == nil {
		return nil
	}
	return f
}

// wait sends the init its order and waits for its end. The Exit has the init's use, also with an error.
func (p *runningInit) wait(ctx context.Context, i Init) (container.Exit, error) {
	var report report
	var began bool
	var sendErr, readErr error
	reports := json.NewDecoder(p.report)
	p.heed(ctx, i.Spec.KillGrace, p.stop, func() {
		sendErr = json.NewEncoder(p.control).Encode(i.Spec)
		report, began, readErr = i.readReports(reports, p.child)
	})
	if readErr == nil {
		report.Note = joinNotes(report.Note, i.awaitFiles(reports))
	}
	_ = p.control.Close() // the init ends now at the latest
	_ = p.report.Close()
	used, waitErr := p.child.wait()
	if readErr != nil {
		readErr = errors.Join(waitErr, sendErr)
		if readErr == nil {
			readErr = errors.New("exit status 0")
		}
	}
	exit, err := i.outcome(ctx, report, began, readErr)
	exit.Usage = used
	return exit, err
}

// outcome returns the end of a container by the last report about it. lost is the reason why there is none.
func (i *Init) outcome(ctx context.Context, report report, began bool, lost error) (container.Exit, error) {
	switch {
	case lost != nil && ctx.Err() != nil:
		return container.Exit{}, fmt.Errorf("its init did not stop and was killed: %w", errors.Join(ctx.Err(), i.reclaim()))
	case lost != nil:
		err := fmt.Errorf("its init ended without a report: %w", errors.Join(lost, i.reclaim()))
		if began || i.Began != nil && i.Began() {
			return container.Exit{}, err
		}
		return container.Exit{}, container.NotBegun(err)
	case report.Error != "" && ctx.Err() != nil && !report.NoShell:
		return container.Exit{}, fmt.Errorf("%s: %w", report.Error, ctx.Err())
	case report.Error != "" && began:
		return container.Exit{Code: report.Code}, report.Err()
	case report.Error != "":
		return container.Exit{Code: report.Code}, container.NotBegun(report.Err())
	}
	exit := container.ExitOf(report.Code)
	exit.Note, exit.NoNetwork, exit.OutputError = report.Note, report.NoNetwork, report.OutputError
	return exit, nil
}

// reclaim gives the user the files of an init that ended before it did so.
func (i *Init) reclaim() error {
	if !i.Spec.Ranged || len(i.Spec.Written) == 0 {
		return nil
	}
	return subids.Reclaim(i.Spec.Written...)
}

// awaitFiles waits until an init has given its command's files to the user, and returns a note about a
// failure. The kill of an init that does not stop cannot interrupt this.
func (i *Init) awaitFiles(reports *json.Decoder) string {
	if !i.Spec.Ranged {
		return ""
	}
	var last report
	if reports.Decode(&last) != nil { // the init was killed
		return noteOf(i.reclaim())
	}
	return last.Note
}

// readReports reads the reports about a container to the last one, and calls OnUnpack and OnStart.
func (i *Init) readReports(reports *json.Decoder, init child) (last report, began bool, err error) {
	for {
		last = report{}
		if err := reports.Decode(&last); err != nil {
			return last, began, err
		}
		switch {
		case last.Began:
			began = true
			if i.OnStart != nil {
				i.OnStart(int(init))
			}
		case !last.Unpacks:
			return last, began, nil
		case i.OnUnpack != nil:
			i.OnUnpack()
		}
	}
}

// heed calls f, which waits for the init. If ctx ends meanwhile, it calls stop, which tells the init to stop, and kills the
// init if f does not return soon after grace.
func (p *runningInit) heed(ctx context.Context, grace time.Duration, stop, f func()) {
	done := make(chan struct{})
	var stopping sync.WaitGroup
	stopping.Go(func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		stop()
		kill := time.NewTimer(grace + KillDelay)
		defer kill.Stop()
		select {
		case <-done:
		case <-kill.C:
			_ = p.child.kill()
		}
	})
	f()
	close(done)
	stopping.Wait()
}

// stop tells the init to stop.
func (p *runningInit) stop() { _, _ = p.control.WriteString("{}\n") } // fails if the init has ended
