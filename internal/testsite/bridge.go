package testsite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// BridgeConfig is the path of the bridge's configuration file.
func (s *Site) BridgeConfig() string { return s.path("bridge.toml") }

// Ledger is the path of the bridge's ledger, an SQLite file.
func (s *Site) Ledger() string { return s.path("ledger.db") }

// StartBridge starts the bridge again after StopBridge or KillBridge.
func (s *Site) StartBridge(ctx context.Context) error {
	server := s.Server
	if s.options.Via != nil {
		server = s.options.Via(server)
	}
	accounts := s.accounts()
	config := fmt.Sprintf("server = %q\nuser = %q\npassword_file = %q\nname = %q\nshared = %q\nledger = %q\n%s\n",
		server, accounts[len(accounts)-1][0], s.path("password"), "site", s.Shared, s.Ledger(), s.options.Config)
	if s.options.SharedDisk {
		config = fmt.Sprintf("server_store = %q\n", s.path("server")) + config
	}
	tables := s.options.Queues
	if tables == "" {
		tables = queues
	}
	if s.options.Image == "" { // it is in a registry of this machine
		registry, _, _ := strings.Cut(s.Image, "/")
		tables += fmt.Sprintf("[image.registry.%q]\n", registry)
	}
	if err := os.WriteFile(s.BridgeConfig(), []byte(config+tables), 0o600); err != nil {
		return err
	}
	s.bridgeLog = len(s.Log())
	s.bridge = s.launch(append([]string{"cl-bridge", "run", "--config", s.BridgeConfig()}, s.options.Flags...)...)
	return s.bridge.waitReady(ctx, func() bool { return strings.Contains(s.bridgesLog(), "msg=started ") })
}

// bridgesLog returns the log lines of the site's programs since the start of the bridge.
func (s *Site) bridgesLog() string {
	log := s.Log()
	return log[min(s.bridgeLog, len(log)):]
}

// StopBridge ends the bridge as an administrator does. Jobs run on. It returns an error if the bridge ended
// without one of its parts: a bridge that is stopped waits for them, and gives them up after a time.
func (s *Site) StopBridge() error {
	err := s.bridge.stop(syscall.SIGTERM)
	for line := range strings.Lines(s.bridgesLog()) {
		if strings.Contains(line, gaveUp) {
			err = errors.Join(err, errors.New("a part of the bridge did not end: "+line))
		}
	}
	return err
}

// gaveUp is the message of a bridge that ends without one of its parts (cmd/internal/assembly).
const gaveUp = "the bridge ends although "

// KillBridge ends the bridge with SIGKILL.
func (s *Site) KillBridge() error { return s.bridge.stop(syscall.SIGKILL) }

// BridgeEnd waits for a bridge to end by itself. It returns the exit code, and the log
// lines of the site's programs since the start of the bridge.
func (s *Site) BridgeEnd(ctx context.Context) (code int, words string, err error) {
	select {
	case <-s.bridge.ended:
	case <-ctx.Done():
		return 0, "", fmt.Errorf("wait for the bridge's end: %w", ctx.Err())
	}
	if s.bridge.cmd.ProcessState == nil {
		return 0, "", errors.Join(errEarly, s.bridge.err)
	}
	return s.bridge.cmd.ProcessState.ExitCode(), s.bridgesLog(), nil
}
