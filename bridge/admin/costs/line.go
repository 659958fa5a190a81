package costs

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// The sources of a line's times.
const (
	// FromSlurm: Slurm's accounting database knows the job.
	FromSlurm = "sacct"
	// FromBridge: only the bridge knows it.
	FromBridge = "bridge"
)

// Line is the cost of one job.
type Line struct {
	Bundle  string       `json:"bundle"`
	Attempt int          `json:"attempt"`
	User    string       `json:"user"`
	Group   string       `json:"group"`
	Queue   string       `json:"queue"`
	Job     sbatch.JobID `json:"job"`
	Node    string       `json:"node"`
	Cause   spool.Cause  `json:"cause"`

	Submitted time.Time `json:"submitted"`
	Start     time.Time `json:"start"`
	End       time.Time `json:"end"`
	// StagingSeconds is the time until the inputs were ready, in the line of the first attempt. QueuedSeconds is the
	// time from sbatch to the start of the job, and ElapsedSeconds the time for which the job had its resources.
	StagingSeconds float64 `json:"staging_seconds"`
	QueuedSeconds  float64 `json:"queued_seconds"`
	ElapsedSeconds float64 `json:"elapsed_seconds"`
	// Source is the source of Start, End, ElapsedSeconds, CPUs and GPUs.
	Source string `json:"source"`

	CPUs       int64   `json:"cpus"`
	GPUs       int64   `json:"gpus"`
	CPUHours   float64 `json:"cpu_hours"`
	GPUHours   float64 `json:"gpu_hours"`
	CPUSeconds float64 `json:"cpu_seconds"`
	// CPUEfficiency is the share of the allocated processor time that the job used, and MemoryEfficiency the share of
	// the requested memory that it used at most; nil if the bundle requested no memory.
	CPUEfficiency    float64  `json:"cpu_efficiency"`
	MemoryBytes      int64    `json:"memory_bytes"`
	MemoryPeakBytes  int64    `json:"memory_peak_bytes"`
	MemoryEfficiency *float64 `json:"memory_efficiency"`
	// GPUUse is the mean share of the time in which the GPUs worked; nil if it was not measured.
	GPUUse             *float64 `json:"gpu_use"`
	GPUMemoryPeakBytes int64    `json:"gpu_memory_peak_bytes"`
	// EnergyJoules is nil if Slurm does not measure the energy.
	EnergyJoules *int64 `json:"energy_joules"`
}

// Names tells the names that a report shows. A missing name is shown as the id.
type Names struct {
	// Users has the names of users by their ids.
	Users map[string]string
	// Groups has the group that each queue serves; none for a queue of all users.
	Groups map[string]string
}

// newLine returns the line of a charge that Slurm knows as these allocations; none if it does not know it.
func newLine(c ledger.Charge, known []sbatch.Charge, names Names) Line {
	l := Line{
		Bundle: c.Bundle, Attempt: c.Attempt, User: c.OwnerName, Group: cmp.Or(names.Groups[c.Queue], strings.Join(c.OwnerGroups, " ")), Queue: c.Queue, Job: c.Job, Node: c.Node, Cause: c.Cause,
		Submitted: c.Submitted, Start: c.Started, End: c.Ended, StagingSeconds: c.Staging.Seconds(),
		Source: FromBridge, CPUs: c.CPUs, GPUs: c.GPUs,
		CPUSeconds: c.CPUTime.Seconds(), MemoryBytes: c.MemoryBytes, MemoryPeakBytes: c.MemoryPeak, GPUMemoryPeakBytes: c.GPUMemoryPeak,
	}
	if l.User == "" {
		l.User = c.Owner
		if name := names.Users[c.Owner]; name != "" {
			l.User = name
		}
	}
	elapsed := max(0, c.Ended.Sub(c.Started))
	if len(known) > 0 {
		first, last := known[0], known[len(known)-1]
		l.Source, l.Start, l.End, l.CPUs, l.GPUs = FromSlurm, first.Start.UTC(), last.End.UTC(), last.CPUs, last.GPUs
		elapsed = 0
		var energy int64
		for _, k := range known {
			elapsed += k.Elapsed
			energy += k.EnergyJoules
		}
		if energy > 0 {
			l.EnergyJoules = &energy
		}
	}
	l.QueuedSeconds, l.ElapsedSeconds = max(0, l.Start.Sub(c.Submitted)).Seconds(), elapsed.Seconds()
	l.CPUHours, l.GPUHours = elapsed.Hours()*float64(l.CPUs), elapsed.Hours()*float64(l.GPUs)
	l.CPUEfficiency = share(l.CPUSeconds, l.CPUHours*3600)
	if c.MemoryBytes > 0 {
		efficiency := share(float64(c.MemoryPeak), float64(c.MemoryBytes))
		l.MemoryEfficiency = &efficiency
	}
	if c.GPUBusy >= 0 {
		busy := c.GPUBusy
		l.GPUUse = &busy
	}
	return l
}

// share returns the quotient, between 0 and 1.
func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return max(0, min(1, part/whole))
}

// allocations finds the allocations of jobs.
type allocations map[sbatch.JobID][]sbatch.Charge

func newAllocations(all []sbatch.Charge) allocations {
	found := allocations{}
	for _, c := range all {
		found[c.ID] = append(found[c.ID], c)
	}
	return found
}

// of returns the allocations of a charge's job, oldest first.
func (a allocations) of(c ledger.Charge) []sbatch.Charge {
	var own []sbatch.Charge
	for _, k := range a[c.Job] {
		if c.Has(k) {
			own = append(own, k)
		}
	}
	slices.SortFunc(own, func(x, y sbatch.Charge) int { return x.Start.Compare(y.Start) })
	return own
}
