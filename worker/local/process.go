package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// process is a process of this machine.
type process procstat.ID

// alive reports whether the process has not ended. It returns true if it cannot find out, for
// example because this process has too many open files.
func (p process) alive() bool {
	s, err := procstat.Read(p.PID)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return process(s.ID) == p && !s.Ended()
}

// signal sends a signal to the process, and never to a later process with its id. It returns nil if
// the process has ended.
func (p process) signal(sig unix.Signal) error {
	found, err := os.FindProcess(p.PID) // a pidfd from Linux 5.4 on
	if err != nil {
		return fmt.Errorf("find process %d: %w", p.PID, err)
	}
	defer func() { _ = found.Release() }() // it only closes the pidfd
	if !p.alive() {
		return nil
	}
	if err := found.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), p.PID, err)
	}
	return nil
}

// await returns when the process or ctx has ended.
func (p process) await(ctx context.Context) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil { // the process is gone, or Linux is older than 5.10
		p.poll(ctx)
		return
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = f.Close() }() // nothing is written
	if !p.alive() {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, err := f.SyscallConn()
	if err == nil {
		err = conn.Read(ended)
	}
	if err != nil && ctx.Err() == nil {
		p.poll(ctx)
	}
}

// ended reports whether the process of a descriptor has ended (pidfd_open(2)).
func ended(pidfd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// pollEvery is the pause between two checks of a process where Linux does not report its end.
const pollEvery = 50 * time.Millisecond

func (p process) poll(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for p.alive() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// others returns the processes of a job except for its main process p. Each has the job's marker in
// its environment (environ(7)) or, if inSession is set, is in the session of p.
//
// Linux does not reuse the id of p before p was waited for, nor while it is the id of a session. So
// a caller sets inSession if p was alive a moment ago. Otherwise the id may have been reused.
func (p process) others(marker string, inSession bool) ([]process, error) {
	pids, err := procstat.List("/proc")
	if err != nil {
		return nil, err
	}
	if s, err := procstat.Read(p.PID); err == nil && process(s.ID) != p {
		inSession = false // the id was reused
	}
	var found []process
	for _, pid := range pids {
		if pid == p.PID {
			continue
		}
		s, err := procstat.Read(pid)
		if err == nil && !s.Ended() && s.Start >= p.Start {
			var ours bool
			if ours, err = inSession && s.Session == p.PID, nil; !ours {
				ours, err = hasVariable(pid, marker)
			}
			if ours {
				found = append(found, process(s.ID))
			}
		}
		if isShortage(err) {
			return nil, err
		}
	}
	return found, nil
}

// isShortage reports whether a file could not be read because this process or the machine lacks
// resources. Other errors come from processes that end, or that belong to other users.
func isShortage(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// hasVariable reports whether a process was started with a variable of the form NAME=value.
func hasVariable(pid int, variable string) (bool, error) {
	environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(v []byte) bool { return string(v) == variable }), nil
}
