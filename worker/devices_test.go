package worker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
)

func TestOnlyAllocatedGPUsAreChosen(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		want    int
		allowed string // one letter for each GPU of the node: y or n
		job     string
		chosen  []int
		err     string
	}{
		"constrained":                 {want: 2, allowed: "nyyn", job: "1,2", chosen: []int{1, 2}},
		"constrained, no word":        {want: 1, allowed: "nnny", chosen: []int{3}},
		"not constrained":             {want: 2, allowed: "yyyy", job: "1,3", chosen: []int{1, 3}},
		"not constrained, a range":    {want: 3, allowed: "yyyy", job: "1-3", chosen: []int{1, 2, 3}},
		"whole node":                  {want: 1, allowed: "yyyy", job: "0,1,2,3", chosen: []int{0}},
		"not constrained, no word":    {want: 2, allowed: "yyyy", err: "the job may open 4 GPUs where the bundle asked for 2, and its own ones are unknown: SLURM_JOB_GPUS is not set"},
		"not constrained, odd word":   {want: 1, allowed: "yy", job: "gpu:a", err: "the job may open 2 GPUs where the bundle asked for 1, and its own ones are unknown: SLURM_JOB_GPUS=gpu:a lists no indices"},
		"fewer than asked":            {want: 2, allowed: "nynn", job: "1,2", err: "the bundle asked for 2 GPUs, and its job may open 1 of the node's 4"},
		"none":                        {want: 1, err: "the bundle asked for 1 GPU, and its job may open 0 of the node's 0"},
		"fewer than asked by Slurm":   {want: 2, allowed: "yyyy", job: "1", err: "the bundle asked for 2 GPUs, and of those that Slurm gave its job (SLURM_JOB_GPUS=1) it may open 1"},
		"its own are not on the node": {want: 1, allowed: "yy", job: "7", err: "the bundle asked for 1 GPU, and of those that Slurm gave its job (SLURM_JOB_GPUS=7) it may open 0"},
	} {
		var present []gpu
		for i, letter := range test.allowed {
			present = append(present, gpu{index: i, allowed: letter == 'y'})
		}
		got, err := chooseGPUs(test.want, present, test.job)
		var chosen []int
		for _, g := range got {
			chosen = append(chosen, g.index)
		}
		if !slices.Equal(chosen, test.chosen) || err != nil && err.Error() != test.err || err == nil && test.err != "" {
			t.Errorf("%s: chose %v, %v; want %v, %s", name, chosen, err, test.chosen, test.err)
		}
	}
}

func TestDeviceFilesOfTheBundle(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nil)
	w.JobGPUs = "10,2"
	for name, mode := range map[string]os.FileMode{
		"nvidia0": 0o600, "nvidia2": 0o600, "nvidia10": 0o600, "nvidia01": 0o600, "nvidia": 0o600,
		"nvidia-modeset": 0o600, "nvidia-uvm": 0o600, "nvidiactl": 0o600, "nvidia-caps/nvidia-cap2": 0o400,
		"dri/renderD128": 0o600, "kfd": 0o600,
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(w.dev, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(w.dev, name), nil, mode))
	}
	r := &attemptRun{Worker: w}
	if a, err := r.allocateGPUs(); err != nil || a.gpus != nil || a.devices != nil || a.env() != nil || a.vendor != "" {
		t.Errorf("without GPUs: %+v, %v", a, err)
	}
	r.spec.GPUs = 2
	a, err := r.allocateGPUs()
	must(t, err)
	got := strings.ReplaceAll(strings.Join(a.devices, " "), w.dev+"/", "")
	if got != "nvidia2 nvidia10 nvidiactl nvidia-modeset nvidia-uvm nvidia-caps/nvidia-cap2" || a.vendor != gpudriver.NVIDIA {
		t.Errorf("devices %s of %s", got, a.vendor)
	}
	if env := a.env(); !slices.Equal(env, []string{"CUDA_VISIBLE_DEVICES=0,1"}) {
		t.Errorf("environment %q", env)
	}
}

