package container

import "github.com/cl-slurm/cl-slurm/internal/procstat"

// Running is a container whose command is running.
type Running struct {
	// PID is the id, as this process sees it, of an ancestor of every process in the container, or
	// 0 if an engine does not tell it. Started is the start time of that process, which
	// distinguishes it from a later one with the same id.
	PID     int
	Started uint64
	// Name is the container's name in its engine; empty for other runtimes.
	Name string
	// Network is set if the container has the host's network.
	Network bool
}

// RunningAs returns the Running of the container with this first process.
func (c Container) RunningAs(pid int, name string) Running {
	return Running{PID: pid, Started: ProcessStart(pid), Name: name, Network: c.Network == HostNetwork}
}

// ProcessStart returns the start time of a process, in ticks since the host's boot, or 0 if there
// is no such process.
func ProcessStart(pid int) uint64 {
	p, err := procstat.Read(pid)
	if err != nil {
		return 0
	}
	return p.Start
}
