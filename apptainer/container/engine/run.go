package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
)

// client is the engine's client, attached to one container. Its end of the control is closed with this
// process, which ends the container.
type client struct {
	engine  Runtime
	name    string
	report  string
	grace   time.Duration
	cmd     *exec.Cmd
	control *os.File
	stderr  initproc.StderrMark
	onStart func(pid int)
}

func (e Runtime) start(c container.Container, name, report, helper string) (*client, error) {
	in, control, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", e.name(), err)
	}
	defer func() { _ = in.Close() }()
	r := &client{engine: e, name: name, report: report, grace: c.KillAfter(), control: control, stderr: initproc.MarkStderr(c.Stderr), onStart: c.OnStart}
	r.cmd = initproc.NewCmd(e.args(e.runArgs(c, name, report, helper)...), e.Env)
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = in, initproc.WriterOrNil(c.Stdout), initproc.WriterOrNil(c.Stderr)
	if err := r.cmd.Start(); err != nil {
		_ = control.Close()
		return nil, fmt.Errorf("start %s: %w", e.name(), err)
	}
	return r, nil
}

// runArgs are the arguments of the engine's run. They contain neither the command nor its
// environment, which may hold secrets.
func (e Runtime) runArgs(c container.Container, name, report, helper string) []string {
	args := []string{
		"run", "--rm", "--interactive", "--pull", "never", "--name", name, "--log-driver", "none", "--no-healthcheck",
		"--user", "0:0", "--workdir", "/", "--security-opt", "label=disable", "--entrypoint", enter.ProgramPath,
		"--shm-size", strconv.FormatInt(shmBytes(c.ShmBytes), 10),
	}
	if !c.Network {
		args = append(args, "--network", "none")
	}
	args = append(args, e.deviceOptions(c.Devices)...)
	for _, b := range append(enter.Binds(helper, report), c.Binds...) {
		args = append(args, enter.MountOptions(b, "readonly")...)
	}
	args = append(args, e.RunOptions...)
	return append(args, c.Image, enter.Command)
}

// shmBytes is the size of /dev/shm: half of the memory where none is asked for, as for a tmpfs. An
// engine's own default is 64 MiB.
func shmBytes(asked int64) int64 {
	var info syscall.Sysinfo_t
	switch {
	case asked > 0:
		return asked
	case syscall.Sysinfo(&info) != nil:
		return 64 << 20
	}
	return int64(info.Totalram) / 2 * int64(info.Unit) //nolint:gosec // below 2^63
}

// deviceOptions show devices. NVIDIA's are shown with their driver by the engine's own means, where
// the host has that driver.
func (e Runtime) deviceOptions(devices []string) (options []string) {
	_, err := os.Stat("/proc/driver/nvidia/version")
	hasDriver := err == nil
	var gpus []string
	for _, device := range devices {
		name, nvidia := strings.CutPrefix(device, "/dev/nvidia")
		_, notNumber := strconv.Atoi(name)
		switch {
		case nvidia && hasDriver && notNumber == nil:
			gpus = append(gpus, name)
		case nvidia && hasDriver: // the engine adds the control devices
		default:
			options = append(options, "--device", device)
		}
	}
	switch {
	case len(gpus) == 0:
	case strings.HasPrefix(e.name(), "podman"):
		for _, gpu := range gpus {
			options = append(options, "--device", "nvidia.com/gpu="+gpu)
		}
	default:
		options = append(options, "--gpus", `"device=`+strings.Join(gpus, ",")+`"`)
	}
	return options
}

// wait sends package enter its order and waits for the container's end.
func (r *client) wait(ctx context.Context, spec enter.Spec) (code int, err error) {
	sendErr := json.NewEncoder(r.control).Encode(spec)
	ended := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() { ended <- r.cmd.Wait() })
	defer waiting.Wait()
	stop, killed := ctx.Done(), false
	var kill <-chan time.Time
	tick := time.NewTicker(enter.ReportPause)
	defer tick.Stop()
	begun := tick.C
	for {
		select {
		case <-begun:
			if r.onStart == nil || enter.ReadReport(r.report).Began {
				begun = nil
				r.reportStart(ctx)
			}
		case <-stop:
			stop = nil
			_, _ = r.control.WriteString("{}\n") // fails if the container has ended
			timer := time.NewTimer(r.grace + initproc.KillDelay)
			defer timer.Stop()
			kill = timer.C
		case <-kill:
			kill, killed = nil, true
			r.remove(ctx)
			_ = r.cmd.Process.Kill()
		case waitErr := <-ended:
			_ = r.control.Close()
			return r.outcome(ctx, errors.Join(waitErr, sendErr), killed)
		}
	}
}

func (r *client) outcome(ctx context.Context, waitErr error, killed bool) (code int, err error) {
	report := enter.ReadReport(r.report)
	if report.Code == nil {
		r.remove(ctx) // perhaps only the client was killed
	}
	status, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case killed:
		return 128 + int(syscall.SIGKILL), nil
	case !ok:
		return 0, fmt.Errorf("wait for %s: %w", r.engine.name(), waitErr)
	case report.Began && report.Code == nil && status.Exited() && status.ExitStatus() == exitEngineFailed:
		return 0, fmt.Errorf("%s lost the container: %s", r.engine.name(), initproc.LastMessage(r.stderr.Text()))
	}
	if report.Began {
		r.reportStart(ctx)
	}
	return report.Outcome(r.engine.name(), status, r.stderr.Text)
}

// exitEngineFailed is the exit status of an engine's run for its own failures (docker-run(1): Exit
// Status).
const exitEngineFailed = 125

// reportStart calls onStart once, with the container's process id outside; 0 where the engine does not
// give it.
func (r *client) reportStart(ctx context.Context) {
	onStart := r.onStart
	r.onStart = nil
	if onStart == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	output, err := r.engine.call(ctx, "inspect", "--format", "{{.State.Pid}}", r.name)
	pid, numErr := strconv.Atoi(output)
	if err != nil || numErr != nil {
		pid = 0
	}
	onStart(pid)
}

// remove removes the container if it is still there. If that fails, removeAbandoned tries again.
func (r *client) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_, _ = r.engine.call(ctx, "rm", "--force", "--volumes", r.name)
}