func TestGPUsOfThisProcessAreNumberedAsInSLURMJOBGPUS(t *testing.T) {
	t.Parallel()
	const amd, other = "0x1002\n", "0x10de\n"
	for name, test := range map[string]struct {
		devices string
		vendors map[string]string
		want    []int
	}{
		"none":   {devices: "null"},
		"NVIDIA": {devices: "nvidia10 nvidia2 nvidiactl dri/renderD128 kfd", vendors: map[string]string{"renderD128": amd}, want: []int{2, 10}},
		"AMD":    {devices: "dri/renderD129 dri/renderD128 dri/renderD130 kfd", vendors: map[string]string{"renderD128": other, "renderD129": amd, "renderD130": amd}, want: []int{0, 1}},
	} {
		root := t.TempDir()
		dev, sys := filepath.Join(root, "dev"), filepath.Join(root, "sys")
		for device := range strings.FieldsSeq(test.devices) {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dev, device)), 0o700))
			must(t, os.WriteFile(filepath.Join(dev, device), nil, 0o600))
		}
		for device, vendor := range test.vendors {
			file := filepath.Join(sys, "class/drm", device, "device/vendor")
			must(t, os.MkdirAll(filepath.Dir(file), 0o700))
			must(t, os.WriteFile(file, []byte(vendor), 0o600))
		}
		found, err := GPUs(root)
		var got []int
		for _, g := range found {
			got = append(got, g.Index)
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v %v, want %v", name, got, err, test.want)
		}
	}
	if _, err := GPUs(filepath.Join(t.TempDir(), "nosuch")); err == nil {
		t.Error("no /dev is no GPUs")
	}
}

// Slurm gives MIG devices by name; several may be on one GPU.
func TestMIGDevicesAreThoseThatSlurmNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		want            int
		names, env, err string
	}{
		"two on one GPU":   {want: 2, names: "MIG-aa11,MIG-bb22", env: "CUDA_VISIBLE_DEVICES=MIG-aa11,MIG-bb22"},
		"one of two":       {want: 1, names: "MIG-aa11,MIG-bb22", env: "CUDA_VISIBLE_DEVICES=MIG-aa11"},
		"fewer than asked": {want: 2, names: "MIG-aa11", err: "the bundle asked for 2 GPUs, and its job has 1 (CUDA_VISIBLE_DEVICES=MIG-aa11)"},
		"whole":            {want: 1, names: "0", env: "CUDA_VISIBLE_DEVICES=0"},
	} {
		w := newWorker(t, nil)
		w.VisibleDevices = test.names
		must(t, os.WriteFile(filepath.Join(w.dev, "nvidia3"), nil, 0o600))
		r := &attemptRun{Worker: w}
		r.spec.GPUs = test.want
		a, err := r.allocateGPUs()
		if err != nil && err.Error() != test.err || err == nil && (test.err != "" || !slices.Equal(a.env(), []string{test.env}) || !slices.Equal(a.devices, []string{w.dev + "/nvidia3"})) {
			t.Errorf("%s: %+v with %q, %v", name, a, a.env(), err)
		}
	}
}

// The first render device of the node is that of its display.
func TestDeviceFilesOfAMDGPUs(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nil)
	must(t, os.Mkdir(filepath.Join(w.dev, "dri"), 0o700))
	must(t, os.WriteFile(filepath.Join(w.dev, "kfd"), nil, 0o600))
	for name, vendor := range map[string]string{"renderD128": "0x1a03", "renderD129": "0x1002", "renderD130": "0x1002", "renderD131": "0x1002", "card0": "0x1002"} {
		must(t, os.WriteFile(filepath.Join(w.dev, "dri", name), nil, 0o600))
		must(t, os.MkdirAll(filepath.Join(w.sys, "class/drm", name, "device"), 0o700))
		must(t, os.WriteFile(filepath.Join(w.sys, "class/drm", name, "device/vendor"), []byte(vendor+"\n"), 0o600))
	}
	for _, indexes := range []string{"1-2", "130,131"} { // by place, by device file
		w.JobGPUs = indexes
		r := &attemptRun{Worker: w}
		r.spec.GPUs = 2
		a, err := r.allocateGPUs()
		must(t, err)
		got := strings.ReplaceAll(strings.Join(a.devices, " "), w.dev+"/", "")
		if got != "dri/renderD130 dri/renderD131 kfd" || a.vendor != gpudriver.AMD {
			t.Errorf("%s: devices %s of %s", indexes, got, a.vendor)
		}
		if env := a.env(); !slices.Equal(env, []string{"ROCR_VISIBLE_DEVICES=0,1"}) {
			t.Errorf("environment %q", env)
		}
	}
}

func FuzzParseGPUIndexes(f *testing.F) {
	for _, s := range []string{"0", "0,1", "0-3", "0-1,3", "", "gpu", "5-1", "0-99999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		indices, err := ParseGPUIndexes(s)
		if err == nil && (len(indices) == 0 || slices.Min(indices) < 0) {
			t.Errorf("%q: %v", s, indices)
		}
	})
}
