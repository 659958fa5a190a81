package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// engineRun is one container of an engine's, by the client that is attached to
// it. Its end of Enter's control ends with this process, and with it the
// container.
type engineRun struct {
	engine  Engine
	name    string
	report  string
	grace   time.Duration
	cmd     *exec.Cmd
	control *os.File
	stderr  *os.File
	since   int64 // how long stderr was at the start
	onStart func(pid int)
}

func (e Engine) start(c Container, name, report, program string) (*engineRun, error) {
	in, control, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", e.name(), err)
	}
	defer func() { _ = in.Close() }()
	r := &engineRun{engine: e, name: name, report: report, grace: c.grace(), control: control, stderr: c.Stderr}
	if c.Stderr != nil {
		if info, err := c.Stderr.Stat(); err == nil {
			r.since = info.Size()
		}
	}
	r.cmd = e.command(e.runArgs(c, name, report, program)...)
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = in, writerOrNil(c.Stdout), writerOrNil(c.Stderr)
	if err := r.cmd.Start(); err != nil {
		_ = control.Close()
		return nil, fmt.Errorf("start %s: %w", e.name(), err)
	}
	return r, nil
}

// runArgs are the arguments of the engine's run. Neither the command nor its
// environment is among them: they may hold secrets.
func (e Engine) runArgs(c Container, name, report, program string) []string {
	args := []string{
		"run", "--rm", "--interactive", "--pull", "never", "--name", name, "--log-driver", "none", "--no-healthcheck",
		"--user", "0:0", "--workdir", "/", "--security-opt", "label=disable", "--entrypoint", enterProgram,
		"--shm-size", strconv.FormatInt(shmBytes(c.ShmBytes), 10),
	}
	switch {
	case !c.Network:
		args = append(args, "--network", "none")
	case e.Network != "":
		args = append(args, "--network", e.Network)
	}
	if c.MemoryBytes > 0 {
		limit := strconv.FormatInt(c.MemoryBytes, 10)
		args = append(args, "--memory", limit, "--memory-swap", limit)
	}
	if c.CPUs > 0 {
		args = append(args, "--cpus", strconv.FormatFloat(c.CPUs, 'f', 2, 64))
	}
	args = append(args, e.deviceOptions(c.Devices)...)
	binds := append([]Bind{
		{Source: program, Target: enterProgram, ReadOnly: true},
		{Source: report, Target: enterReport},
	}, c.Binds...)
	for _, b := range binds {
		option := mountOption("source", b.Source, "destination", b.Target)
		if b.ReadOnly {
			option += ",readonly"
		}
		args = append(args, "--mount", option)
	}
	args = append(args, e.RunOptions...)
	return append(args, c.Image, EnterCommand)
}

// shmBytes is the size of /dev/shm: half of the memory, where none is asked
// for, as a tmpfs has it. An engine's own default is 64 MiB.
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

// deviceOptions show devices. NVIDIA's are shown with their driver by the
// engine's own means, where the host has that driver.
func (e Engine) deviceOptions(devices []string) (options []string) {
	_, err := os.Stat("/proc/driver/nvidia/version")
	nvidia := err == nil
	var gpus []string
	for _, device := range devices {
		name, is := strings.CutPrefix(device, "/dev/nvidia")
		_, notNumber := strconv.Atoi(name)
		switch {
		case is && nvidia && notNumber == nil:
			gpus = append(gpus, name)
		case is && nvidia: // its control devices come with it
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

// wait tells Enter what to do and waits for the container's end.
func (r *engineRun) wait(ctx context.Context, spec enterSpec) (code int, err error) {
	sendErr := json.NewEncoder(r.control).Encode(spec)
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	stop, killed := ctx.Done(), false
	var kill <-chan time.Time
	look := time.NewTicker(reportPause)
	defer look.Stop()
	begun := look.C
	for {
		select {
		case <-begun:
			if r.onStart == nil || readEntered(r.report).Began {
				begun = nil
				r.started(ctx)
			}
		case <-stop:
			stop = nil
			_, _ = r.control.WriteString("{}\n") // one that is gone needs no word
			timer := time.NewTimer(r.grace + killDelay)
			defer timer.Stop()
			kill = timer.C
		case <-kill:
			kill, killed = nil, true
			r.remove(ctx)
			_ = r.cmd.Process.Kill()
		case waitErr := <-ended:
			_ = r.control.Close()
			return r.ended(ctx, waitErr, sendErr, killed)
		}
	}
}

// ended says how the container ended.
func (r *engineRun) ended(ctx context.Context, waitErr, sendErr error, killed bool) (code int, err error) {
	said := readEntered(r.report)
	if said.Code == nil {
		r.remove(ctx) // the client may have been killed, and not the container
	}
	status, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case killed:
		return 128 + int(syscall.SIGKILL), nil
	case !ok:
		return 0, fmt.Errorf("wait for %s: %w", r.engine.name(), errors.Join(waitErr, sendErr))
	case said.Began && said.Code == nil && status.Exited() && status.ExitStatus() == engineFailed:
		return 0, fmt.Errorf("%s lost the container: %s", r.engine.name(), lastLine(r.complaint()))
	}
	if said.Began && r.onStart != nil {
		r.started(ctx)
	}
	return said.outcome(status, r.engine.name(), r.complaint)
}

// engineFailed is the exit status of an engine's run for its own failures
// (docker-run(1): Exit Status).
const engineFailed = 125

// started tells the caller once that the command has begun, and by which of
// the host's processes; 0 where the engine does not say.
func (r *engineRun) started(ctx context.Context) {
	onStart := r.onStart
	r.onStart = nil
	if onStart == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, engineWait)
	defer cancel()
	said, err := r.engine.call(ctx, "inspect", "--format", "{{.State.Pid}}", r.name)
	pid, numErr := strconv.Atoi(said)
	if err != nil || numErr != nil {
		pid = 0
	}
	onStart(pid)
}

// remove ends the container where it is still there.
func (r *engineRun) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineWait)
	defer cancel()
	_, _ = r.engine.call(ctx, "rm", "--force", "--volumes", r.name) // the sweep of the next run tries again
}

// complaint is what was written to the container's standard error, where that
// is a file, which is where the engine's own words go.
func (r *engineRun) complaint() string {
	if r.stderr == nil {
		return ""
	}
	f, err := os.Open(filepath.Join("/proc/self/fd", strconv.Itoa(int(r.stderr.Fd()))))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	return tailFrom(f, r.since)
}
