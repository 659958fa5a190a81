package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver/drivertest"
)

// gpuInfo reads recorded output of `docker info` about GPUs.
func gpuInfo(tb testing.TB, name string) (s gpuSupport) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	must(tb, err)
	must(tb, json.Unmarshal(text, &s))
	return s
}

// withGPUs returns a host with these files and with three GPUs, whose device files have numbers in
// another order than nvidia-smi's.
func withGPUs(tb testing.TB, files ...string) gpuHost {
	tb.Helper()
	root := tb.TempDir()
	drivertest.Write(tb, root, "proc/driver/nvidia/version", "NVRM version: 580.1\n", 0o644)
	for address, gpu := range map[string]string{"0000:3b:00.0": "GPU-aa 1", "0000:5e:00.0": "GPU-bb 0", "0000:86:00.0": "GPU-cc 2"} {
		uuid, minor, _ := strings.Cut(gpu, " ")
		drivertest.Write(tb, root, "proc/driver/nvidia/gpus/"+address+"/information",
			"Model: \t\t NVIDIA A100\nGPU UUID: \t "+uuid+"\nBus Location: \t "+address+"\nDevice Minor: \t "+minor+"\n", 0o644)
	}
	for _, file := range files {
		drivertest.Write(tb, root, file, "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n", 0o755)
	}
	return gpuHost{root}
}

// The outputs of the engines are recorded, or follow their documentation; the project has no
// machine with a GPU and an engine.
func TestGPUsAreShownByTheMeansOfTheEngine(t *testing.T) {
	t.Parallel()
	const hook = "usr/bin/nvidia-container-runtime-hook"
	byOption := []string{"--gpus", `"device=GPU-bb,GPU-cc"`}
	byCDI := []string{"--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=2"}
	plain := []string{"--device", "/dev/nvidia0", "--device", "/dev/nvidia2", "--device", "/dev/nvidiactl", "--device", "/dev/nvidia-uvm"}
	for _, tt := range []struct {
		engine string
		files  []string
		want   []string
	}{
		{"docker-20.10", []string{hook}, byOption},
		{"docker-20.10", nil, plain},
		{"docker-20.10", []string{"etc/cdi/nvidia.yaml"}, plain}, // it has no CDI
		{"docker-24.0-toolkit", nil, byOption},
		{"docker-25.0-cdi", nil, plain},
		{"docker-25.0-cdi", []string{"etc/cdi/nvidia.yaml"}, byCDI},
		{"docker-28.3-cdi", nil, byCDI},
		{"docker-28.3-cdi", []string{hook}, byOption},
		{"podman", []string{"var/run/cdi/nvidia.json"}, byCDI},
		{"podman", []string{hook}, plain},
	} {
		h, podman := withGPUs(t, tt.files...), tt.engine == "podman"
		var info gpuSupport
		if !podman {
			info = gpuInfo(t, tt.engine)
		}
		c := container.Container{Devices: []string{"/dev/nvidia0", "/dev/nvidia2", "/dev/nvidiactl", "/dev/nvidia-uvm"}, GPUVendor: gpudriver.NVIDIA}
		got, err := h.show(c, nil, h.way(info, podman))
		if err != nil || got.driver || !slices.Equal(got.options, tt.want) {
			t.Errorf("%s with %q: %q, driver %v, %v; want %q", tt.engine, tt.files, got.options, got.driver, err, tt.want)
		}
	}
}

func TestDriverIsShownWhereTheEngineHasNoMeans(t *testing.T) {
	t.Parallel()
	h := withGPUs(t)
	drivertest.Write(t, h.root, "opt/driver/libcuda.so.1", drivertest.Library(t, "libcuda.so.1"), 0o755)
	drivertest.Cache(t, h.root, "new", "/opt/driver")
	drivertest.Write(t, h.root, "usr/bin/nvidia-smi", "#!/bin/sh\n", 0o755)
	c := container.Container{Devices: []string{"/dev/nvidia0"}, GPUVendor: gpudriver.NVIDIA}
	got, err := h.show(c, nil, plainly)
	want := []string{
		"--device", "/dev/nvidia0",
		"--mount", "type=bind,source=" + h.root + "/opt/driver/libcuda.so.1,destination=" + gpudriver.LibraryDir + "/libcuda.so.1,readonly",
		"--mount", "type=bind,source=" + h.root + "/usr/bin/nvidia-smi,destination=/usr/bin/nvidia-smi,readonly",
	}
	if err != nil || !got.driver || !slices.Equal(got.options, want) {
		t.Errorf("%q, driver %v, %v", got.options, got.driver, err)
	}
}

func TestOtherDevicesAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	want := []string{"--device", "/dev/dri/renderD128", "--device", "/dev/kfd"}
	c := container.Container{Devices: []string{"/dev/dri/renderD128", "/dev/kfd"}, GPUVendor: gpudriver.AMD}
	got, err := withGPUs(t).show(c, nil, byOption)
	if err != nil || got.driver || !slices.Equal(got.options, want) {
		t.Errorf("%q, %v, %v", got.options, got.driver, err)
	}
}
