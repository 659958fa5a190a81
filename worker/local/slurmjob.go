package local

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/cl-slurm/cl-slurm/worker"
)

// InAllocation returns the part of a host that belongs to the Slurm job around the worker, for sites where
// Slurm does not confine jobs (slurm.conf(5): TaskPlugin; cgroup.conf(5): ConstrainDevices). The variables
// are those of sbatch(1), OUTPUT ENVIRONMENT VARIABLES. The GPUs that --gpuset lists by name count as the
// job's.
func (m Machine) InAllocation(getenv func(string) string, gpuset string) (Machine, error) {
	job := getenv("SLURM_JOB_ID")
	if job == "" {
		return m, nil
	}
	if n := number(getenv("SLURM_CPUS_ON_NODE")); n > 0 && n < int64(len(m.CPUs)) {
		m.CPUs, m.Unbound = m.CPUs[:n], true // Slurm does not say which ones
	}
	const mib = 1 << 20
	memory := number(getenv("SLURM_MEM_PER_NODE")) * mib
	if perCPU := number(getenv("SLURM_MEM_PER_CPU")); perCPU > 0 {
		memory = perCPU * mib * max(number(getenv("SLURM_CPUS_ON_NODE")), 1)
	}
	if memory > 0 { // 0 is the whole node
		m.Memory = min(m.Memory, memory)
	}
	indexes := getenv("SLURM_JOB_GPUS")
	switch {
	case indexes == "" && (gpuset == "ALL" || gpuset == ""):
		m.GPUs = nil // the job has asked for none
		return m, nil
	case indexes == "":
		return m, nil
	}
	own, err := worker.ParseGPUIndexes(indexes)
	if err != nil {
		return m, fmt.Errorf("find the GPUs of job %s: %w", job, err)
	}
	m.GPUs = slices.DeleteFunc(slices.Clone(m.GPUs), func(g GPU) bool { return !slices.Contains(own, g.Index) })
	return m, nil
}

// number returns 0 if the text is no number.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
