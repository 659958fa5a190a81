package container

import "github.com/cl-slurm/cl-slurm/internal/procstat"

// Running is a container whose command runs.
type Running struct {
	// PID is the process id, as this process sees it, of an ancestor of every process in the
	// container; 0 where an engine does not give it. Started is when that process began, which tells
	// it from a later one with the same id.
	PID     int
	Started uint64
	// Name is the container's name in its engine; empty for other runtimes.
	Name string
	// Network is set if the container was given the host's network.
	Network bool
}

// RunningAs is the container with this first process.
func (c Container) RunningAs(pid int, name string) Running {
	return Running{PID: pid, Started: ProcessStart(pid), Name: name, Network: c.Network}
}

// ProcessStart returns when a process began, in ticks since the host's start; 0 if there is no such
// process.
func ProcessStart(pid int) uint64 {
	p, err := procstat.Read(pid)
	if err != nil {
		return 0
	}
	return p.Start
}
