package testenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Docker is a Docker engine for the tests of a process. It admits researcher, and has no network but
// the host's. The first test that needs it starts it, and TestMain stops it. The zero value is
// usable.
//
// If the environment variable CLTEST_DOCKER_HOST has the address of another engine, such as
// unix:///run/docker.sock, the tests use that one.
type Docker struct {
	// In, if not nil, is the namespace of this engine, in which it makes Docker's usual network. The tests then
	// use this engine in any case.
	In *NetNS
	// Settings is the engine's configuration, as JSON; empty for none. It does not hold for another engine.
	Settings string

	once sync.Once
	err  error
	host string
	dir  string
	stop func()
}

// dockerd is the path of the daemon in Debian's package.
const dockerd = "/usr/sbin/dockerd"

// Host returns the engine's address, as DOCKER_HOST has it, and the path of the client.
func (d *Docker) Host(tb testing.TB) (host, client string) {
	tb.Helper()
	need(tb, docker, nil)
	client, err := exec.LookPath("docker")
	need(tb, docker, err)
	if host := os.Getenv("CLTEST_DOCKER_HOST"); host != "" && d.In == nil {
		return host, client
	}
	d.once.Do(func() { d.err = d.start(client) })
	need(tb, docker, d.err)
	return d.host, client
}

func (d *Docker) start(client string) error {
	if os.Geteuid() != 0 {
		return errors.New("only root starts dockerd")
	}
	if _, err := os.Stat(dockerd); err != nil {
		return err
	}
	var err error
	if d.dir, err = os.MkdirTemp("", "docker-"); err != nil { // sockets have short paths
		return err
	}
	at := func(name string) string { return filepath.Join(d.dir, name) }
	if err := errors.Join(os.Chmod(d.dir, 0o711), os.WriteFile(at("settings"), []byte(cmp.Or(d.Settings, "{}")), 0o600)); err != nil {
		return err
	}
	log, err := os.Create(at("log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	d.host = "unix://" + at("socket")
	args := []string{
		"--config-file", at("settings"), "--group", researcher,
		"--data-root", at("root"), "--exec-root", at("exec"), "--pidfile", at("pid"), "--host", d.host,
	}
	if d.In == nil {
		// Without a bridge, Docker cannot find out by itself which address host-gateway is.
		args = append(args, "--iptables=false", "--ip6tables=false", "--ip-masq=false", "--bridge=none", "--host-gateway-ip=127.0.0.1")
	}
	daemon := exec.Command(dockerd, args...)
	daemon.Stdout, daemon.Stderr, daemon.Dir = log, log, "/"
	daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	ended := onOwnThread(func() { // it returns with the daemon, which gets the signal when the thread ends
		var err error
		if d.In != nil {
			err = d.In.enter()
		}
		if err == nil {
			err = daemon.Start()
		}
		started <- err
		if err == nil {
			_ = daemon.Wait() // Remove ends it
		}
	})
	if err := <-started; err != nil {
		return err
	}
	d.stop = func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = daemon.Process.Kill()
			<-ended
		}
	}
	return d.await(client, ended, at("log"))
}

// await waits until the daemon answers.
func (d *Docker) await(client string, ended <-chan struct{}, log string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ping := exec.CommandContext(ctx, client, "version")
		ping.Env = []string{"DOCKER_HOST=" + d.host}
		if ping.Run() == nil {
			return nil
		}
		var why error
		select {
		case <-tick.C:
			continue
		case <-ended:
			why = errors.New("it ended")
		case <-ctx.Done():
			why = ctx.Err()
		}
		said, _ := os.ReadFile(log)
		return fmt.Errorf("start dockerd: %w: %s", why, said[max(0, len(said)-2000):])
	}
}

// Remove stops the engine, if a test has started it, and removes its files.
func (d *Docker) Remove() error {
	if d.stop != nil {
		d.stop()
	}
	if d.dir == "" {
		return nil
	}
	_ = syscall.Unmount(filepath.Join(d.dir, "exec/netns/default"), syscall.MNT_DETACH) // a container with the host's network leaves this mount
	return os.RemoveAll(d.dir)
}
