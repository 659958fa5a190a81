package apptainer

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// nicely calls f with Nice added to the nice value of f and of the programs that f starts, and
// returns after f. Goroutines that f starts are not affected.
//
// On Linux each thread has its own nice value, which its children inherit
// (setpriority(2), "C library/kernel differences"). Go's runtime starts no threads
// from a locked one (runtime/proc.go: newm). So f gets a thread of its own, which
// ends when f returns.
func (c Converter) nicely(f func()) {
	if c.Nice == 0 {
		f()
		return
	}
	var calls sync.WaitGroup
	onThread := make(chan struct{})
	var call func()
	call = func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with its goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end. It stays locked until another thread runs f.
			defer runtime.UnlockOSThread()
			calls.Go(call)
			<-onThread
			return
		}
		close(onThread)
		if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil { // 20 less the nice value
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 20-now+c.Nice) // at most 19; f runs even if this fails
		}
		f()
	}
	calls.Go(call)
	calls.Wait()
}
