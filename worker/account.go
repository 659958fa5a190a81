package worker

import (
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/spool"
)

// account is what is known of a run while it goes on. It is safe for
// concurrent use.
type account struct {
	mu      sync.Mutex
	status  spool.Status
	ended   time.Time
	changed chan struct{} // holds one entry when the stage has changed
}

func newAccount(token string) *account {
	return &account{
		status:  spool.Status{Token: token, Stage: spool.StageStarting},
		changed: make(chan struct{}, 1),
	}
}

// snapshot is the status as of now.
func (a *account) snapshot(now time.Time) spool.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.status
	s.At = now
	return s
}

// start says that the command has begun.
func (a *account) start(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Stage = spool.StageRunning
	a.status.CommandStarted = now
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// choose says by which way the container is run.
func (a *account) choose(ran spool.Ran) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Ran = ran
}

// copying says that the working directory is being copied.
func (a *account) copying() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Stage = spool.StageCopying
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// end says that the container has ended.
func (a *account) end(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.status.CommandStarted.IsZero() {
		a.ended = now
	}
}

// use takes a sample in. What was used only grows, whatever a sample misses.
func (a *account) use(s sample) {
	a.spend(s.cpu)
	a.mu.Lock()
	defer a.mu.Unlock()
	u := &a.status.Usage
	if s.memory > 0 {
		u.MemoryBytes = s.memory
	}
	u.MemoryPeak = max(u.MemoryPeak, s.memory, s.memoryPeak)
}

// spend takes processor time in.
func (a *account) spend(c cpuTime) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := &a.status.Usage
	u.UserSeconds = max(u.UserSeconds, c.user.Seconds())
	u.SystemSeconds = max(u.SystemSeconds, c.system.Seconds())
	u.MemoryPeak = max(u.MemoryPeak, c.largest)
}

// occupy takes in what the working directory holds.
func (a *account) occupy(bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Usage.DiskBytes = bytes
}

// useGPUs takes in what the GPUs were seen to do.
func (a *account) useGPUs(s gpuSample) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := &a.status.Usage.GPU
	u.Busy = s.busy
	u.BusyMean = (u.BusyMean*float64(u.Samples) + s.busy) / float64(u.Samples+1)
	u.MemoryBytes = s.memory
	u.MemoryPeak = max(u.MemoryPeak, s.memory)
	u.Samples++
}

// exit completes an exit record.
func (a *account) exit(e spool.Exit) spool.Exit {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.Token = a.status.Token
	e.Usage = a.status.Usage
	e.Ran = a.status.Ran
	e.CommandStarted = a.status.CommandStarted
	e.CommandEnded = a.ended
	return e
}

// cpuTime is processor time, and of the processes that took it the memory of
// the largest, where that is known.
type cpuTime struct {
	user, system time.Duration
	largest      int64
}

func (c cpuTime) minus(other cpuTime) cpuTime {
	return cpuTime{user: c.user - other.user, system: c.system - other.system, largest: c.largest}
}

// childrenCPU is what the ended children of this process took, with all that
// they have waited for: whole containers, since their first processes wait for
// the rest.
func childrenCPU() cpuTime {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return cpuTime{}
	}
	return cpuTime{
		user:    time.Duration(u.Utime.Nano()),
		system:  time.Duration(u.Stime.Nano()),
		largest: u.Maxrss * 1024, // getrusage(2): kilobytes
	}
}
