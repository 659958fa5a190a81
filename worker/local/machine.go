package local

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/affinity"
	"github.com/cl-slurm/cl-slurm/worker"
)

// Machine lists the resources that a Scheduler may give to its jobs.
type Machine struct {
	// CPUs are the numbers of the processors. If Unbound is set, only their count matters, and jobs
	// are not bound to them, because the numbers of ours are unknown.
	CPUs    []int
	Unbound bool
	// GPUs are in the order of nvidia-smi.
	GPUs []GPU
	// Memory is in bytes.
	Memory int64
}

// GPU is one GPU of a machine.
type GPU = worker.GPU

// FindMachine returns the resources of its machine that this process may use: the processors that
// it may run on, the GPUs that it may open, and the machine's memory or the least limit of its
// cgroups. It runs no program.
func FindMachine() (Machine, error) { return findMachine("/") }

// findMachine is FindMachine for a host whose /dev, /proc and /sys are in root.
func findMachine(root string) (Machine, error) {
	cpus, err := affinity.Own()
	if err != nil {
		return Machine{}, err
	}
	gpus, err := worker.GPUs(root)
	if err != nil {
		return Machine{}, err
	}
	memory, err := findMemory(root)
	if err != nil {
		return Machine{}, err
	}
	if limit := worker.MemoryLimit(); limit > 0 {
		memory = min(memory, limit)
	}
	return Machine{CPUs: cpus, GPUs: gpus, Memory: memory}, nil
}

// findMemory returns the memory of the machine (proc_meminfo(5)).
func findMemory(root string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0, fmt.Errorf("find the memory of this machine: %w", err)
	}
	kib, err := strconv.ParseInt(strings.TrimSuffix(fieldOf(string(text), "MemTotal"), " kB"), 10, 64)
	if err != nil {
		return 0, errors.New("find the memory of this machine: /proc/meminfo has no MemTotal")
	}
	return kib << 10, nil
}

// fieldOf returns the value of a line "name: value".
func fieldOf(text, name string) string {
	for line := range strings.Lines(text) {
		if before, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(before) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// all is the word for all CPUs or GPUs.
const all = "ALL"

// ParseCPUSet reads CodaLab's --cpuset: "ALL", or the numbers of some of the present CPUs,
// separated by commas. An error is one sentence about the argument.
//
// CodaLab's own worker documents the same, but on Linux it takes all CPUs regardless of the
// argument (codalab/worker/main.py: parse_cpuset_args).
func ParseCPUSet(arg string, present []int) ([]int, error) {
	if arg == all {
		return present, nil
	}
	var cpus []int
	for word := range strings.SplitSeq(arg, ",") {
		word = strings.TrimSpace(word)
		cpu, err := strconv.Atoi(word)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is not the number of a CPU: name numbers separated by commas, or ALL", word)
		case !slices.Contains(present, cpu):
			return nil, fmt.Errorf("CPU %d is not one that this worker may use, which are %s", cpu, cmp.Or(affinity.Format(present), "none"))
		case slices.Contains(cpus, cpu):
			return nil, fmt.Errorf("CPU %d is named twice", cpu)
		}
		cpus = append(cpus, cpu)
	}
	slices.Sort(cpus)
	return cpus, nil
}

// ParseGPUSet reads CodaLab's --gpuset: "ALL", "NONE", "", or some of the present GPUs by their
// UUIDs or by their positions in the list, from 0, which are nvidia-smi's indexes. An error is one
// sentence about the argument (codalab/worker/main.py: parse_gpuset_args).
func ParseGPUSet(arg string, present []GPU) ([]GPU, error) {
	switch arg {
	case all:
		return present, nil
	case "", "NONE":
		return nil, nil
	}
	var places []int
	for word := range strings.SplitSeq(arg, ",") {
		word = strings.TrimSpace(word)
		place, err := strconv.Atoi(word)
		if err != nil {
			place = slices.IndexFunc(present, func(g GPU) bool { return word != "" && g.UUID == word })
		}
		switch {
		case err != nil && place < 0 && !strings.HasPrefix(word, "GPU-"):
			return nil, fmt.Errorf("%q is not the index or the UUID of a GPU: name them separated by commas, or ALL, or NONE", word)
		case place < 0 || place >= len(present):
			return nil, fmt.Errorf("GPU %s is not one that this worker may use: it may use %s", word, countGPUs(present))
		case slices.Contains(places, place):
			return nil, fmt.Errorf("GPU %s is named twice", word)
		}
		places = append(places, place)
	}
	slices.Sort(places)
	gpus := make([]GPU, len(places))
	for i, place := range places {
		gpus[i] = present[place]
	}
	return gpus, nil
}

// countGPUs lists the valid indexes.
func countGPUs(gpus []GPU) string {
	switch len(gpus) {
	case 0:
		return "no GPU"
	case 1:
		return "GPU 0 alone"
	}
	return fmt.Sprintf("GPUs 0 to %d", len(gpus)-1)
}
