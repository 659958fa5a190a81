//go:build linux

package subids

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// process is a program that this package has started. Package command starts no programs in namespaces, and
// its programs have no process id for newuidmap. Package os would start another process first (os:
// checkPidfd).
type process struct {
	pid    int
	ended  <-chan struct{} // is closed at the end of the output
	output []byte
}

// outputKept limits the output that a process keeps.
const outputKept = 4096

// start starts a program without an environment. attributes may be nil, and no stdin means no input.
func start(path string, args []string, stdin *os.File, attributes *syscall.SysProcAttr) (*process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	defer func() { _ = null.Close() }()
	if stdin == nil {
		stdin = null
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	p := &process{}
	p.pid, err = syscall.ForkExec(path, append([]string{path}, args...), &syscall.ProcAttr{
		Env: []string{}, Files: []uintptr{stdin.Fd(), w.Fd(), w.Fd()}, Sys: attributes,
	})
	_ = w.Close() // the program has its own
	if err != nil {
		_ = r.Close() // nothing was read
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	p.ended = background.Go(func() {
		defer func() { _ = r.Close() }() // as far as it could be read
		p.output, _ = io.ReadAll(io.LimitReader(r, outputKept))
		_, _ = io.Copy(io.Discard, r)
	})
	return p, nil
}

// wait waits for the program's end and returns its output. An error has the output, too.
func (p *process) wait() (string, error) {
	<-p.ended
	var status syscall.WaitStatus
	var err error
	for {
		if _, err = syscall.Wait4(p.pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	output := strings.TrimSpace(string(p.output))
	switch {
	case err != nil:
		return "", os.NewSyscallError("wait4", err)
	case status.Signaled():
		return "", fmt.Errorf("%s (signal: %s)", output, status.Signal())
	case status.ExitStatus() != 0:
		return "", fmt.Errorf("%s (exit status %d)", output, status.ExitStatus())
	}
	return output, nil
}

// kill kills the program. It must not be called after wait has returned.
func (p *process) kill() { _ = syscall.Kill(p.pid, syscall.SIGKILL) }

// answerLimit limits the wait for programs that may ask a site's directory service.
const answerLimit = 10 * time.Second

// call runs a program to its end and returns its output.
func call(path string, args ...string) (string, error) {
	p, err := start(path, args, nil, nil)
	if err != nil {
		return "", err
	}
	late := time.AfterFunc(answerLimit, p.kill)
	defer late.Stop()
	output, err := p.wait()
	if err != nil {
		return "", fmt.Errorf("%s has failed: %w", path, err)
	}
	return output, nil
}

// find returns the path of a program. The PATH of a job may lack its directory.
func find(name string) (string, bool) {
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, true
		}
	}
	return "", false
}
