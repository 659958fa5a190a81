package slurmcluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// daemon is a daemon of a bare cluster. It ends with this process.
type daemon struct {
	cmd   *exec.Cmd
	ended <-chan struct{}
}

// startDaemon starts a daemon, whose output goes to a file.
func startDaemon(output string, env []string, args ...string) (*daemon, error) {
	log, err := os.Create(output)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	d := &daemon{cmd: exec.Command(args[0], args[1:]...)}
	d.cmd.Env, d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = env, "/", log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	d.ended = background.Go(func() {
		defer func() { _ = log.Close() }() // only the daemon writes
		runtime.LockOSThread()             // the kernel sends Pdeathsig when the thread ends
		defer runtime.UnlockOSThread()
		err := d.cmd.Start()
		started <- err
		if err == nil {
			_ = d.cmd.Wait() // stop ends it
		}
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	return d, nil
}

// stop ends the daemon.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // unless it has ended
	select {
	case <-d.ended:
		return nil
	case <-time.After(bareStart):
		return errors.Join(fmt.Errorf("%s did not end", d.cmd.Path), d.cmd.Process.Kill())
	}
}
