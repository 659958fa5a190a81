package worker

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
)

// gpu is a GPU of this node.
type gpu struct {
	// index is Slurm's, as in SLURM_JOB_GPUS: N of /dev/nvidiaN, or its position among the node's AMD
	// GPUs.
	index int
	path  string
	// allowed is set if this job may open it. If Slurm constrains devices, a job cannot open those
	// of other jobs.
	allowed bool
}

// gpuAllocation describes the GPUs for a bundle.
type gpuAllocation struct {
	vendor  gpudriver.Vendor
	gpus    []gpu
	devices []string // the device files that their use needs
	// mig are the names of the allocation's MIG devices, the parts of divided GPUs, if it has any.
	// Several may be on one of gpus, and only Slurm knows their GPU.
	mig []string
}

// allocateGPUs finds the GPUs of the allocation. A bundle that asked for none gets none. In a pod of Kubernetes the
// device plugin of its node shows them, and names them to the command.
func (r *attemptRun) allocateGPUs() (a gpuAllocation, err error) {
	if r.spec.GPUs == 0 || r.spec.Runtime == runtimes.Kubernetes {
		return a, nil
	}
	dev := cmp.Or(r.dev, "/dev")
	a.vendor = gpudriver.NVIDIA
	present, err := listNVIDIA(dev)
	if err == nil && len(present) == 0 {
		if amd := listAMD(dev, r.sysDir(), r.JobGPUs); len(amd) > 0 {
			a.vendor, present = gpudriver.AMD, amd
		}
	}
	if err != nil {
		return gpuAllocation{}, err
	}
	if present, err = r.place.has(present, r.spec.GPUs); err != nil {
		return gpuAllocation{}, err
	}
	if a.mig = migDevices(r.VisibleDevices); a.mig != nil {
		a.gpus, err = chooseForMIG(r.spec.GPUs, present, a.mig)
		a.mig = a.mig[:min(len(a.mig), r.spec.GPUs)]
	} else {
		a.gpus, err = chooseGPUs(r.spec.GPUs, present, r.JobGPUs)
	}
	if err != nil {
		return gpuAllocation{}, err
	}
	for _, g := range a.gpus {
		a.devices = append(a.devices, g.path)
	}
	if a.vendor == gpudriver.AMD {
		a.devices = append(a.devices, filepath.Join(dev, "kfd"))
		return a, nil
	}
	a.devices = append(a.devices, commonNVIDIA(dev)...)
	return a, nil
}

// sysDir returns the host's /sys.
func (w Worker) sysDir() string { return cmp.Or(w.sys, "/sys") }

// GPU is a GPU that this process may open.
type GPU struct {
	// Index is Slurm's, as in SLURM_JOB_GPUS: N of /dev/nvidiaN, or the position among the GPUs of
	// AMD.
	Index int `json:"index"`
	// UUID is nvidia-smi's. It is empty if unknown, and for a GPU of AMD.
	UUID string `json:"uuid,omitempty"`
}

// GPUs returns the GPUs that this process may open: those of NVIDIA, in the order of nvidia-smi, or, if
// there are none, those of AMD. The host's /dev, /proc and /sys are in root.
func GPUs(root string) ([]GPU, error) {
	dev := filepath.Join(root, "dev")
	present, err := listNVIDIA(dev)
	if err != nil {
		return nil, err
	}
	var listed []gpudriver.GPU
	if len(present) == 0 {
		present = listAMD(dev, filepath.Join(root, "sys"), "")
	} else if listed, err = gpudriver.GPUs(filepath.Join(root, "proc")); err != nil {
		return nil, err
	}
	allowed := allowedOf(present)
	var gpus []GPU
	for _, l := range listed {
		if slices.ContainsFunc(allowed, func(g gpu) bool { return g.index == l.Minor }) {
			gpus = append(gpus, GPU{Index: l.Minor, UUID: l.UUID})
		}
	}
	// A container may have a GPU without the driver's files about it.
	for _, a := range allowed {
		if !slices.ContainsFunc(gpus, func(g GPU) bool { return g.Index == a.index }) {
			gpus = append(gpus, GPU{Index: a.index})
		}
	}
	return gpus, nil
}

// mayAccess reports whether this process may open a device in a mode of access(2). The kernel asks
// the devices cgroup as for open(2) (fs/namei.c: inode_permission), and no driver wakes a GPU for
// it.
func mayAccess(path string, mode uint32) bool { return unix.Access(path, mode) == nil }

// readWrite is the mode that the use of a device needs.
const readWrite = unix.R_OK | unix.W_OK

// listNVIDIA lists the GPUs of this node in the order of their index.
func listNVIDIA(dev string) ([]gpu, error) {
	entries, err := os.ReadDir(dev)
	if err != nil {
		return nil, fmt.Errorf("list the GPUs: %w", err)
	}
	var gpus []gpu
	for _, e := range entries {
		if index, ok := numbered(e.Name(), "nvidia"); ok {
			path := filepath.Join(dev, e.Name())
			gpus = append(gpus, gpu{index: index, path: path, allowed: mayAccess(path, readWrite)})
		}
	}
	slices.SortFunc(gpus, func(a, b gpu) int { return a.index - b.index })
	return gpus, nil
}

// commonNVIDIA lists the driver's device files that belong to no single GPU. Apptainer shows all of
// them (internal/pkg/util/gpu/nvidia_legacy.go: NvidiaDevices). The files in directories
// (nvidia-caps) give access to parts of GPUs by their modes, and are only read.
func commonNVIDIA(dev string) []string {
	var devices []string
	for _, pattern := range []string{"nvidiactl", "nvidia-*", "nvidia-*/*"} {
		found, err := filepath.Glob(filepath.Join(dev, pattern))
		if err != nil {
			continue
		}
		for _, file := range found {
			info, err := os.Stat(file)
			below := filepath.Dir(file) != dev
			if err == nil && !info.IsDir() && (mayAccess(file, readWrite) || below && mayAccess(file, unix.R_OK)) {
				devices = append(devices, file)
			}
		}
	}
	return devices
}

