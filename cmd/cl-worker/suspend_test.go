package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

// A command with this time limit is suspended for so long; a worker that counts suspended time
// stops it only after the limit.
const (
	suspendLimit = 3 * time.Second
	suspendFor   = 2200 * time.Millisecond
)

func prepareSuspended(t *testing.T) *execution {
	t.Helper()
	return prepare(t, "echo ready > began; sleep 1000", func(_ string, s *spool.Spec) { s.Seconds = suspendLimit.Seconds() })
}

// checkSuspended checks that the command was stopped for its limit, and that half of its suspension and
// more does not count: a worker notices it after up to a second.
func (x *execution) checkSuspended(exit spool.Exit) {
	x.t.Helper()
	told, named := strings.CutPrefix(exit.Failure, "Time limit exceeded. (Container uptime ")
	told, _, _ = strings.Cut(told, " ")
	uptime, err := time.ParseDuration(told)
	if exit.Cause != spool.CauseLimit || !named || err != nil || uptime < suspendLimit {
		x.t.Fatalf("%+v", exit)
	}
	if lived := exit.CommandEnded.Sub(exit.CommandStarted); lived-uptime < suspendFor/2 {
		x.t.Errorf("%v of %v count, with a suspension of %v", uptime, lived, suspendFor)
	}
}

func TestSuspendedTimeDoesNotCount(t *testing.T) {
	t.Parallel()
	x := prepareSuspended(t).start()
	x.awaitCommand()
	must(t, x.cmd.Process.Signal(syscall.SIGSTOP))
	time.Sleep(suspendFor)
	must(t, x.cmd.Process.Signal(syscall.SIGCONT))
	_, exit := x.wait()
	x.checkSuspended(exit)
}

func TestTimeInWhichSlurmSuspendsAJobDoesNotCount(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	x := prepareSuspended(t)
	job := x.allocate("--mem=120M")
	x.awaitCommand()
	x.control("suspend", job)
	testenv.AwaitStopped(t, testenv.Slurm(t), job)
	time.Sleep(suspendFor)
	x.control("resume", job)
	x.checkSuspended(x.recorded(job))
}

// control runs scontrol as the cluster's administrator: no other user may suspend a job.
func (x *execution) control(args ...string) {
	x.t.Helper()
	cluster := testenv.Slurm(x.t)
	cmd := exec.Command(filepath.Join(cluster.Bin, "scontrol"), args...)
	cmd.Env = []string{"SLURM_CONF=" + cluster.Conf}
	if out, err := cmd.CombinedOutput(); err != nil {
		x.t.Fatalf("scontrol %q: %v: %s", args, err, out)
	}
}
