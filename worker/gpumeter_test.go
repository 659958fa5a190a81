package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver/drivertest"
	"github.com/cl-slurm/cl-slurm/spool"
)

// eightGPUs are the devices' minor numbers on a node with eight A100, by bus address. Their order
// differs.
func eightGPUs() map[string]string {
	return map[string]string{
		"0000:07:00.0": "2", "0000:0b:00.0": "3", "0000:48:00.0": "0", "0000:4c:00.0": "1",
		"0000:88:00.0": "6", "0000:8b:00.0": "7", "0000:c8:00.0": "4", "0000:cb:00.0": "5",
	}
}

// gpuNode gives a worker's node these GPUs, and an nvidia-smi that runs a shell's commands.
func gpuNode(t *testing.T, w *Worker, gpus map[string]string, smi string) {
	t.Helper()
	w.driver = gpudriver.Host{Root: t.TempDir()}
	drivertest.Write(t, w.driver.Root, "usr/bin/nvidia-smi", "#!/bin/sh\n"+smi, 0o755)
	for bus, minor := range gpus {
		must(t, os.WriteFile(filepath.Join(w.dev, "nvidia"+minor), nil, 0o600))
		drivertest.Write(t, w.proc, "driver/nvidia/gpus/"+bus+"/information",
			"Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 77\nBus Type: \t PCIe\nBus Location: \t "+bus+"\nDevice Minor: \t "+minor+"\nGPU Excluded:\t No\n", 0o600)
	}
}

func TestOwnGPUsAreMeasured(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		gpus map[string]string
		out  string
		want spool.GPUUsage
	}{
		"of eight": {
			gpus: eightGPUs(),
			out:  "00000000:48:00.0, 97, 23034\n00000000:4C:00.0, 33, 81000\n",
			want: spool.GPUUsage{Busy: .65, BusyMean: .65, MemoryBytes: (23034 + 81000) << 20, MemoryPeak: (23034 + 81000) << 20, Samples: 3},
		},
		"all are told": {
			gpus: eightGPUs(),
			out:  "00000000:07:00.0, 100, 1\n00000000:48:00.0, 0, 5\n00000000:4C:00.0, 50, 6\n",
			want: spool.GPUUsage{Busy: .25, BusyMean: .25, MemoryBytes: 11 << 20, MemoryPeak: 11 << 20, Samples: 3},
		},
		"divided": {
			gpus: eightGPUs(),
			out:  "00000000:48:00.0, [N/A], 87\n00000000:4C:00.0, [N/A], 45\n",
			want: spool.GPUUsage{MemoryBytes: 132 << 20, MemoryPeak: 132 << 20, Samples: 3},
		},
		"no word in /proc": {
			gpus: nil,
			out:  "00000000:48:00.0, 20, 100\n00000000:4C:00.0, 40, 100\n",
			want: spool.GPUUsage{Busy: .3, BusyMean: .3, MemoryBytes: 200 << 20, MemoryPeak: 200 << 20, Samples: 3},
		},
		"whose they are is not known": {gpus: nil, out: "00000000:48:00.0, 20, 100\n"},
		"off the bus":                 {gpus: eightGPUs(), out: "Unable to determine the device handle for GPU0000:01:00.0: GPU has fallen off the bus.\n"},
		"silent":                      {gpus: eightGPUs()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := newWorker(t, obeys)
			w.JobGPUs = "0,1"
			for _, minor := range []string{"0", "1"} {
				must(t, os.WriteFile(filepath.Join(w.dev, "nvidia"+minor), nil, 0o600))
			}
			calls := filepath.Join(t.TempDir(), "calls")
			gpuNode(t, &w, test.gpus, "echo \"$*\" >>"+calls+"; cat <<'EOF'\n"+test.out+"EOF\n")
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, dir, func(s *spool.Spec) { s.GPUs, s.Seconds = 2, 80 })
				got := s.run(t, w).Usage.GPU
				got.Busy, got.BusyMean = rounded(got.Busy), rounded(got.BusyMean)
				if got != test.want {
					t.Errorf("used %+v, want %+v", got, test.want)
				}
			})
			log, err := os.ReadFile(calls)
			must(t, err)
			if test.gpus != nil && strings.Count(string(log), "--id=0000:48:00.0,0000:4c:00.0\n") != 3 || strings.Count(string(log), "\n") != 3 {
				t.Errorf("nvidia-smi was called so: %s", log)
			}
		})
	}
}

func rounded(x float64) float64 { return float64(int(x*1000+.5)) / 1000 }