// vendorAMD is AMD's vendor number in /sys.
const vendorAMD = "0x1002"

// listAMD lists the AMD GPUs of this node. Each has a render device. A program that may open
// /dev/kfd sees the GPUs whose render devices it may open (ROCm, libhsakmt, src/topology.c:
// topology_sysfs_check_node_supported). Slurm numbers them by position, or by the number of the
// device file, from 128 (src/plugins/gres/common/gres_common.c: common_gres_set_env). listAMD
// infers the numbering from jobGPUs, the job's SLURM_JOB_GPUS.
func listAMD(dev, sys, jobGPUs string) []gpu {
	entries, err := os.ReadDir(filepath.Join(dev, "dri"))
	if err != nil || !mayAccess(filepath.Join(dev, "kfd"), readWrite) {
		return nil
	}
	var minors []int
	for _, e := range entries {
		vendor := readText(filepath.Join(sys, "class/drm", e.Name(), "device/vendor"))
		if minor, ok := numbered(e.Name(), "renderD"); ok && strings.TrimSpace(vendor) == vendorAMD {
			minors = append(minors, minor)
		}
	}
	slices.Sort(minors)
	const first = 128
	indexes, err := ParseGPUIndexes(jobGPUs)
	byFile := err == nil && slices.Min(indexes) >= first
	var gpus []gpu
	for i, minor := range minors {
		path := filepath.Join(dev, "dri", "renderD"+strconv.Itoa(minor))
		g := gpu{index: i, path: path, allowed: mayAccess(path, readWrite)}
		if byFile {
			g.index = minor
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// numbered returns the number after a prefix in a device's name.
func numbered(name, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && digits == strconv.Itoa(n)
}

// chooseGPUs chooses as many of the allocation's GPUs as the bundle asked for. If the job may open
// more, it chooses those in SLURM_JOB_GPUS.
func chooseGPUs(want int, present []gpu, jobGPUs string) ([]gpu, error) {
	allowed := allowedOf(present)
	if len(allowed) < want {
		return nil, fmt.Errorf("the bundle asked for %s, and its job may open %s of the node's %d",
			countGPUs(want), strconv.Itoa(len(allowed)), len(present))
	}
	if len(allowed) == want {
		return allowed, nil
	}
	indexes, err := ParseGPUIndexes(jobGPUs)
	if err != nil {
		return nil, fmt.Errorf("the job may open %s where the bundle asked for %d, and its own ones are unknown: %w",
			countGPUs(len(allowed)), want, err)
	}
	own := slices.DeleteFunc(allowed, func(g gpu) bool { return !slices.Contains(indexes, g.index) })
	if len(own) < want {
		return nil, fmt.Errorf("the bundle asked for %s, and of those that Slurm gave its job (SLURM_JOB_GPUS=%s) it may open %d",
			countGPUs(want), jobGPUs, len(own))
	}
	return own[:want], nil
}

// migDevices returns the names of MIG devices in CUDA_VISIBLE_DEVICES, which Slurm sets
// (src/plugins/gres/common/gres_common.c: common_gres_set_env, the unique_id). It returns none if
// Slurm numbers whole GPUs.
func migDevices(visible string) []string {
	names := strings.Split(visible, ",")
	if slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, "MIG-") }) {
		return nil
	}
	return names
}

// chooseForMIG returns all GPUs that the job may open, because the allocation's MIG devices may be on
// any of them. The device files in nvidia-caps limit the MIG devices that the job can use.
func chooseForMIG(want int, present []gpu, mig []string) ([]gpu, error) {
	if len(mig) < want {
		return nil, fmt.Errorf("the bundle asked for %s, and its job has %d (CUDA_VISIBLE_DEVICES=%s)", countGPUs(want), len(mig), strings.Join(mig, ","))
	}
	allowed := allowedOf(present)
	if len(allowed) == 0 {
		return nil, fmt.Errorf("the bundle asked for %s, and its job may open 0 of the node's %d", countGPUs(want), len(present))
	}
	return allowed, nil
}

func allowedOf(gpus []gpu) []gpu {
	return slices.DeleteFunc(slices.Clone(gpus), func(g gpu) bool { return !g.allowed })
}

// ParseGPUIndexes reads the indexes of SLURM_JOB_GPUS, such as "0,2" or "0-3".
func ParseGPUIndexes(s string) ([]int, error) {
	if s == "" {
		return nil, fmt.Errorf("SLURM_JOB_GPUS is not set")
	}
	var indexes []int
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
			indexes = append(indexes, i)
		}
	}
	return indexes, nil
}

// env returns the variable that names the GPUs to the command. The container has only these, so
// CUDA and ROCm number them from 0. Without GPUs the variable is not set, because some programs
// cannot read an empty list. MIG devices keep their names.
func (a gpuAllocation) env() []string {
	if len(a.gpus) == 0 {
		return nil
	}
	if len(a.mig) > 0 {
		return []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(a.mig, ",")}
	}
	numbers := make([]string, len(a.gpus))
	for i := range a.gpus {
		numbers[i] = strconv.Itoa(i)
	}
	name := "CUDA_VISIBLE_DEVICES"
	if a.vendor == gpudriver.AMD {
		name = "ROCR_VISIBLE_DEVICES"
	}
	return []string{name + "=" + strings.Join(numbers, ",")}
}

func countGPUs(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}
