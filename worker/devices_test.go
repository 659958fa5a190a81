package worker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
		"not constrained, no word":    {want: 2, allowed: "yyyy", err: "the job may open 4 GPUs where the bundle asked for 2, and which are its own is unknown: SLURM_JOB_GPUS is not set"},
		"not constrained, odd word":   {want: 1, allowed: "yy", job: "gpu:a", err: "the job may open 2 GPUs where the bundle asked for 1, and which are its own is unknown: SLURM_JOB_GPUS=gpu:a lists no indices"},
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
	w.GPUs = "10,2"
	for _, name := range []string{"nvidia0", "nvidia2", "nvidia10", "nvidia01", "nvidia-modeset", "nvidia-uvm", "nvidiactl", "nvidia"} {
		must(t, os.WriteFile(filepath.Join(w.dev, name), nil, 0o600))
	}
	r := &run{Worker: w}
	if gpus, devices, err := r.devices(); err != nil || gpus != nil || devices != nil || gpuEnv(gpus) != nil {
		t.Errorf("without GPUs: %v, %v, %v", gpus, devices, err)
	}
	r.spec.GPUs = 2
	gpus, devices, err := r.devices()
	must(t, err)
	got := strings.ReplaceAll(strings.Join(devices, " "), w.dev+"/", "")
	if got != "nvidia2 nvidia10 nvidiactl nvidia-uvm" {
		t.Errorf("devices %s", got)
	}
	if env := gpuEnv(gpus); !slices.Equal(env, []string{"CUDA_VISIBLE_DEVICES=0,1"}) {
		t.Errorf("environment %q", env)
	}
}

func FuzzParseIndices(f *testing.F) {
	for _, s := range []string{"0", "0,1", "0-3", "0-1,3", "", "gpu", "5-1", "0-99999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		indices, err := parseIndices(s)
		if err == nil && (len(indices) == 0 || slices.Min(indices) < 0) {
			t.Errorf("%q: %v", s, indices)
		}
	})
}
