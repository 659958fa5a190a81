package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
)

// Descriptors that init inherits. On control it reads an initSpec, perhaps a
// second line that says to stop, and at last the end of the file, which tells
// it that its caller is gone. On report it writes an initReport when the
// command begins, and one at the end.
const (
	controlFD = 3
	reportFD  = 4
)

// killDelay is how long after the grace of a container its init has to report
// before it is killed.
const killDelay = 5 * time.Second

// initSpec is what init is told to do.
type initSpec struct {
	SIF          string
	Image        fileID // what SIF has to be
	Opened       bool   // by who wants the container run
	Offset       int64
	Scratch      string // a private directory, empty
	Args         []string
	ShellCommand string
	Env          []string
	Binds        []Bind
	Devices      []string
	Driver       gpudriver.Driver
	Dir          string
	Network      bool
	ShmBytes     int64
	Grace        time.Duration
	Squashfuse   string
	Unpack       string // why the image is not mounted but unpacked, or empty
	Bubblewrap   string
	Apptainer    *apptainerSpec // sets the container up; nil means init itself
	Trial        bool           // only tries what the host allows
	Serve        bool           // only serves the image, to several containers
	Shared       bool           // has a share of an image that is served so
}

// initReport is that a container's command has begun, or how the container
// ended: by its command, or by Error.
type initReport struct {
	Began   bool `json:",omitempty"`
	Code    int
	Error   string `json:",omitempty"`
	NoShell bool   `json:",omitempty"`
	Note    string `json:",omitempty"`
	Host    bool   `json:",omitempty"` // Error is a HostError
}

// child is a running init.
type child struct {
	cmd     *exec.Cmd
	control *os.File
	report  *os.File
	grace   time.Duration
}

// namespaces are init's own, in which it is root, and dies with its caller.
func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
}

// startInit starts init, with more descriptors behind its own.
func startInit(c Container, args []string, attributes *syscall.SysProcAttr, more ...*os.File) (_ *child, err error) {
	controlIn, control, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start its init: %w", err)
	}
	report, reportOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start its init: %w", err), controlIn.Close(), control.Close())
	}
	cmd := &exec.Cmd{
		Path:        args[0],
		Args:        args,
		Env:         []string{},
		Stdout:      writerOrNil(c.Stdout),
		Stderr:      writerOrNil(c.Stderr),
		ExtraFiles:  append([]*os.File{controlIn, reportOut}, more...),
		SysProcAttr: attributes,
	}
	err = cmd.Start()
	_ = controlIn.Close()
	_ = reportOut.Close()
	if err != nil {
		return nil, errors.Join(namespaceError(err), control.Close(), report.Close())
	}
	return &child{cmd: cmd, control: control, report: report, grace: c.grace()}, nil
}

// writerOrNil keeps a nil *os.File from becoming a Writer that is not nil.
func writerOrNil(f *os.File) io.Writer {
	if f == nil {
		return nil
	}
	return f
}

// wait tells init what to do and waits for its end. It calls onStart, when that
// is not nil, when the command begins.
func (c *child) wait(ctx context.Context, spec initSpec, onStart func(pid int)) (Exit, error) {
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.stopWith(ctx, done)
	}()
	sendErr := json.NewEncoder(c.control).Encode(spec)
	report, readErr := c.read(onStart)
	close(done)
	<-stopped
	_ = c.control.Close() // after which init ends in any case
	_ = c.report.Close()
	waitErr := c.cmd.Wait()
	switch {
	case readErr != nil && ctx.Err() != nil:
		return Exit{}, fmt.Errorf("its init did not stop and was killed: %w", ctx.Err())
	case readErr != nil:
		return Exit{}, fmt.Errorf("its init ended without a word: %w", errors.Join(waitErr, sendErr))
	case report.NoShell:
		return Exit{}, ErrNoShell
	case report.Error != "" && ctx.Err() != nil:
		return Exit{}, fmt.Errorf("%s: %w", report.Error, ctx.Err())
	case report.Host:
		return Exit{Code: report.Code}, lacking("%s", report.Error)
	case report.Error != "":
		return Exit{}, errors.New(report.Error)
	}
	exit := exitOf(report.Code)
	exit.Note = report.Note
	return exit, nil
}

// read reads what init reports, to its last report.
func (c *child) read(onStart func(pid int)) (report initReport, err error) {
	reports := json.NewDecoder(c.report)
	for {
		report = initReport{}
		if err := reports.Decode(&report); err != nil {
			return report, err //nolint:wrapcheck // the caller words it
		}
		if !report.Began {
			return report, nil
		}
		if onStart != nil {
			onStart(c.cmd.Process.Pid)
		}
	}
}

// exitOf is an exit status as a shell reports it.
func exitOf(code int) Exit {
	exit := Exit{Code: code}
	if signal := code - 128; signal > 0 && signal < 65 {
		exit.Signal = signal
	}
	return exit
}

// stopWith passes the end of ctx on to init, and kills an init that does not
// answer it. It returns when done is closed.
func (c *child) stopWith(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	_, _ = c.control.WriteString("{}\n") // an init that is gone needs no word
	kill := time.NewTimer(c.grace + killDelay)
	defer kill.Stop()
	select {
	case <-done:
	case <-kill.C:
		_ = c.cmd.Process.Kill()
		<-done
	}
}
