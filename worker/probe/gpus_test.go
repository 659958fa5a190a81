package probe_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver/drivertest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// gpuNode is a node with GPUs, in a root of its own. Its device files are ordinary ones, which answer access(2) alike.
type gpuNode struct {
	module  string // a file of testdata; empty: none is loaded
	library string // version of libcuda.so.1; empty: no library at all
	without string // a library that is missing
	devices []string
	closed  []string // devices that cannot be opened
	smi     string   // a file of testdata that nvidia-smi prints; empty: there is no such program
	fails   bool     // nvidia-smi ends with exit status 18
	env     map[string]string
}

// good is a node with two GPUs, of which a job has the first.
func good() gpuNode {
	return gpuNode{
		module: "module-closed.txt", library: "535.129.03", smi: "smi-a100.txt",
		devices: []string{"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"},
		env:     map[string]string{"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"},
	}
}

// look makes the node, and looks at it.
func (n gpuNode) look(t *testing.T) probe.GPUs {
	t.Helper()
	root := t.TempDir()
	for _, device := range n.devices {
		drivertest.Write(t, root, "dev/"+device, "", 0o666)
	}
	for _, device := range n.closed {
		path := filepath.Join(root, "dev", device)
		if err := errors.Join(os.Remove(path), os.Symlink("absent", path)); err != nil { // a mode would not stop root
			t.Fatal(err)
		}
	}
	if n.module != "" {
		drivertest.Write(t, root, "proc/driver/nvidia/version", string(read(t, n.module)), 0o644)
	}
	if n.library != "" {
		for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"} {
			if name == n.without {
				continue
			}
			file := "usr/lib64/" + strings.TrimSuffix(name, "1") + n.library
			drivertest.Write(t, root, file, drivertest.Library(t, name), 0o755)
		}
		drivertest.Cache(t, root, "new", "/usr/lib64")
	}
	if n.smi != "" {
		status := 0
		if n.fails {
			status = 18
		}
		said := filepath.Join(root, "said")
		if err := os.WriteFile(said, read(t, n.smi), 0o600); err != nil {
			t.Fatal(err)
		}
		smi := filepath.Join(root, "usr/bin/nvidia-smi")
		if err := os.MkdirAll(filepath.Dir(smi), 0o755); err != nil {
			t.Fatal(err)
		}
		testenv.WriteProgram(t, smi, []byte("#!/bin/sh\n[ \"$*\" = -q ] || exit 9\ncat "+said+"\nexit "+strconv.Itoa(status)+"\n"))
	}
	return probe.LookAtGPUs(t.Context(), root, func(name string) string { return n.env[name] })
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/gpu", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// said prints the checks that are not OK, a line each.
func said(checks []probe.Check) string {
	var lines []string
	for _, c := range checks {
		if c.Verdict != probe.OK {
			lines = append(lines, string(c.Verdict)+" "+c.Name+": "+c.Text())
		}
	}
	return strings.Join(lines, "\n")
}

func TestGPUsOfAGoodNodeReachAContainer(t *testing.T) {
	t.Parallel()
	inside := &probe.Trial{Inside: probe.Inside{Open: []string{"/dev/nvidia0"}, Libraries: []string{"libcuda.so.1"}}}
	for name, change := range map[string]func(*gpuNode){
		"closed module": func(*gpuNode) {},
		"open module":   func(n *gpuNode) { n.module = "module-open.txt" },
		"one of two, numbered from 0 by the cgroup": func(n *gpuNode) {
			n.closed, n.smi = []string{"nvidia0"}, "smi-mig.txt"
			n.env["SLURM_JOB_GPUS"], n.env["CUDA_VISIBLE_DEVICES"] = "1", "0"
		},
		"MIG": func(n *gpuNode) {
			n.devices, n.smi = []string{"nvidia0", "nvidiactl", "nvidia-uvm"}, "smi-mig.txt"
			n.env["SLURM_JOB_GPUS"], n.env["CUDA_VISIBLE_DEVICES"] = "0,1", "MIG-1,MIG-2"
		},
		"outside of a job": func(n *gpuNode) { n.env = nil },
	} {
		n := good()
		change(&n)
		checks := n.look(t).Checks(inside)
		if got := said(checks); got != "" || len(checks) < 5 {
			t.Errorf("%s: %s: %+v", name, got, checks)
		}
	}
	var lines []string
	for _, c := range good().look(t).Checks(inside) {
		lines = append(lines, c.Line())
	}
	golden(t, "gpu-good.golden", strings.Join(lines, "\n")+"\n")
}

