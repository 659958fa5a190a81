package apptainer

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// nicely runs f, and the programs that it starts, with Nice added to the nice value,
// and waits for its end. What f starts in other goroutines is not lowered.
//
// On Linux a nice value is a thread's own, and its children take it over
// (setpriority(2), "C library/kernel differences"); Go's runtime makes no thread
// from a locked one (runtime/proc.go: newm). So f has a thread of its own, which
// ends with it.
func (c Converter) nicely(f func()) {
	if c.Nice == 0 {
		f()
		return
	}
	begun, done := make(chan struct{}), make(chan struct{})
	var run func()
	run = func() {
		runtime.LockOSThread() // for good, so that the thread is nobody else's after it
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end. Nobody else gets it until another has begun.
			defer runtime.UnlockOSThread()
			go run()
			<-begun
			return
		}
		close(begun)
		defer close(done)
		if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil { // 20 less the nice value
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 20-now+c.Nice) // at most 19; where it is refused, it is not that important
		}
		f()
	}
	go run()
	<-done
}
