package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Moto is a moto_server for the tests of a process: the double of AWS that comes with its Python library moto. Its jobs
// are containers of Docker, with the host's network. The first test that needs it starts both, and TestMain stops them.
type Moto struct {
	Docker Docker

	once sync.Once
	err  error
	url  string
	log  string
	cmd  *exec.Cmd
}

// URL returns its address.
func (m *Moto) URL(tb testing.TB) string {
	tb.Helper()
	program, err := exec.LookPath("moto_server")
	need(tb, moto, err)
	host, _ := m.Docker.Host(tb)
	m.once.Do(func() { m.err = m.start(program, host) })
	need(tb, moto, m.err)
	return m.url
}

func (m *Moto) start(program, docker string) error {
	log, err := os.CreateTemp("", "moto-")
	if err != nil {
		return err
	}
	m.log = log.Name()
	defer func() { _ = log.Close() }()
	port, err := freePort()
	if err != nil {
		return err
	}
	m.url = "http://127.0.0.1:" + port
	m.cmd = exec.Command(program, "-H", "127.0.0.1", "-p", port)
	m.cmd.Env = append(os.Environ(), "DOCKER_HOST="+docker, "MOTO_DOCKER_NETWORK_MODE=host")
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("start moto_server: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), WaitLimit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/moto-api/data.json", nil)
		if err != nil {
			return fmt.Errorf("ask moto_server: %w", err)
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			_ = answer.Body.Close()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			said, _ := os.ReadFile(m.log)
			return fmt.Errorf("start moto_server: %w: %s", ctx.Err(), said)
		}
	}
}

// freePort returns a port on which nobody listens now.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}

// Remove stops it, if a test has started it.
func (m *Moto) Remove() error {
	if m.cmd != nil && m.cmd.Process != nil {
		_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL)
		_ = m.cmd.Wait()
	}
	return errors.Join(m.Docker.Remove(), os.RemoveAll(m.log))
}
