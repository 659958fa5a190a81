// Package procstat reads /proc/PID/stat, Linux's one-line status of a process (proc_pid_stat(5)).
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
func Read(pid int) (Stat, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, unix.ESRCH) { // it ended after the file was opened
		err = fmt.Errorf("read the line of process %d: %w", pid, fs.ErrNotExist)
	}
	if err != nil {
		return Stat{}, err
	}
	s, ok := Parse(string(text))
	if !ok {
		return Stat{}, fmt.Errorf("read the line of process %d: %q", pid, text)
	}
	return s, nil
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

// Parse reads a line, and reports whether it is one.
func Parse(text string) (Stat, bool) {
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
