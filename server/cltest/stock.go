package cltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// StockServer returns the address of a server of CodaLab's own to compare with, CLTEST_STOCK in the
// environment; empty if there is none.
func StockServer() string { return os.Getenv("CLTEST_STOCK") }

// Users returns the users of the scripts, by role. In the environment CLTEST_STOCK_USER,
// CLTEST_STOCK_COLLEAGUE and CLTEST_STOCK_ROOT are ann, ben and root, NAME:PASSWORD. By default
// their names are ann, ben and codalab, and their passwords are their names.
func Users() map[string]User {
	users := map[string]User{}
	for role, user := range map[string]string{
		"ann":  cmp.Or(os.Getenv("CLTEST_STOCK_USER"), "ann:ann"),
		"ben":  cmp.Or(os.Getenv("CLTEST_STOCK_COLLEAGUE"), "ben:ben"),
		"root": cmp.Or(os.Getenv("CLTEST_STOCK_ROOT"), "codalab:codalab"),
	} {
		name, password, _ := strings.Cut(user, ":")
		users[role] = User{name, password}
	}
	return users
}

// StockClient returns CodaLab's own cl and cl-worker, and skips the test if there is no cl. The
// environment has
//
//	CLTEST_STOCK_CL      a command that runs cl: CLTEST_STOCK_CL URL USER PASSWORD ARGS...,
//	                     in a home for each URL and user
//	CLTEST_STOCK_WORKER  the same for cl-worker, which needs Docker; without it, StartShellWorker
//	                     takes its place
func StockClient(t *testing.T) Client {
	t.Helper()
	cl, worker := strings.Fields(os.Getenv("CLTEST_STOCK_CL")), strings.Fields(os.Getenv("CLTEST_STOCK_WORKER"))
	if len(cl) == 0 {
		t.Skip("needs CodaLab's own cl, at CLTEST_STOCK_CL")
	}
	return Client{
		Users:    Users(),
		Patience: 3 * time.Minute,
		homes:    &homes{locks: map[string]*sync.RWMutex{}},
		Command: func(ctx context.Context, c Call) *exec.Cmd {
			return exec.CommandContext(ctx, cl[0], append(append(cl[1:len(cl):len(cl)], c.Address, c.User.Name, c.User.Password), c.Args...)...)
		},
		StartWorker: func(ctx context.Context, w WorkerCall) (Worker, error) {
			if len(worker) == 0 {
				return StartShellWorker(ctx, w)
			}
			return startStockWorker(ctx, worker, w)
		},
	}
}

// homes guards the files of homes that plays share, because CodaLab's own cl does not support two
// writers. The keys are addresses and users. Nil guards nothing.
type homes struct {
	mu    sync.Mutex
	locks map[string]*sync.RWMutex
}

// use waits until a command of cl may use a home, and returns a function that ends the use.
func (h *homes) use(key, verb string) (done func()) {
	if h == nil {
		return func() {}
	}
	h.mu.Lock()
	lock, known := h.locks[key]
	if !known {
		lock = &sync.RWMutex{}
		h.locks[key] = lock
	}
	h.mu.Unlock()
	switch verb {
	case "work", "w", "logout", "alias", "config":
		known = false
	}
	if known {
		lock.RLock()
		return lock.RUnlock
	}
	lock.Lock() // it writes into its home
	return lock.Unlock
}

// stockWorker is a cl-worker.
type stockWorker struct{ cmd *exec.Cmd }

func startStockWorker(ctx context.Context, command []string, w WorkerCall) (Worker, error) {
	args := append(command[1:len(command):len(command)], w.Address, w.User.Name, w.User.Password,
		"--id", w.ID, "--work-dir", filepath.Join(w.Dir, "work-"+w.ID), "--network-prefix", "net-"+w.ID)
	cmd := exec.CommandContext(ctx, command[0], append(args, w.Args...)...)
	log, err := os.OpenFile(filepath.Join(w.Dir, "log-"+w.ID), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	return stockWorker{cmd}, errors.Join(cmd.Start(), log.Close())
}

// Pause stops its process.
func (w stockWorker) Pause() error { return w.signal(syscall.SIGSTOP) }

// Resume lets its process go on.
func (w stockWorker) Resume() error { return w.signal(syscall.SIGCONT) }

// Stop ends its process by TERM, or kills it after a minute.
func (w stockWorker) Stop() error {
	defer time.AfterFunc(time.Minute, func() { _ = w.cmd.Process.Kill() }).Stop()
	if err := errors.Join(w.signal(syscall.SIGCONT), w.signal(syscall.SIGTERM)); err != nil {
		return err
	}
	var exit *exec.ExitError
	if err := w.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("end worker: %w", err)
	}
	return nil
}

func (w stockWorker) signal(s syscall.Signal) error {
	if err := w.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal worker: %w", err)
	}
	return nil
}
