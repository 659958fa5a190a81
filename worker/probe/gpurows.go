package probe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Checks judges the way of the GPUs from the driver to a container. A node without GPUs, and a job without them, have no
// checks. t is the trial of a container; nil if there was none.
func (g GPUs) Checks(t *Trial) []Check {
	wanted := g.Job != ""
	if !wanted && g.InJob || !wanted && len(g.Present) == 0 && g.Module == "" {
		return nil
	}
	checks := []Check{g.checkDevices(), g.checkDriver()}
	if len(g.Present) == 0 {
		return checks
	}
	if g.Module != "" { // else nothing further works
		checks = append(checks, g.checkLibraries(), g.checkSMI())
	}
	if g.InJob {
		checks = append(checks, g.checkAllocation())
	}
	if g.Module != "" && t != nil && t.Lack == "" {
		checks = append(checks, g.checkInside(t.Inside))
	}
	return checks
}

// gpusFail is the consequence of most faults.
const gpusFail = "runs that ask for GPUs fail on this node"

func (g GPUs) checkDevices() Check {
	const name = "gpu-devices"
	switch {
	case len(g.Present) == 0:
		return Fault(Failed, name, fmt.Sprintf("the job has GPUs (SLURM_JOB_GPUS=%s), and the node has no /dev/nvidia0", g.Job), gpusFail,
			"load the module nvidia, and make its device files at boot: nvidia-persistenced, or nvidia-modprobe -c0 -u")
	case len(g.Open) == 0:
		return Fault(Failed, name, fmt.Sprintf("the node has %s, and this process may open none", deviceNames(g.Present)), gpusFail,
			"their mode has to be 0666, and the job's cgroup of devices has to allow those in gres.conf")
	case len(g.Closed) > 0:
		return Fault(Failed, name, "programs with CUDA need "+strings.Join(g.Closed, " and "), "CUDA finds no device: runs that ask for GPUs fail on this node, or compute on its processors",
			"make them at boot: nvidia-modprobe -c0 -u, or nvidia-persistenced")
	}
	return Passed(name, "of %s this process may open %s; nvidiactl and nvidia-uvm too", deviceNames(g.Present), deviceNames(g.Open))
}

// deviceNames lists device files.
func deviceNames(numbers []int) string {
	var names []string
	for _, n := range numbers {
		names = append(names, "/dev/nvidia"+strconv.Itoa(n))
	}
	return strings.Join(names, ", ")
}

// checkDriver compares the kernel's module with the library of CUDA.
func (g GPUs) checkDriver() Check {
	const name = "gpu-driver"
	switch {
	case g.Module == "":
		return Fault(Failed, name, "the kernel has no module nvidia", gpusFail, "load it, or install the driver for this kernel (dkms status)")
	case g.Unread != "":
		return Fault(Failed, name, fmt.Sprintf("the module is %s, and its libraries cannot be found: %s", g.Module, g.Unread), gpusFail, "ldconfig writes the linker's cache again")
	case len(g.Bound) == 0:
		return Fault(Failed, name, fmt.Sprintf("the module is %s, and the node has no library of the driver", g.Module), "containers get none: "+gpusFail, "install the driver's libraries of this version on the node")
	case g.Library != "" && g.Library != g.Module:
		return Fault(Failed, name, fmt.Sprintf("the module is %s, and libcuda.so.1 is %s", g.Module, g.Library), "every program with CUDA fails: "+gpusFail,
			"the driver was upgraded: restart the node, or unload the old module")
	case g.Library == "":
		return Passed(name, "the module is %s", g.Module).Meaning("the version of libcuda.so.1 is not known")
	}
	return Passed(name, "module and libcuda.so.1 are %s", g.Module)
}

// checkLibraries judges the libraries that containers get.
func (g GPUs) checkLibraries() Check {
	const name = "gpu-libraries"
	for _, needed := range []struct {
		name    string
		verdict Verdict
		means   string
	}{
		{"libcuda.so.1", Failed, "no program finds CUDA: " + gpusFail},
		{"libnvidia-ml.so.1", Warning, "nvidia-smi fails in containers, and frameworks that ask NVML warn"},
		{"libnvidia-ptxjitcompiler.so.1", Warning, "programs that were built for older GPUs fail: their kernels cannot be compiled"},
	} {
		if !slices.Contains(g.Bound, needed.name) {
			return Fault(needed.verdict, name, "the node has no "+needed.name+" in the linker's cache, nor in /usr/local/nvidia/lib64", needed.means, "install the driver's package for computing, and run ldconfig")
		}
	}
	return Passed(name, "containers get %d libraries and programs of the driver", len(g.Bound))
}

