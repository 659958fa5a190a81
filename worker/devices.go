package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// gpu is a device file of a GPU of this node.
type gpu struct {
	index int // N of /dev/nvidiaN
	path  string
	// allowed says whether this job may open it. Where Slurm constrains
	// devices it may not open those of other jobs.
	allowed bool
}

// devices finds the GPUs of the allocation, and the device files with which to
// use them. A bundle that asked for none gets none, whatever its job has.
func (r *run) devices() (gpus []gpu, devices []string, err error) {
	if r.spec.GPUs == 0 {
		return nil, nil, nil
	}
	dev := r.dev
	if dev == "" {
		dev = "/dev"
	}
	present, err := listGPUs(dev, mayOpen)
	if err != nil {
		return nil, nil, err
	}
	gpus, err = chooseGPUs(r.spec.GPUs, present, r.GPUs)
	if err != nil {
		return nil, nil, fmt.Errorf("node %s: %w", r.Node, err)
	}
	for _, g := range gpus {
		devices = append(devices, g.path)
	}
	for _, name := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"} {
		if file := filepath.Join(dev, name); mayOpen(file) {
			devices = append(devices, file)
		}
	}
	return gpus, devices, nil
}

// mayOpen says whether this process may open a device for reading and writing.
// The kernel asks the devices cgroup here as it does in open(2)
// (fs/namei.c: inode_permission), and no driver wakes a GPU for the answer.
func mayOpen(path string) bool {
	const readWrite = 4 | 2 // access(2): R_OK, W_OK
	return syscall.Access(path, readWrite) == nil
}

// listGPUs lists the GPUs of this node in the order of their index.
func listGPUs(dev string, mayOpen func(string) bool) ([]gpu, error) {
	entries, err := os.ReadDir(dev)
	if err != nil {
		return nil, fmt.Errorf("look for GPUs: %w", err)
	}
	var gpus []gpu
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "nvidia")
		index, err := strconv.Atoi(digits)
		if !ok || err != nil || digits != strconv.Itoa(index) {
			continue
		}
		path := filepath.Join(dev, e.Name())
		gpus = append(gpus, gpu{index: index, path: path, allowed: mayOpen(path)})
	}
	slices.SortFunc(gpus, func(a, b gpu) int { return a.index - b.index })
	return gpus, nil
}

// chooseGPUs picks as many GPUs as the bundle asked for from those of the
// allocation. When more can be opened than that, either nothing constrains the
// job or it has more than the bundle wants, and SLURM_JOB_GPUS says which are
// its own.
func chooseGPUs(want int, present []gpu, jobGPUs string) ([]gpu, error) {
	allowed := slices.DeleteFunc(slices.Clone(present), func(g gpu) bool { return !g.allowed })
	if len(allowed) < want {
		return nil, fmt.Errorf("the bundle asked for %s, and its job may open %s of the node's %d",
			count(want, "GPU"), strconv.Itoa(len(allowed)), len(present))
	}
	if len(allowed) == want {
		return allowed, nil
	}
	indices, err := parseIndices(jobGPUs)
	if err != nil {
		return nil, fmt.Errorf("the job may open %s where the bundle asked for %d, and which are its own is unknown: %w",
			count(len(allowed), "GPU"), want, err)
	}
	own := slices.DeleteFunc(allowed, func(g gpu) bool { return !slices.Contains(indices, g.index) })
	if len(own) < want {
		return nil, fmt.Errorf("the bundle asked for %s, and of those that Slurm gave its job (SLURM_JOB_GPUS=%s) it may open %d",
			count(want, "GPU"), jobGPUs, len(own))
	}
	return own[:want], nil
}

// parseIndices reads the indices of SLURM_JOB_GPUS: "0,2", or "0-3".
func parseIndices(s string) ([]int, error) {
	if s == "" {
		return nil, fmt.Errorf("SLURM_JOB_GPUS is not set")
	}
	var indices []int
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.Atoi(low)
		to, errTo := strconv.Atoi(high)
		if errFrom != nil || errTo != nil || from < 0 || to < from || to-from > 1024 {
			return nil, fmt.Errorf("SLURM_JOB_GPUS=%s lists no indices", s)
		}
		for i := from; i <= to; i++ {
			indices = append(indices, i)
		}
	}
	return indices, nil
}

// gpuEnv is what the command is told of its GPUs. Only these are visible to
// it, so CUDA numbers them from 0, whatever numbers they have on the node.
// Without any nothing is said: CUDA finds none, and a program that reads the
// variable meets no empty list.
func gpuEnv(gpus []gpu) []string {
	if len(gpus) == 0 {
		return nil
	}
	numbers := make([]string, len(gpus))
	for i := range gpus {
		numbers[i] = strconv.Itoa(i)
	}
	return []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(numbers, ",")}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
