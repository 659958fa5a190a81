package local

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// refusal returns one sentence with the reason why the machine can never serve a request, or "" if
// it can.
func (m Machine) refusal(r request) string {
	switch {
	case r.CPUs > len(m.CPUs):
		return fmt.Sprintf("this worker has %s, and the run asks for %d", plural(len(m.CPUs), "CPU"), r.CPUs)
	case r.GPUs > len(m.GPUs):
		return fmt.Sprintf("this worker has %s, and the run asks for %d", plural(len(m.GPUs), "GPU"), r.GPUs)
	case r.MemoryMiB > m.Memory>>20:
		return fmt.Sprintf("this worker has %s of memory, and the run asks for %s", codalab.FormatSize(m.Memory), codalab.FormatSize(r.MemoryMiB<<20))
	}
	return ""
}

func plural(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun + "s"
	case 1:
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// without returns the machine without a job's resources.
func (m Machine) without(r record) Machine {
	return Machine{
		Unbound: m.Unbound,
		CPUs:    slices.DeleteFunc(slices.Clone(m.CPUs), func(cpu int) bool { return slices.Contains(r.CPUs, cpu) }),
		GPUs:    slices.DeleteFunc(slices.Clone(m.GPUs), func(g GPU) bool { return contains(r.GPUs, g) }),
		Memory:  max(0, m.Memory-r.Request.MemoryMiB<<20),
	}
}

// contains reports whether a list has a GPU, by its index or its UUID.
func contains(gpus []GPU, g GPU) bool {
	return slices.ContainsFunc(gpus, func(other GPU) bool { return g.Index == other.Index || g.UUID != "" && g.UUID == other.UUID })
}

// resources returns the machine in Slurm's terms.
func (m Machine) resources() sbatch.NodeResources {
	return sbatch.NodeResources{CPUs: int64(len(m.CPUs)), GPUs: int64(len(m.GPUs)), Memory: m.Memory}
}

// markerName is the variable that identifies processes of a job.
const markerName = "CL_WORKER_JOB"

// marker returns the variable of the processes of one job.
func (d records) marker(id sbatch.JobID) string { return markerName + "=" + d.path(id) }

// environment returns the environment of a job: the given one, without the variables of an
// allocation around this process, and with those of the job's own, as Slurm sets them (sbatch(1):
// OUTPUT ENVIRONMENT VARIABLES).
func environment(given []string, r record, node, marker string) []string {
	env := slices.DeleteFunc(slices.Clone(given), describesAllocation)
	env = append(env,
		marker,
		"SLURM_JOB_ID="+r.ID.String(),
		"SLURM_JOB_NAME="+r.Request.Name,
		"SLURM_JOB_NODELIST="+node,
		"SLURMD_NODENAME="+node,
		"SLURM_CPUS_PER_TASK="+strconv.Itoa(r.Request.CPUs),
	)
	if r.Request.MemoryMiB > 0 {
		env = append(env, "SLURM_MEM_PER_NODE="+strconv.FormatInt(r.Request.MemoryMiB, 10))
	}
	var indexes, uuids []string
	for _, g := range r.GPUs {
		indexes = append(indexes, strconv.Itoa(g.Index))
		if g.UUID != "" {
			uuids = append(uuids, g.UUID)
		}
	}
	if len(indexes) > 0 {
		env = append(env, "SLURM_JOB_GPUS="+strings.Join(indexes, ","))
	}
	if len(uuids) > 0 && len(uuids) == len(indexes) {
		env = append(env, "CUDA_VISIBLE_DEVICES="+strings.Join(uuids, ","))
	}
	return env
}

// describesAllocation reports whether Slurm sets a variable for a job or a step, or this package
// for a job.
func describesAllocation(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	if name == "SLURM_CLUSTER_NAME" { // of the host's own cluster
		return false
	}
	for _, prefix := range []string{"SLURM_", "SLURMD_", "SBATCH_", "SRUN_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK", markerName:
		return true
	}
	return false
}

// interpreter returns the command that runs a script, from its first line (execve(2), Interpreter
// scripts). It returns nil if the script has no such line.
func interpreter(script string) []string {
	line, _, _ := strings.Cut(script, "\n")
	words, ok := strings.CutPrefix(line, "#!")
	program, argument, _ := strings.Cut(strings.TrimSpace(words), " ")
	if !ok || program == "" {
		return nil
	}
	if argument = strings.TrimSpace(argument); argument != "" {
		return []string{program, argument}
	}
	return []string{program}
}