// checkSMI judges what nvidia-smi says, and tells which CUDA images can have.
func (g GPUs) checkSMI() Check {
	const name = "cuda"
	switch {
	case g.Mute != "":
		return Fault(Warning, name, g.Mute, "the use of GPUs is not measured, and often no program with CUDA runs",
			"run nvidia-smi on the node; after \"Driver/library version mismatch\" restart it, and look for \"NVRM: Xid\" in dmesg")
	case len(g.SMI.GPUs) == 0:
		return Fault(Failed, name, "nvidia-smi shows no GPU", gpusFail, "look for \"NVRM: Xid\" in dmesg: a GPU may have fallen off the bus")
	case len(g.SMI.GPUs) != len(g.Open) && !slices.ContainsFunc(g.SMI.GPUs, func(s SMIGPU) bool { return s.MIG }):
		return Fault(Warning, name, fmt.Sprintf("nvidia-smi shows %s, and this process may open %d", countGPUs(len(g.SMI.GPUs)), len(g.Open)), "a GPU that is not shown cannot be used",
			"look for \"NVRM: Xid\" in dmesg, and compare gres.conf with nvidia-smi -L")
	}
	said := fmt.Sprintf("nvidia-smi shows %s (%s)", countGPUs(len(g.SMI.GPUs)), strings.Join(g.SMI.kinds(), ", "))
	if g.SMI.CUDA == "" {
		return Passed(name, "%s, driver %s", said, g.SMI.Driver)
	}
	return Passed(name, "%s, driver %s, CUDA %s", said, g.SMI.Driver, g.SMI.CUDA).
		Meaning("images can have CUDA up to that, and newer releases of its major version; with a newer major version they need NVIDIA's package cuda-compat inside")
}

// kinds lists the models once each.
func (s SMI) kinds() []string {
	var kinds []string
	for _, g := range s.GPUs {
		kind := g.Name
		if g.MIG {
			kind += ", divided (MIG)"
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func countGPUs(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return strconv.Itoa(n) + " GPUs"
}

// checkAllocation compares the GPUs that the job may open with those that Slurm gave it.
func (g GPUs) checkAllocation() Check {
	const name = "gpu-allocation"
	if strings.HasPrefix(g.Visible, "MIG-") {
		return Passed(name, "Slurm gives parts of GPUs (MIG): %s", g.Visible)
	}
	given := indexes(g.Job)
	variables := fmt.Sprintf("SLURM_JOB_GPUS=%s, CUDA_VISIBLE_DEVICES=%s", g.Job, g.Visible)
	if slices.ContainsFunc(given, func(n int) bool { return !slices.Contains(g.Open, n) }) {
		return Fault(Failed, name, fmt.Sprintf("%s, and the job may open %s", variables, orNone(deviceNames(g.Open))), gpusFail,
			"the order of File= in gres.conf has to be that of the device files; slurmd's log names those that it allows")
	}
	if len(g.Open) > len(given) {
		return Fault(Warning, name, fmt.Sprintf("%s, and the job may open %s, too", variables, deviceNames(slices.DeleteFunc(slices.Clone(g.Open), func(n int) bool { return slices.Contains(given, n) }))),
			"runs see only their own all the same; other jobs on the node can use theirs", "ConstrainDevices=yes in cgroup.conf would have the kernel keep them apart")
	}
	if seen := strings.Split(g.Visible, ","); g.Visible != "" && len(seen) != len(given) {
		return Fault(Warning, name, fmt.Sprintf("%s do not agree", variables), "runs are numbered by the device files all the same", "a prolog or a plugin of the site sets one of them")
	}
	return Passed(name, "%s: the job may open these and no others", variables)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// indexes reads a list such as "0,2" or "0-3". It returns nil for another text, such as UUIDs.
func indexes(list string) []int {
	var numbers []int
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.Atoi(low)
		to, errTo := strconv.Atoi(high)
		const most = 1024
		if errFrom != nil || errTo != nil || from < 0 || to < from || to-from > most {
			return nil
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// checkInside judges the GPUs in a container.
func (g GPUs) checkInside(in Inside) Check {
	const name = "gpu-in-container"
	switch {
	case len(g.devices()) == 0:
		return Fault(Failed, name, "there is no device to show", gpusFail, "see gpu-devices")
	case len(in.Closed) > 0:
		return Fault(Failed, name, "a container cannot open "+strings.Join(in.Closed, ", "), gpusFail, "is the scratch, or /dev, mounted with nodev?")
	case !slices.Contains(in.Libraries, "libcuda.so.1"):
		return Fault(Failed, name, "a container has no libcuda.so.1", gpusFail, "see gpu-libraries")
	}
	return Passed(name, "a container opens %s, and has the driver's libraries (%d)", strings.Join(in.Open, ", "), len(in.Libraries))
}
