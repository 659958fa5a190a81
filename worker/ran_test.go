package worker

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver/drivertest"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestRecordsTellWhatTheCommandRanOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, asked := filepath.Join(dir, "apptainer"), filepath.Join(dir, "asked")
	must(t, syscall.Mkfifo(asked, 0o600))
	testenv.WriteProgram(t, program, []byte("#!/bin/sh\necho \"$1\" >"+asked+"\necho apptainer version 1.3.4-1.el9\n"))
	choice := container.Choice{Runtime: runtimes.Apptainer, Program: program, Reason: "r"}
	s := newSite(t, t.TempDir(), func(s *spool.Spec) { s.GPUs = 2 })
	w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
		c.OnChoice(choice)
		c.OnStart(container.Running{PID: 1})
		text, err := os.ReadFile(asked) // waits until it is asked
		if err != nil || string(text) != "--version\n" {
			t.Errorf("asked %q, %v", text, err)
		}
		return container.Exit{}, nil
	})
	w.JobGPUs, w.Cluster, w.Version = "0,1", "big", "v1.2.3"
	gpuNode(t, &w, eightGPUs(), "exit 1")
	drivertest.Write(t, w.driver.Root, "sys/module/nvidia/version", "570.86.15\n", 0o644)
	got := s.run(t, w).Ran
	got.RuntimeVersion = "" // the command may have ended before the answer
	want := spool.Ran{
		Runtime: runtimes.Apptainer, Reason: "r", Worker: "v1.2.3", Cluster: "big",
		GPUs: []string{"NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"}, GPUDriver: "570.86.15",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVersionOfTheRuntimeIsNotedUnlessItIsAnotherByThen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "apptainer"), filepath.Join(dir, "broken")
	testenv.WriteProgram(t, good, []byte("#!/bin/sh\necho apptainer version 1.3.4-1.el9\n"))
	testenv.WriteProgram(t, bad, []byte("#!/bin/sh\necho no version 1 of mine; exit 1\n"))
	for name, test := range map[string]struct {
		now, asked container.Choice
		want       string
	}{
		"noted":    {container.Choice{Runtime: runtimes.Apptainer}, container.Choice{Runtime: runtimes.Apptainer, Program: good}, "1.3.4-1.el9"},
		"another":  {container.Choice{Runtime: runtimes.Builtin}, container.Choice{Runtime: runtimes.Apptainer, Program: good}, ""},
		"broken":   {container.Choice{Runtime: runtimes.Apptainer}, container.Choice{Runtime: runtimes.Apptainer, Program: bad}, ""},
		"built-in": {container.Choice{Runtime: runtimes.Builtin}, container.Choice{Runtime: runtimes.Builtin}, ""},
	} {
		r := &attemptRun{Worker: newWorker(t, nil), usage: newUsage("t")}
		r.usage.setRuntime(r.ran(test.now))
		r.askVersion(t.Context(), test.asked)
		if got := r.usage.complete(time.Time{}, spool.Exit{}).Ran.RuntimeVersion; got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The records of an older worker, and what is not known.
func TestRecordWithoutThePlatformIsRead(t *testing.T) {
	t.Parallel()
	var e spool.Exit
	must(t, json.Unmarshal([]byte(`{"format": 1, "token": "t", "cause": "succeeded", "ran": {"runtime": "builtin", "reason": "r"}}`), &e))
	if diff := cmp.Diff(spool.Ran{Runtime: runtimes.Builtin, Reason: "r"}, e.Ran); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r := &attemptRun{Worker: newWorker(t, nil)}
	if got := r.ran(container.Choice{Runtime: runtimes.Builtin}); !cmp.Equal(got, spool.Ran{Runtime: runtimes.Builtin}) {
		t.Errorf("without GPUs: %+v", got)
	}
	r.gpus = gpuAllocation{vendor: gpudriver.NVIDIA, gpus: []gpu{{index: 0}}}
	if got := r.ran(container.Choice{}); !cmp.Equal(got, spool.Ran{GPUs: []string{""}}) {
		t.Errorf("without the driver's list: %+v", got)
	}
}

func TestModelsOfDividedAndOfAMDsGPUs(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	for minor, model := range map[string]string{"0": "NVIDIA A100", "1": "NVIDIA A100", "2": "NVIDIA A30", "3": "Unknown"} {
		drivertest.Write(t, proc, "driver/nvidia/gpus/0000:0"+minor+":00.0/information", "Model: \t\t "+model+"\nDevice Minor: \t "+minor+"\n", 0o600)
	}
	for name, test := range map[string]struct {
		gpus []gpu
		mig  []string
		want []string
	}{
		"divided":               {[]gpu{{index: 0}, {index: 1}}, []string{"MIG-a", "MIG-b", "MIG-c"}, []string{"MIG device of NVIDIA A100", "MIG device of NVIDIA A100", "MIG device of NVIDIA A100"}},
		"divided, of any model": {[]gpu{{index: 0}, {index: 2}}, []string{"MIG-a"}, []string{""}},
		"whole":                 {[]gpu{{index: 2}, {index: 3}, {index: 7}}, nil, []string{"NVIDIA A30", "", ""}},
	} {
		if got := (gpuAllocation{gpus: test.gpus, mig: test.mig}).modelsNVIDIA(proc); !cmp.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	w := newWorker(t, nil)
	drivertest.Write(t, w.sys, "class/drm/renderD129/device/product_name", "AMD INSTINCT MI250X\n", 0o600)
	drivertest.Write(t, w.sys, "module/amdgpu/version", "6.8.5\n", 0o600)
	must(t, os.MkdirAll(w.sys, 0o700))
	r := &attemptRun{Worker: w, gpus: gpuAllocation{vendor: gpudriver.AMD, gpus: []gpu{{path: "/dev/dri/renderD128"}, {path: "/dev/dri/renderD129"}}}}
	want := spool.Ran{GPUs: []string{"", "AMD INSTINCT MI250X"}, GPUDriver: "6.8.5"}
	if got := r.ran(container.Choice{}); !cmp.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestVersionsOfRuntimesAreRead(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]string{
		"apptainer version 1.3.4-1.el9":                          "1.3.4-1.el9",
		"singularity-ce version 3.11.4-jammy":                    "3.11.4-jammy",
		"podman version 4.3.1":                                   "4.3.1",
		"Docker version 20.10.24+dfsg1, build 297e128":           "20.10.24+dfsg1",
		"Emulate Docker CLI using podman.\npodman version 4.9.3": "4.9.3",
	} {
		if m := runtimeVersion().FindStringSubmatch(out); m == nil || m[1] != want {
			t.Errorf("%q: %q, want %q", out, m, want)
		}
	}
}
