package slurmtest

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Cluster is a Controller with the machine's clock and with processes: its
// jobs' scripts are run, as the user who runs the test. It is safe for
// concurrent use, and ends with the test, its jobs too.
//
// The limits of memory, CPUs and devices are kept in the accounts only: a
// script that takes too much of them is not ended.
type Cluster struct {
	tb     testing.TB
	site   *Site
	dir    string
	listen net.Listener
	served sync.WaitGroup // calls and jobs

	mu       sync.Mutex
	c        *Controller
	faults   Faults
	timer    *time.Timer
	launches map[launchID]*process
	closed   bool
}

type launchID struct {
	job     sbatch.JobID
	restart int
}

// Faults are what can go wrong between a command and the daemons. A controller
// that is away is [Controller.Stop]'s, a database that is, [Database]'s.
type Faults struct {
	// Lost is set while commands are carried out, but what the daemons say
	// of it does not arrive.
	Lost bool
	// Cut is set while the end of what a command prints does not arrive, from
	// the middle of its last line on, though it succeeds.
	Cut bool
	// Late is how much later than usual the answers come.
	Late time.Duration
}

// NewCluster starts a cluster. The test's program has to call [Main] first thing in
// its TestMain, if the commands are to be run as programs.
func NewCluster(tb testing.TB, site *Site) *Cluster {
	tb.Helper()
	dir, err := os.MkdirTemp("", "slurm") //nolint:usetesting // a socket's path is short
	if err != nil {
		tb.Fatal(err)
	}
	k := &Cluster{tb: tb, site: site, dir: dir, c: New(site), launches: map[launchID]*process{}}
	k.timer = time.AfterFunc(time.Hour, func() { k.Do(func(time.Time, *Controller) {}) })
	tb.Cleanup(k.close)
	if err := k.furnish(); err != nil {
		tb.Fatal(err)
	}
	k.served.Go(k.serve)
	return k
}

// Bin is the directory of the commands, as run by the site's first ordinary
// user. Commands in it are links to this test's program.
func (k *Cluster) Bin() string { return filepath.Join(k.dir, "bin") }

// AdminBin is the directory of the commands as run by root.
func (k *Cluster) AdminBin() string { return filepath.Join(k.dir, "sbin") }

// conf is where a job's SLURM_CONF points: to nothing, as nobody reads it.
func (k *Cluster) conf() string { return filepath.Join(k.dir, "slurm.conf") }

// Client returns a client that speaks to the cluster within this process, as
// the site's first ordinary user. What is said and answered is the same as with
// the executables.
func (k *Cluster) Client() *sbatch.Client { return &sbatch.Client{Run: k.Run} }

// Do calls f with the cluster's controller, and the time, and then carries out
// what the controller orders.
func (k *Cluster) Do(f func(now time.Time, c *Controller)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	now := time.Now()
	f(now, k.c)
	for _, o := range k.c.Advance(now) {
		k.carryOut(o)
	}
	if due := k.c.Due(); due.IsZero() {
		k.timer.Stop()
	} else {
		k.timer.Reset(time.Until(due))
	}
}

// SetFaults lets answers go wrong from now on, or well again.
func (k *Cluster) SetFaults(f Faults) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults = f
}

// Run does what a command of Slurm's does, as the method Output of
// command.Command: it is the Run of an [sbatch.Client].
func (k *Cluster) Run(ctx context.Context, c command.Command) ([]byte, error) {
	call := call{Program: filepath.Base(c.Args[0]), Args: c.Args[1:], Env: c.Env, Dir: c.Dir, UID: k.user().UID}
	if call.Dir == "" {
		call.Dir, _ = os.Getwd()
	}
	if c.Stdin != nil {
		in, err := io.ReadAll(c.Stdin)
		if err != nil {
			return nil, &command.Error{Args: c.Args, ExitCode: -1, Err: err}
		}
		call.Stdin = string(in)
	}
	answer, err := k.answer(ctx, call)
	if err != nil {
		return nil, &command.Error{Args: c.Args, ExitCode: -1, Err: exited{-1, err}}
	}
	if answer.Exit != 0 {
		stderr := strings.TrimSpace(answer.Stderr)
		return []byte(answer.Stdout), &command.Error{Args: c.Args, ExitCode: answer.Exit, Stderr: stderr, Err: exited{answer.Exit, nil}}
	}
	return []byte(answer.Stdout), nil
}

// user is the site's first ordinary user.
func (k *Cluster) user() *User {
	for i := range k.site.Users {
		if k.site.Users[i].UID != 0 {
			return &k.site.Users[i]
		}
	}
	return &User{UID: 0, Name: "root"}
}

// answer carries a call out, with the faults that are set.
func (k *Cluster) answer(ctx context.Context, c call) (answer, error) {
	k.mu.Lock()
	faults := k.faults
	k.mu.Unlock()
	a := k.perform(ctx, c)
	switch {
	case faults.Lost:
		a = answer{Stderr: c.timedOut(), Exit: 1}
	case faults.Cut:
		a.Stdout = cut(a.Stdout)
	}
	if faults.Late > 0 {
		late := time.NewTimer(faults.Late)
		defer late.Stop()
		select {
		case <-late.C:
		case <-ctx.Done():
		}
	}
	return a, context.Cause(ctx)
}

func cut(out string) string {
	last := strings.LastIndex(strings.TrimSuffix(out, "\n"), "\n") + 1
	return out[:last+len(out[last:])/2]
}

// close ends the cluster's jobs, and forgets them.
func (k *Cluster) close() {
	k.mu.Lock()
	k.closed = true
	k.timer.Stop()
	for _, p := range k.launches {
		p.kill()
	}
	k.mu.Unlock()
	if k.listen != nil {
		_ = k.listen.Close() // ends serve
	}
	k.served.Wait()
	if err := os.RemoveAll(k.dir); err != nil {
		k.tb.Error(err)
	}
}

// furnish makes the cluster's directory.
func (k *Cluster) furnish() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, d := range []string{k.Bin(), k.AdminBin(), filepath.Join(k.dir, "spool")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	for _, p := range programs {
		for _, d := range []string{k.Bin(), k.AdminBin()} {
			if err := os.Symlink(self, filepath.Join(d, p)); err != nil {
				return err
			}
		}
	}
	k.listen, err = net.Listen("unix", filepath.Join(k.dir, socket)) //nolint:noctx // it lives as long as the cluster
	return err
}

// exited is how the end of a program looks that was none.
type exited struct {
	status int
	cause  error
}

func (e exited) Error() string {
	if e.cause != nil {
		return e.cause.Error()
	}
	return "exit status " + strconv.Itoa(e.status)
}

// Unwrap lets an exec.ExitError be found, as of a program that ran.
func (e exited) Unwrap() []error {
	if e.cause != nil {
		return []error{e.cause, &exec.ExitError{}}
	}
	return []error{&exec.ExitError{}}
}