func TestEachBreakBetweenDriverAndContainerIsNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		want   string
		change func(*gpuNode)
	}{
		{"failed gpu-devices: the job has GPUs (SLURM_JOB_GPUS=0,1), and the node has no /dev/nvidia0; ", func(n *gpuNode) { n.devices = nil }},
		{"failed gpu-devices: programs with CUDA need /dev/nvidia-uvm (it is missing); CUDA finds no device: ", func(n *gpuNode) { n.devices = n.devices[:3] }},
		{"failed gpu-driver: the kernel has no module nvidia; ", func(n *gpuNode) { n.module = "" }},
		{"failed gpu-driver: the module is 535.129.03, and libcuda.so.1 is 550.54.14; every program with CUDA fails: runs that ask for GPUs fail on this node; the driver was upgraded: ", func(n *gpuNode) { n.library = "550.54.14" }},
		{"failed gpu-driver: the module is 535.129.03, and the node has no library of the driver; ", func(n *gpuNode) { n.library, n.smi = "", "" }},
		{"failed gpu-libraries: the node has no libcuda.so.1 in the linker's cache, ", func(n *gpuNode) { n.without = "libcuda.so.1" }},
		{"warning gpu-libraries: the node has no libnvidia-ml.so.1 in the linker's cache, ", func(n *gpuNode) { n.without = "libnvidia-ml.so.1" }},
		{"warning cuda: nvidia-smi fails: Failed to initialize NVML: Driver/library version mismatch NVML library version: 550.54; ", func(n *gpuNode) { n.smi, n.fails = "smi-mismatch.txt", true }},
		{"warning cuda: the node has no nvidia-smi; ", func(n *gpuNode) { n.smi = "" }},
		{"failed cuda: nvidia-smi shows no GPU; ", func(n *gpuNode) { n.smi = "module-open.txt" }},
		{"warning cuda: nvidia-smi shows 2 GPUs, and this process may open 1; ", func(n *gpuNode) {
			n.devices, n.env["SLURM_JOB_GPUS"], n.env["CUDA_VISIBLE_DEVICES"] = []string{"nvidia0", "nvidiactl", "nvidia-uvm"}, "0", "0"
		}},
		{"failed gpu-allocation: SLURM_JOB_GPUS=0,2, CUDA_VISIBLE_DEVICES=0,1, and the job may open /dev/nvidia0, /dev/nvidia1; ", func(n *gpuNode) { n.env["SLURM_JOB_GPUS"] = "0,2" }},
		{"warning gpu-allocation: SLURM_JOB_GPUS=1, CUDA_VISIBLE_DEVICES=0, and the job may open /dev/nvidia0, too; ", func(n *gpuNode) { n.env["SLURM_JOB_GPUS"], n.env["CUDA_VISIBLE_DEVICES"] = "1", "0" }},
		{"warning gpu-allocation: SLURM_JOB_GPUS=0-1, CUDA_VISIBLE_DEVICES=0 do not agree; ", func(n *gpuNode) { n.env["SLURM_JOB_GPUS"], n.env["CUDA_VISIBLE_DEVICES"] = "0-1", "0" }},
	} {
		n := good()
		test.change(&n)
		if got := said(n.look(t).Checks(nil)); !strings.Contains("\n"+got, "\n"+test.want) {
			t.Errorf("%s\nwant\n%s", got, test.want)
		}
	}
	g := good().look(t)
	for want, inside := range map[string]probe.Inside{
		"failed gpu-in-container: a container cannot open /dev/nvidia0 (permission denied); ": {Closed: []string{"/dev/nvidia0 (permission denied)"}},
		"failed gpu-in-container: a container has no libcuda.so.1; ":                          {Open: []string{"/dev/nvidia0"}},
	} {
		if got := said(g.Checks(&probe.Trial{Inside: inside})); !strings.HasPrefix(got, want) {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestNodeOrJobWithoutGPUsHasNoChecksOfThem(t *testing.T) {
	t.Parallel()
	none := gpuNode{env: map[string]string{"SLURM_JOB_ID": "7"}}
	if got := none.look(t).Checks(nil); got != nil {
		t.Errorf("%+v", got)
	}
	n := good()
	n.env = map[string]string{"SLURM_JOB_ID": "7"} // a job of the node's processors alone
	if got := n.look(t).Checks(nil); got != nil {
		t.Errorf("%+v", got)
	}
}
