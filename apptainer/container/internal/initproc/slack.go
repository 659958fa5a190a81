package initproc

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// keeperSlack is the time by which the timers of a keeper may be late.
const keeperSlack = time.Millisecond

// slackenTimers makes the timers of this process's threads, and of those that they start, less exact (proc_pid_timerslack_ns(5)). It
// returns the slack that the calling thread had, for restoreTimers, or 0 if it has changed nothing: the kernel knows no slack of a real-time
// thread.
//
// While anything runs, a thread of Go's runtime looks every 20 µs for system calls that take long (runtime/proc.go: sysmon). It does so
// for longer than a small command runs, and each look takes about as long on a virtual machine. A keeper does one thing at a time, and
// can do with fewer looks.
func slackenTimers() (had int) {
	had, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || had == 0 {
		return 0
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0
	}
	text := strconv.FormatInt(keeperSlack.Nanoseconds(), 10)
	for _, t := range threads {
		_ = os.WriteFile("/proc/"+t.Name()+"/timerslack_ns", []byte(text), 0) // it goes on with exact timers
	}
	return had
}

// restoreTimers gives the calling thread, and the processes that it starts, exact timers again.
func restoreTimers(slack int) {
	if slack > 0 { // 0 would mean that of the thread that has started this one
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) // it takes every number
	}
}
