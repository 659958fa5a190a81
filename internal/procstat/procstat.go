// Package procstat lists processes, and reads /proc/PID/stat, Linux's one-line status of a process
// (proc_pid_stat(5)), and a process's table of mounts (proc_pid_mountinfo(5)).
package procstat

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// Stat is the line of one process.
type Stat struct {
	ID
	// Name is the name of its program, 15 bytes at most. It may hold anything.
	Name string
	// State is a letter, such as R for a running process and Z for a zombie.
	State           byte
	Parent, Session int
	// User and System are the processor time that it has used, and WaitedUser and WaitedSystem that of the
	// children that it has waited for.
	User, System, WaitedUser, WaitedSystem time.Duration
	// Resident is its memory in bytes. Memory that processes share counts for each of them.
	Resident int64
}

// ID names a process for as long as its host runs: a number comes back after the end of a process, but
// not with the same start.
type ID struct {
	PID int `json:"pid"`
	// Start is the time of its start, in ticks since the host booted.
	Start uint64 `json:"start"`
}

// Ended reports whether the process has ended, though its parent may not have noticed.
func (s Stat) Ended() bool { return s.State == 'Z' || s.State == 'X' }

// Read reads the line of a process. The error wraps fs.ErrNotExist if there is none of that number, or
// if the mount of /proc hides the processes of others.
func Read(pid int) (Stat, error) { return ReadIn("/proc", pid) }

// ReadIn is Read in another /proc, such as that of another PID namespace.
func ReadIn(proc string, pid int) (Stat, error) {
	text, err := smallfile.Read(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if errors.Is(err, unix.ESRCH) { // it ended after the file was opened
		err = fmt.Errorf("read the line of process %d: %w", pid, fs.ErrNotExist)
	}
	if err != nil {
		return Stat{}, err
	}
	s, ok := parse(string(text))
	if !ok {
		return Stat{}, fmt.Errorf("read the line of process %d: %q", pid, text)
	}
	return s, nil
}

// List returns the ids of the processes that a /proc shows, in no order.
func List(proc string) ([]int, error) {
	d, err := os.Open(proc)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Tree returns the lines of a process and of its descendants, parents first, from a /proc. It omits
// processes that it cannot read.
func Tree(proc string, root int) (tree []Stat) {
	if _, err := ReadIn(proc, root); err != nil {
		return nil // without a look at all processes of the host
	}
	pids, err := List(proc)
	if err != nil {
		return nil
	}
	children := map[int][]Stat{}
	for _, pid := range pids {
		s, err := ReadIn(proc, pid)
		if err != nil {
			continue // it has ended
		}
		children[s.Parent] = append(children[s.Parent], s)
		if pid == root {
			tree = append(tree, s)
		}
	}
	// An id that was reused during the call may make a circle, so the number of steps is bounded.
	for i := 0; i < len(tree) && i < len(pids); i++ {
		tree = append(tree, children[tree[i].PID]...)
	}
	return tree
}

// Indexes of the fields after the name; index 0 is the line's third field.
const (
	state        = 0
	parent       = 1
	session      = 3
	user         = 11
	system       = 12
	waitedUser   = 13
	waitedSystem = 14
	start        = 19
	resident     = 21
)

// parse reads a line, and reports whether it is one.
func parse(text string) (Stat, bool) {
	first, rest, _ := strings.Cut(text, " (")
	end := strings.LastIndexByte(rest, ')')
	fields := strings.Fields(rest[end+1:])
	pid, err := strconv.Atoi(first)
	if end < 0 || err != nil || len(fields) <= resident {
		return Stat{}, false
	}
	whole := true
	number := func(i int) int64 {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		whole = whole && err == nil
		return n
	}
	s := Stat{
		ID:           ID{PID: pid, Start: uint64(max(0, number(start)))},
		Name:         rest[:end],
		State:        fields[state][0],
		Parent:       int(number(parent)),
		Session:      int(number(session)),
		User:         ticks(number(user)),
		System:       ticks(number(system)),
		WaitedUser:   ticks(number(waitedUser)),
		WaitedSystem: ticks(number(waitedSystem)),
		Resident:     number(resident) * int64(os.Getpagesize()),
	}
	if !whole {
		return Stat{}, false
	}
	return s, true
}

// ticks converts the unit of the line: 1/100 s on every architecture that Go has (sysconf(3):
// _SC_CLK_TCK).
func ticks(n int64) time.Duration { return time.Duration(n) * 10 * time.Millisecond }
