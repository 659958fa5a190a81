package testsite

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// process is a program of the site. It has a process group of its own, so that a
// Ctrl-C of the caller does not reach it, and writes to the site's log.
type process struct {
	cmd   *exec.Cmd
	err   error           // from the start, or from the end
	ended <-chan struct{} // is closed at the end
}

// launch starts one of the installed programs as User.
func (s *Site) launch(args ...string) *process {
	p := &process{}
	p.cmd = exec.Command(program(args[0]), args[1:]...)
	p.cmd.Env, p.cmd.Dir = s.env, s.path("home")
	p.cmd.Stdout, p.cmd.Stderr = s.log, s.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.credential, Setpgid: true}
	p.err = p.cmd.Start()
	p.ended = background.Go(func() {
		if p.err == nil {
			p.err = p.cmd.Wait()
		}
	})
	return p
}

// patience bounds a program's start and its end, and the end of a site's jobs.
const patience = 10 * time.Minute

// waitReady waits for a program to be ready. It fails if the program ends before. A
// program that has ended after it was ready is no failure.
func (p *process) waitReady(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := poll(ctx, func() bool {
		select {
		case <-p.ended:
			return true
		default:
			return ready()
		}
	})
	select {
	case <-p.ended:
		if ready() {
			return nil
		}
		return fmt.Errorf("%s ended: %w", p.cmd.Args[0], errors.Join(p.err, errEarly))
	default:
		return err
	}
}

var errEarly = errors.New("before it was ready; see the site's log")

// stop signals a program and waits for its end. It is no error if the program has
// ended before.
func (p *process) stop(signal syscall.Signal) error {
	if p.cmd.Process == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(signal) // unless it has ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("%s did not end", p.cmd.Args[0]), p.cmd.Process.Kill())
	}
}