func TestMeanAndPeakOfGPUsAreKept(t *testing.T) {
	t.Parallel()
	a := newUsage("t")
	for _, s := range []gpuSample{{busy: 1, memory: 10}, {busy: .5, memory: 30}, {busy: 0, memory: 20}} {
		a.addGPUSample(time.Time{}, s)
	}
	want := spool.GPUUsage{Busy: 0, BusyMean: .5, MemoryBytes: 20, MemoryPeak: 30, Samples: 3}
	if got := a.snapshot(time.Time{}).Usage.GPU; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A sample shows the use of the last second at most, so that only minutes of samples prove anything.
func TestGPUIsIdleAfterMinutesWithoutUse(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_800_000_000, 0)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	a := newUsage("t")
	for _, step := range []struct {
		at    time.Duration
		idle  []string
		want  int
		since time.Duration
	}{
		{0, []string{"a"}, 0, 0},
		{30 * time.Second, []string{"a", "b"}, 0, 0},
		{3*time.Minute - 1, []string{"a", "b"}, 0, 0},
		{3 * time.Minute, []string{"a", "b"}, 1, 0},
		{4 * time.Minute, []string{"a", "b"}, 2, 30 * time.Second},
		{5 * time.Minute, []string{"b"}, 1, 30 * time.Second}, // a has worked
		{8*time.Minute - 1, []string{"a", "b"}, 1, 30 * time.Second},
		{9 * time.Minute, []string{"a"}, 0, 0},
		{11 * time.Minute, []string{"a"}, 1, 8*time.Minute - 1},
	} {
		a.addGPUSample(at(step.at), gpuSample{idle: step.idle})
		want := time.Time{}
		if step.want > 0 {
			want = at(step.since)
		}
		if got := a.snapshot(time.Time{}).Usage.GPU; got.Idle != step.want || !got.IdleSince.Equal(want) {
			t.Errorf("after %s: %d idle since %s, want %d since %s", step.at, got.Idle, got.IdleSince, step.want, want)
		}
	}
	a.forgetIdleGPUs()
	if got := a.snapshot(time.Time{}).Usage.GPU; got.Idle != 0 || !got.IdleSince.IsZero() || got.Samples != 9 {
		t.Errorf("not measured any more: %+v", got)
	}
}

// The worker reads nvidia-smi's own words: one GPU of two is idle, and a divided GPU that tells no use is not.
func TestIdleGPUsAreSeenWithinFiveMinutes(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]int{
		"00000000:48:00.0, 0, 23034\n00000000:4C:00.0, 33, 81000\n":  1,
		"00000000:48:00.0, 0, 23034\n00000000:4C:00.0, 0, 81000\n":   2,
		"00000000:48:00.0, [N/A], 87\n00000000:4C:00.0, 1, 45\n":     0,
		"00000000:48:00.0, [N/A], 87\n00000000:4C:00.0, [N/A], 45\n": 0,
		"Unable to determine the device handle: GPU is lost.\n":      0,
	} {
		dir := t.TempDir()
		w := newWorker(t, obeys)
		w.JobGPUs = "0,1"
		for _, minor := range []string{"0", "1"} {
			must(t, os.WriteFile(filepath.Join(w.dev, "nvidia"+minor), nil, 0o600))
		}
		gpuNode(t, &w, eightGPUs(), "cat <<'EOF'\n"+out+"EOF\n")
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, dir, func(s *spool.Spec) { s.GPUs, s.Seconds = 2, 5*60 })
			began := time.Now()
			got := s.run(t, w).Usage.GPU
			if got.Idle != want || want > 0 && (got.IdleSince.Before(began) || got.IdleSince.Sub(began) > 10*time.Second) {
				t.Errorf("%q: %d idle since %s, want %d", out, got.Idle, got.IdleSince, want)
			}
		})
	}
}

func TestNvidiaSmiThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nil)
	gpuNode(t, &w, map[string]string{"0000:48:00.0": "0"}, "trap '' TERM; while kill -0 $PPID; do sleep 1; done") // it ends with the test
	m := gpuMeter{program: w.driver.Program("nvidia-smi"), n: 1, timeout: 10 * time.Millisecond}
	if _, err := m.read(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestBundleWithGPUsIsShownTheirDriver(t *testing.T) {
	t.Parallel()
	for _, gpus := range []int{0, 1} {
		w := newWorker(t, func(ctx context.Context, c container.Container) (container.Exit, error) {
			if (c.GPUVendor == gpudriver.NVIDIA) != (gpus == 1) || (len(c.Devices) == 1) != (gpus == 1) {
				t.Errorf("with %d GPUs: the driver of %q, devices %q", gpus, c.GPUVendor, c.Devices)
			}
			return succeeds(ctx, c)
		})
		must(t, os.WriteFile(filepath.Join(w.dev, "nvidia0"), nil, 0o600))
		s := newSite(t, t.TempDir(), func(s *spool.Spec) { s.GPUs = gpus })
		s.run(t, w)
	}
}
