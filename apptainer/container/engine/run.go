package engine

import (
	"cmp"
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

// client is the engine's client, attached to one container. The kernel closes its end of the
// control with this process, which ends the container.
type client struct {
	engine  Runtime
	name    string
	report  string
	grace   time.Duration
	cmd     *exec.Cmd
	control *os.File
	stdout  *maskedStdout // nil without masked texts
	stderr  *clientStderr
	onStart func(pid int)
}

func (e Runtime) start(c container.Container, options []string, report, helper string) (*client, error) {
	in, control, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", e.name(), err)
	}
	defer func() { _ = in.Close() }()
	name := containerName()
	r := &client{engine: e, name: name, report: report, grace: c.KillGraceOrDefault(), control: control, stderr: newClientStderr(c.Stderr, c.Masked)}
	if c.OnStart != nil {
		r.onStart = func(pid int) { c.OnStart(c.RunningAs(pid, name)) }
	}
	r.cmd = initproc.NewCmd(e.args(e.runArgs(c, options, name, report, helper)...), e.Env)
	r.cmd.Stdin, r.cmd.Stderr = in, r.stderr
	r.cmd.Stdout, r.stdout = newStdout(c.Stdout, c.Masked)
	r.cmd.WaitDelay = outputWait
	if err := r.cmd.Start(); err != nil {
		_ = control.Close()
		return nil, fmt.Errorf("start %s: %w", e.name(), err)
	}
	return r, nil
}

// runArgs returns the arguments of the engine's run. They contain neither the command nor its
// environment, which may be secret.
func (e Runtime) runArgs(c container.Container, options []string, name, report, helper string) []string {
	args := []string{
		"run", "--rm", "--interactive", "--pull", "never", "--name", name, "--log-driver", "none", "--no-healthcheck",
		"--user", "0:0", "--workdir", "/", "--security-opt", "label=disable", "--entrypoint", enter.ProgramPath,
		"--shm-size", strconv.FormatInt(shmBytes(c.ShmBytes), 10),
	}
	switch c.Network {
	case container.NoNetwork:
		args = append(args, "--network", "none")
	case container.HostNetwork:
		args = append(args, "--network", "host")
	case container.PrivateNetwork: // the engine's default
	}
	args = append(args, options...)
	for _, b := range append(enter.Binds(helper, report), c.Binds...) {
		args = append(args, enter.MountOptions(b, "readonly")...)
	}
	args = append(args, e.RunOptions...)
	return append(args, c.PinnedReference, enter.Command)
}

// shmBytes returns the size of /dev/shm: half of the memory if none is requested, as for a tmpfs.
// An engine's own default is 64 MiB.
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

// outputWait limits the reading of the client's standard error after its end. A process that it left
// running may hold that open.
const outputWait = 10 * time.Second

// wait sends package enter its order and waits for the container's end.
func (r *client) wait(ctx context.Context, spec enter.Spec) (exit container.Exit, err error) {
	spec.StderrMark = string(r.stderr.mark)
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

func (r *client) outcome(ctx context.Context, waitErr error, killed bool) (exit container.Exit, err error) {
	report := enter.ReadReport(r.report)
	exit.Usage = report.Usage
	if report.Began && !r.stderr.marked { // package enter could not write the mark
		r.stderr.pass(r.stderr.own)
	}
	r.stderr.end()
	exit.OutputError = cmp.Or(r.stdout.end(), r.stderr.err)
	if report.Code == nil {
		r.remove(ctx) // perhaps only the client was killed
	}
	status, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case killed:
		exit.Code, exit.Signal = 128+int(syscall.SIGKILL), int(syscall.SIGKILL)
		return exit, nil
	case !ok:
		return exit, fmt.Errorf("wait for %s: %w", r.engine.name(), waitErr)
	case report.Began && report.Code == nil && status.Exited() && status.ExitStatus() == exitEngineFailed:
		return exit, fmt.Errorf("%s lost the container: %s", r.engine.name(), r.stderr.message())
	}
	if report.Began {
		r.reportStart(ctx)
	}
	if report.Began && report.Code == nil && r.hadOOM(ctx) { // the kernel killed package enter's process
		exit.Usage.OOMKills = 1
	}
	code, err := report.Outcome(r.engine.name(), status, r.stderr.message)
	if err != nil {
		return exit, r.engine.refusal(ctx, err)
	}
	ended := container.ExitOf(code)
	exit.Code, exit.Signal = ended.Code, ended.Signal
	return exit, nil
}

// refusal decides who is at fault for a container that the engine could not set up. Only the image can have a
// directory in place of a file that the engine mounts (runc libcontainer/rootfs_linux.go: mountToRootfs), or the
// reverse. Nothing proves any other fault while the engine answers.
func (e Runtime) refusal(ctx context.Context, err error) error {
	host, ok := errors.AsType[*container.HostError](err)
	if !ok || host.AnyRuntime {
		return err
	}
	lower := strings.ToLower(err.Error())
	if strings.Contains(lower, "mounting") && (strings.Contains(lower, "not a directory") || strings.Contains(lower, "is a directory")) {
		return container.RequestErrorf("the image has something of another kind at a place where a file or directory is mounted: %w", host.Err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if _, callErr := e.call(ctx, "version"); callErr != nil {
		return err
	}
	return &container.HostError{Err: host.Err, Doubtful: true}
}

// exitEngineFailed is the exit status of an engine's run for its own failures (docker-run(1): Exit
// Status).
const exitEngineFailed = 125

// reportStart calls onStart once, with the container's process id outside, or 0 if the engine does
// not tell it.
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

// remove removes the container if it still exists. If that fails, removeAbandoned tries again.
func (r *client) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_, _ = r.engine.call(ctx, "rm", "--force", "--volumes", r.name)
}
