package slurmtest

import (
	"fmt"
	"strings"
	"syscall"
)

// Version is a release of Slurm. Each constant is a release whose messages or behaviour differ from the one
// before.
type Version string

// The versions that the suite of package sbatch runs on. The zero Version is Slurm2205.
const (
	Slurm2205 Version = "22.05"
	Slurm2411 Version = "24.11"
	Slurm2605 Version = "26.05"
)

// Versions returns all versions, oldest first.
func Versions() []Version { return []Version{Slurm2205, Slurm2411, Slurm2605} }

// VersionOf returns the newest version that is not newer than the output of a command with --version, such as
// "slurm-wlm 24.11.5".
func VersionOf(output string) Version {
	number := output[strings.LastIndexByte(output, ' ')+1:]
	found := Slurm2205
	for _, v := range Versions() {
		if string(v) <= number { // years and months have two digits
			found = v
		}
	}
	return found
}

// Since reports whether the version is that one or a newer one.
func (v Version) Since(other Version) bool { return v >= other }

// signalled returns the reason of a job whose batch script a signal ended.
func (v Version) signalled(signal int) string {
	const realTime = 34 // signal(7): the first one for programs
	name := syscall.Signal(signal).String()
	switch {
	case !v.Since(Slurm2411):
		return "JobLaunchFailure" // for every signal
	case signal >= realTime:
		name = fmt.Sprintf("Real-time signal %d", signal-realTime)
	}
	return fmt.Sprintf("RaisedSignal:%d(%s)", signal, strings.ToUpper(name[:1])+name[1:])
}

// unavailable returns the reason of a job that can only run on these nodes, which are down or drained.
func (v Version) unavailable(nodes string) string {
	if v.Since(Slurm2411) {
		return "ReqNodeNotAvail, May be reserved for other job"
	}
	return "ReqNodeNotAvail, UnavailableNodes:" + nodes
}

// refusesCPUs reports whether slurmctld refuses a submission with more CPUs than a node has. If it does not,
// the job waits forever.
func (v Version) refusesCPUs() bool { return v == Slurm2411 }

// keepsEnd reports whether the database keeps the end of a job that is requeued after its end.
func (v Version) keepsEnd() bool { return v.Since(Slurm2605) }
