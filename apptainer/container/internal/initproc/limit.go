package initproc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// From Linux 5.14 on, RLIMIT_NPROC counts the processes and threads of a user in one user namespace and in those
// below it (Linux kernel/ucount.c: is_rlimit_overlimit). Before, it counted those of a user on the whole machine,
// so that other runs would use up the limit. The kernel never bounds root of the machine (kernel/fork.c: copy_process).
const countedMajor, countedMinor = 5, 14

// countsApart reports whether this kernel counts the processes of a user namespace apart from the user's others.
func countsApart() bool { return releaseCountsApart(kernelRelease()) }

// kernelRelease returns the release of this kernel, or "" if it is unknown.
func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// CheckProcesses returns an error if this host cannot bound the processes of a container that has no engine, and
// MaxProcesses therefore has no effect.
func CheckProcesses() error {
	ids, err := os.ReadFile("/proc/self/uid_map")
	return checkProcesses(kernelRelease(), os.Getuid(), string(ids), err)
}

// checkProcesses is CheckProcesses for a kernel's release, and for a user in a user namespace with these ids.
func checkProcesses(release string, uid int, ids string, err error) error {
	if !releaseCountsApart(release) {
		return container.HostErrorf("this node has Linux %s, which counts the processes of a user on the whole node: max_processes needs Linux %d.%d", release, countedMajor, countedMinor)
	}
	if outside := strings.Fields(ids); uid == 0 && (err != nil || len(outside) < 2 || outside[1] == "0") {
		return container.HostErrorf("the worker is root of this node, whose processes Linux does not count: max_processes needs another user")
	}
	return nil
}

func releaseCountsApart(release string) bool {
	major, rest, _ := strings.Cut(release, ".")
	minor := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	x, errX := strconv.Atoi(major)
	y, errY := strconv.Atoi(minor)
	return errX == nil && errY == nil && (x > countedMajor || x == countedMajor && y >= countedMinor)
}

const (
	// ProcessesAround is the number of processes and threads that a container may have in addition to its
	// MaxProcesses: those of the programs that set it up, such as squashfuse, bubblewrap and Apptainer.
	ProcessesAround = 64
	// initProcesses is added to that for this program alone. Go ends a program that cannot start a thread, and
	// a command that has used up its processes must not end its init.
	initProcesses = 64
)

// StartBounded is Start for the program that sets the container up, with MaxProcesses. The program and all that it
// starts have at most so many processes and threads, and ProcessesAround.
//
// With nested, the program starts in a user namespace of its own, which has the ids of this one. The kernel counts a
// user namespace's processes of all users in the namespace above, for the user who made it (Linux
// kernel/user_namespace.c: create_user_ns). So a command cannot get further processes as another user, and cannot raise
// its limit. Before Linux 5.16 each user of the container has a limit of their own.
//
// It is not for a process with a Frame.
func (p *Process) StartBounded(args []string, attr *syscall.ProcAttr, nested bool) (pid int, err error) {
	if p.Frame() != nil { // the kept back heap would be missing in a new user namespace: firstproc.KeepBack
		return 0, fmt.Errorf("start %s: this process starts programs by StartFirst", args[0])
	}
	return p.bounded(nested, func(uids, gids []syscall.SysProcIDMap) (int, error) {
		if len(uids) == 0 {
			return p.Start(args, attr)
		}
		inside := *attr
		inside.Sys = nestedNamespace(attr.Sys, uids, gids)
		return p.Start(args, &inside)
	})
}

// bounded makes start bound the processes of a program; see StartBounded. The ids are those of a user namespace in which start has
// to start it; none means no such namespace.
func (p *Process) bounded(nested bool, start func(uids, gids []syscall.SysProcIDMap) (int, error)) (pid int, err error) {
	if p.MaxProcesses <= 0 || p.Plain || !countsApart() {
		return start(nil, nil)
	}
	raise, err := lowerLimit(p.MaxProcesses + ProcessesAround)
	if err != nil {
		return 0, err
	}
	defer raise()
	if nested {
		uids, errUIDs := sameIDs("uid_map")
		gids, errGIDs := sameIDs("gid_map")
		if errors.Join(errUIDs, errGIDs) == nil {
			if pid, err = start(uids, gids); err == nil {
				return pid, nil
			}
		}
		// Otherwise the site bounds user namespaces (user_namespaces(7): max_user_namespaces): each id is counted
		// apart.
	}
	return start(nil, nil)
}

// raiseOwnLimit gives this process all the processes that its user may have. They bound the user's containers
// together: a container that has used up its MaxProcesses must leave some to this process and to the others.
func raiseOwnLimit() {
	var l unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_NPROC, nil, &l) == nil && l.Cur < l.Max {
		_ = unix.Prlimit(0, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: l.Max, Max: l.Max}, nil) // it goes on with fewer
	}
}

// lowerLimit limits the processes of the children that this process starts until raise is called. This process
// itself and later children may have initProcesses more.
func lowerLimit(most int64) (raise func(), err error) {
	var old unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, nil, &old); err != nil {
		return nil, fmt.Errorf("limit its processes: %w", err)
	}
	hard := min(old.Max, uint64(most+initProcesses)) //nolint:gosec // it is positive
	soft := min(old.Cur, uint64(most))               //nolint:gosec // as above
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: min(soft, hard), Max: hard}, nil); err != nil {
		return nil, fmt.Errorf("limit its processes: %w", err)
	}
	return func() {
		_ = unix.Prlimit(0, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: hard, Max: hard}, nil) // without it, only this process has less
	}, nil
}

// nestedNamespace adds a user namespace with these ids to the attributes of a child.
func nestedNamespace(given *syscall.SysProcAttr, uids, gids []syscall.SysProcIDMap) *syscall.SysProcAttr {
	sys := &syscall.SysProcAttr{}
	if given != nil {
		*sys = *given
	}
	sys.Cloneflags |= syscall.CLONE_NEWUSER
	sys.UidMappings, sys.GidMappings = uids, gids
	groups, err := os.ReadFile("/proc/self/setgroups")
	sys.GidMappingsEnableSetgroups = err == nil && strings.TrimSpace(string(groups)) == "allow"
	return sys
}

// sameIDs returns a map of all ids of this namespace to themselves (user_namespaces(7)).
func sameIDs(file string) (same []syscall.SysProcIDMap, err error) {
	text, err := smallfile.Read("/proc/self/" + file)
	if err != nil {
		return nil, fmt.Errorf("read the ids of its namespace: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, count int
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return nil, fmt.Errorf("read the ids of its namespace: %w", err)
		}
		same = append(same, syscall.SysProcIDMap{ContainerID: inside, HostID: inside, Size: count})
	}
	return same, nil
}

// BoundCommand makes start, which starts the command of a container, bound its processes. most is the MaxProcesses of
// a container whose program was started with StartBounded, or 0.
func BoundCommand(most int64, start func() (int, error)) (pid int, err error) {
	if most <= 0 || !countsApart() {
		return start()
	}
	raise, err := lowerLimit(most + ProcessesAround)
	if err != nil {
		return 0, err
	}
	defer raise()
	return start()
}

// EnsureThreads makes Go start threads for later. Go ends a program that cannot start a thread when it needs one,
// and the kernel refuses new ones to a container that has used up its processes.
func EnsureThreads() {
	const spare = 8
	var begun, all sync.WaitGroup
	begun.Add(spare)
	for range spare {
		all.Go(func() {
			runtime.LockOSThread() // each needs a thread of its own
			defer runtime.UnlockOSThread()
			begun.Done()
			begun.Wait()
		})
	}
	all.Wait()
}
