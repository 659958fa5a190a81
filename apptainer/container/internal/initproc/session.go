package initproc

import (
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// AdoptOrphans makes a plain init the parent of its children's orphans.
func (p *Process) AdoptOrphans() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// sessionGrace is the time for processes of a plain init's session to end by themselves after its
// program has ended.
const sessionGrace = 20 * time.Millisecond

// endSession is killAll for a plain init. The remaining processes are its children, because it
// adopts orphans. Usually there are none.
func (p *Process) endSession() {
	kill := time.NewTimer(sessionGrace)
	defer kill.Stop()
	for {
		select {
		case _, ok := <-p.Deaths:
			if !ok {
				return
			}
		case <-kill.C:
			killSession(os.Getpid())
		}
	}
}

// sessionProcesses lists the processes of a session except for its leader.
func sessionProcesses(session int) []int {
	pids, err := procstat.List("/proc")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		p, err := procstat.Read(pid)
		return err != nil || pid == session || p.Ended() || p.Session != session
	})
}

// killSession kills the processes of a session except for its leader, and the processes that they
// start during the call.
func killSession(session int) {
	for range 100 {
		pids := sessionProcesses(session)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
