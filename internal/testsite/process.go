package testsite

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// process is a program that runs beside the caller, in a process group of its
// own, with its output in the site's log.
type process struct {
	cmd   *exec.Cmd
	err   error         // of the start, or of the end
	ended chan struct{} // closed at the end
}

// launch starts one of this project's programs as User.
func (s *Site) launch(args ...string) *process { return s.launchAs(s.credential, args...) }

func (s *Site) launchAs(as *syscall.Credential, args ...string) *process {
	p := &process{ended: make(chan struct{})}
	p.cmd = exec.Command(program(args[0]), args[1:]...)
	p.cmd.Env, p.cmd.Dir = s.env, s.path("home")
	p.cmd.Stdout, p.cmd.Stderr = s.log, s.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true}
	if p.err = p.cmd.Start(); p.err != nil {
		close(p.ended)
		return p
	}
	go func() { // joined by end
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p
}

// startWithin bounds a program's start. Making the demo's image takes longest.
const startWithin = 5 * time.Minute

// until waits for a program to be ready. It fails when that ends before; one
// that was ready and has ended since by itself is the caller's to judge.
func (p *process) until(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
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

// end signals a program and waits for its end; an end by that signal, or
// before it, is no error.
func (p *process) end(signal syscall.Signal) error {
	if p.cmd.Process == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(signal) // one that has ended takes none
	select {
	case <-p.ended:
		return nil
	case <-time.After(20 * time.Second):
		return errors.Join(fmt.Errorf("%s did not end", p.cmd.Args[0]), p.cmd.Process.Kill())
	}
}
