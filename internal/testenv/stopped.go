package testenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
)

// AwaitStopped waits until the processes of a job that was suspended, or sent STOP, stand still on this host. A test that
// lets it go on has to wait for that. Slurm says SUSPENDED before its slurmd has heard of it, and a busy slurmd may carry out a
// resume that follows at once before the suspension: the job then stands still for good, and is RUNNING
// (src/slurmd/slurmd/req.c: _rpc_suspend_job replies before it takes the job's lock; src/slurmd/slurmstepd/req.c:
// _handle_resume ignores a step that is not suspended).
func AwaitStopped(tb testing.TB, c slurmcluster.Cluster, job string) {
	tb.Helper()
	Await(tb, "job "+job+" stands still", func() bool {
		pids, err := procstat.List("/proc")
		if err != nil {
			tb.Fatal(err)
		}
		pids = slices.DeleteFunc(pids, func(pid int) bool {
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // the process may have ended
			return !has(environ, "SLURM_JOB_ID="+job) || !has(environ, "SLURM_CONF="+c.Conf)
		})
		return len(pids) > 0 && !slices.ContainsFunc(pids, func(pid int) bool { return !Stopped(pid) })
	})
}

// has reports whether an environment, as /proc shows it, has a variable with a value.
func has(environ []byte, variable string) bool {
	return bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+variable+"\x00"))
}

// Stopped reports whether a process that would otherwise wait is stopped: by a signal (T), or by the freezer (D, and with
// cgroup v2 any state).
func Stopped(pid int) bool {
	s, err := procstat.Read(pid)
	return err == nil && (s.State == 'T' || s.State == 'D' || frozen(pid))
}

// frozen reports whether the freezer of cgroup v2 has stopped a process.
func frozen(pid int) bool {
	cgroups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // the process may have ended
	for line := range strings.Lines(string(cgroups)) {
		if name, v2 := strings.CutPrefix(strings.TrimSpace(line), "0::"); v2 {
			events, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", name, "cgroup.events"))
			return strings.Contains(string(events), "frozen 1")
		}
	}
	return false
}
