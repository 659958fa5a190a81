package local

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/worker"
)

// information returns the text of NVIDIA's driver about a GPU.
func information(uuid string, minor int) string {
	return fmt.Sprintf("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 331\nGPU UUID: \t %s\nBus Type: \t PCIe\nBus Location: \t 0000:00:00.0\nDevice Minor: \t %d\nGPU Excluded:\t No\n", uuid, minor)
}

func TestGPUsAreThoseThatThisProcessMayOpenInTheOrderOfNvidiaSmi(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]string
		want  []GPU
	}{
		"none": {files: map[string]string{"dev/null": ""}},
		"by PCI address": {
			files: map[string]string{
				"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidia3": "", "dev/nvidiactl": "",
				"proc/driver/nvidia/gpus/0000:07:00.0/information": information("GPU-b", 3),
				"proc/driver/nvidia/gpus/0000:0a:00.0/information": information("GPU-c", 0),
				"proc/driver/nvidia/gpus/0000:4c:00.0/information": information("GPU-x", 2), // of another allocation
				"proc/driver/nvidia/gpus/0001:01:00.0/information": information("GPU-????????-????-????-????-????????????", 1),
			},
			want: []GPU{{Index: 3, UUID: "GPU-b"}, {Index: 0, UUID: "GPU-c"}, {Index: 1}},
		},
		"without descriptions": {
			files: map[string]string{"dev/nvidia10": "", "dev/nvidia9": ""},
			want:  []GPU{{Index: 9}, {Index: 10}},
		},
		"AMD": {
			files: map[string]string{
				"dev/kfd": "", "dev/dri/renderD128": "", "dev/dri/renderD129": "", "dev/dri/renderD130": "",
				"sys/class/drm/renderD128/device/vendor": "0x1a03\n", "sys/class/drm/renderD129/device/vendor": "0x1002\n", "sys/class/drm/renderD130/device/vendor": "0x1002\n",
			},
			want: []GPU{{Index: 0}, {Index: 1}},
		},
	} {
		root := t.TempDir()
		for file, text := range test.files {
			path := filepath.Join(root, file)
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must(t, os.WriteFile(path, []byte(text), 0o600))
		}
		got, err := worker.GPUs(root)
		must(t, err)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestThisMachineIsFound(t *testing.T) {
	t.Parallel()
	m, err := FindMachine()
	must(t, err)
	if len(m.CPUs) != runtime.NumCPU() || !slices.IsSorted(m.CPUs) || m.Memory < 64<<20 {
		t.Errorf("%+v", m)
	}
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "proc"), 0o700))
	for text, want := range map[string]int64{"MemFree: 1 kB\nMemTotal:       16384256 kB\n": 16384256 << 10, "MemFree: 1 kB\n": 0} {
		must(t, os.WriteFile(filepath.Join(root, "proc/meminfo"), []byte(text), 0o600))
		if got, err := findMemory(root); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

func TestCPUSetIsReadAsCodaLabWritesIt(t *testing.T) {
	t.Parallel()
	present := []int{0, 1, 2, 3, 8}
	for arg, want := range map[string]struct {
		cpus []int
		err  string
	}{
		"ALL":  {cpus: present},
		"2":    {cpus: []int{2}},
		"8, 0": {cpus: []int{0, 8}},
		"":     {err: `"" is not the number of a CPU: name numbers separated by commas, or ALL`},
		"0-3":  {err: `"0-3" is not the number of a CPU: name numbers separated by commas, or ALL`},
		"1,9":  {err: "CPU 9 is not one that this worker may use, which are 0-3,8"},
		"-1":   {err: "CPU -1 is not one that this worker may use, which are 0-3,8"},
		"1,1":  {err: "CPU 1 is named twice"},
	} {
		cpus, err := ParseCPUSet(arg, present)
		if !slices.Equal(cpus, want.cpus) || fmt.Sprint(err) != orNil(want.err) {
			t.Errorf("%q: %v, %v", arg, cpus, err)
		}
	}
}

func TestGPUSetIsReadAsCodaLabWritesIt(t *testing.T) {
	t.Parallel()
	present := []GPU{{Index: 3, UUID: "GPU-b"}, {Index: 0, UUID: "GPU-c"}, {Index: 1}}
	const which = ": name them separated by commas, or ALL, or NONE"
	for arg, want := range map[string]struct {
		gpus []int // Index
		err  string
	}{
		"ALL":       {gpus: []int{3, 0, 1}},
		"":          {},
		"NONE":      {},
		"0":         {gpus: []int{3}}, // as nvidia-smi numbers them
		"2,0":       {gpus: []int{3, 1}},
		"GPU-c":     {gpus: []int{0}},
		"2, GPU-b":  {gpus: []int{3, 1}},
		"GPU-":      {err: "GPU GPU- is not one that this worker may use: it may use GPUs 0 to 2"},
		"3":         {err: "GPU 3 is not one that this worker may use: it may use GPUs 0 to 2"},
		"-1":        {err: "GPU -1 is not one that this worker may use: it may use GPUs 0 to 2"},
		"0,GPU-b":   {err: "GPU GPU-b is named twice"},
		"1,":        {err: `"" is not the index or the UUID of a GPU` + which},
		"all":       {err: `"all" is not the index or the UUID of a GPU` + which},
		"GPU-c,0,0": {err: "GPU 0 is named twice"},
	} {
		gpus, err := ParseGPUSet(arg, present)
		var indexes []int
		for _, g := range gpus {
			indexes = append(indexes, g.Index)
		}
		if !slices.Equal(indexes, want.gpus) || fmt.Sprint(err) != orNil(want.err) {
			t.Errorf("%q: %v, %v", arg, gpus, err)
		}
	}
	if _, err := ParseGPUSet("0", nil); fmt.Sprint(err) != "GPU 0 is not one that this worker may use: it may use no GPU" {
		t.Error(err)
	}
}

func orNil(message string) string {
	if message == "" {
		return "<nil>"
	}
	return message
}
