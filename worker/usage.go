package worker

import (
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/spool"
)

// usage holds the use and the stage of a running attempt. It is safe for concurrent use.
type usage struct {
	mu     sync.Mutex
	status spool.Status
	ended  time.Time
	// idleSince has the first sample of each GPU's samples of 0 % in a row, by bus address.
	idleSince map[string]time.Time
	changed   chan struct{} // holds one entry when the stage has changed
}

func newUsage(token string) *usage {
	return &usage{
		status:  spool.Status{Token: token, Stage: spool.StageStarting},
		changed: make(chan struct{}, 1),
	}
}

func (u *usage) snapshot(now time.Time) spool.Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.status
	s.At = now
	return s
}

func (u *usage) commandBegan(now time.Time, c container.Running) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status.CommandStarted, u.status.Waits = now, ""
	u.status.Container = spool.Container{Runtime: u.status.Ran.Runtime, Name: c.Name, PID: c.PID, Started: c.Started, Network: c.Network}
	u.setStage(spool.StageRunning)
}

// waits notes the reason why the container does not start; "" if there is none any more.
func (u *usage) waits(reason string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status.Waits = reason
	u.setStage(u.status.Stage)
}

func (u *usage) unpackingBegan() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.setStage(spool.StageUnpacking)
}

func (u *usage) copyingBegan() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.setStage(spool.StageCopying)
}

// setStage records a change. The caller holds mu.
func (u *usage) setStage(s spool.Stage) {
	u.status.Stage = s
	select {
	case u.changed <- struct{}{}:
	default:
	}
}

func (u *usage) setRuntime(ran spool.Ran) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status.Ran = ran
	u.status.Stage = spool.StageStarting // also of another runtime, after one that the host refused
}

// setVersion sets the version of a runtime, unless another runtime has been chosen since.
func (u *usage) setVersion(of runtimes.Name, version string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.status.Ran.Runtime == of {
		u.status.Ran.RuntimeVersion = version
	}
}

func (u *usage) containerEnded(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.status.CommandStarted.IsZero() {
		u.ended = now
	}
}

// addSample adds a sample. Peaks and times never shrink, even if a sample is incomplete.
func (u *usage) addSample(s sample) {
	u.mu.Lock()
	defer u.mu.Unlock()
	total := &u.status.Usage
	total.UserSeconds = max(total.UserSeconds, s.cpu.user.Seconds())
	total.SystemSeconds = max(total.SystemSeconds, s.cpu.system.Seconds())
	if s.memory > 0 {
		total.MemoryBytes = s.memory
	}
	total.MemoryPeak = max(total.MemoryPeak, s.memory, s.memoryPeak)
}

func (u *usage) setDisk(bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status.Usage.DiskBytes = bytes
}

func (u *usage) addGPUSample(now time.Time, s gpuSample) {
	u.mu.Lock()
	defer u.mu.Unlock()
	total := &u.status.Usage.GPU
	total.Busy = s.busy
	total.BusyMean = (total.BusyMean*float64(total.Samples) + s.busy) / float64(total.Samples+1)
	total.MemoryBytes = s.memory
	total.MemoryPeak = max(total.MemoryPeak, s.memory)
	total.Samples++
	u.noteIdle(now, s.idle)
}

// noteIdle notes which GPUs a sample shows at 0 %. The caller holds mu.
func (u *usage) noteIdle(now time.Time, idle []string) {
	since := make(map[string]time.Time, len(idle))
	total := &u.status.Usage.GPU
	total.Idle, total.IdleSince = 0, time.Time{}
	for _, bus := range idle {
		began, known := u.idleSince[bus]
		if !known {
			began = now
		}
		since[bus] = began
		if now.Sub(began) < idleAfter {
			continue
		}
		total.Idle++
		if began.After(total.IdleSince) {
			total.IdleSince = began
		}
	}
	u.idleSince = since
}

// forgetIdleGPUs notes that it is not known any more which GPUs work.
func (u *usage) forgetIdleGPUs() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.noteIdle(time.Time{}, nil)
}

func (u *usage) complete(now time.Time, e spool.Exit) spool.Exit {
	u.mu.Lock()
	defer u.mu.Unlock()
	e.Token, e.At = u.status.Token, now
	e.Usage = u.status.Usage
	e.Ran = u.status.Ran
	e.CommandStarted = u.status.CommandStarted
	e.CommandEnded = u.ended
	return e
}

// cpuTime is processor time.
type cpuTime struct{ user, system time.Duration }
