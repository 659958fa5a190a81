package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// Times of the GPU measurements. nvidia-smi may take long if it has to load the driver, and its
// processor time counts as the job's.
const (
	gpuFirst   = 5 * time.Second  // after the start of the command
	gpuPause   = 30 * time.Second // the shortest pause between two measurements
	gpuIdle    = 100              // the pause lasts at least this many times the measurement
	gpuTimeout = 10 * time.Second // of one measurement
	gpuTries   = 3                // failures in a row before giving up
	// idleAfter is the time without any use after which a GPU counts as idle. nvidia-smi shows the use of the last
	// second at most, so that one sample proves nothing. With the pauses, an idle GPU is named within five minutes.
	idleAfter = 3 * time.Minute
)

// gpuSample is the use of an attempt's GPUs at one moment.
type gpuSample struct {
	busy   float64 // mean of all GPUs, from 0 to 1
	memory int64
	// idle lists the GPUs with a use of 0 %, by nvidia-smi's spelling of their bus addresses.
	idle []string
}

// gpuMeter asks nvidia-smi for the use of an attempt's GPUs.
type gpuMeter struct {
	program string
	// bus lists the GPUs' bus addresses in the spelling of /proc. It is empty if they are unknown.
	bus     []string
	n       int           // number of GPUs
	timeout time.Duration // of one measurement
}

// watchGPUs measures the GPUs from time to time, if nvidia-smi works. It affects nothing else.
func (r *attemptRun) watchGPUs(ctx context.Context) {
	if r.gpus.vendor != gpudriver.NVIDIA || len(r.gpus.mig) > 0 { // nvidia-smi measures whole GPUs
		return
	}
	m := gpuMeter{
		program: r.driver.Program("nvidia-smi"),
		bus:     busAddresses(r.procDir(), r.gpus.gpus),
		n:       len(r.gpus.gpus),
		timeout: gpuTimeout,
	}
	if m.program == "" {
		return
	}
	failed := 0
	for rest := gpuFirst; pause.For(ctx, rest) == nil; {
		began := time.Now()
		s, err := m.read(ctx)
		took := time.Since(began)
		rest = max(gpuPause, gpuIdle*took)
		if err == nil {
			failed = 0
			r.usage.addGPUSample(time.Now(), s)
			continue
		}
		if failed++; failed == gpuTries && ctx.Err() == nil {
			r.usage.forgetIdleGPUs()
			r.Log.InfoContext(ctx, "GPU use is no longer measured", slog.Any("error", err))
			return
		}
	}
}

// busAddresses finds the bus addresses of GPUs. It returns nil unless it finds all.
func busAddresses(proc string, gpus []gpu) []string {
	listed, err := gpudriver.GPUs(proc)
	if err != nil {
		return nil
	}
	var ids []string
	for _, l := range listed {
		if slices.ContainsFunc(gpus, func(g gpu) bool { return g.index == l.Minor }) {
			ids = append(ids, l.BusID)
		}
	}
	if len(ids) != len(gpus) {
		return nil
	}
	return ids
}

// read takes a sample. It does not wait for an nvidia-smi that a broken GPU keeps from ending when
// it is killed.
func (m gpuMeter) read(ctx context.Context) (gpuSample, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	args := []string{m.program, "--query-gpu=pci.bus_id,utilization.gpu,memory.used", "--format=csv,noheader,nounits"}
	if len(m.bus) > 0 {
		args = append(args, "--id="+strings.Join(m.bus, ","))
	}
	out, err := background.Call(ctx, func() ([]byte, error) { return command.Command{Args: args}.Output(ctx) })
	if ctx.Err() != nil {
		return gpuSample{}, fmt.Errorf("measure the GPUs: nvidia-smi: %w", ctx.Err())
	}
	if err != nil {
		return gpuSample{}, fmt.Errorf("measure the GPUs: %w", err)
	}
	return m.parse(string(out))
}

// parse reads nvidia-smi's table. It fails if the table has other GPUs and their bus addresses are
// unknown. Values that a GPU does not report, such as a divided one, count as 0.
func (m gpuMeter) parse(out string) (s gpuSample, err error) {
	rows := 0
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), ", ")
		if len(fields) != 3 {
			return gpuSample{}, fmt.Errorf("measure the GPUs: nvidia-smi prints %q", line)
		}
		if len(m.bus) > 0 && !slices.ContainsFunc(m.bus, func(id string) bool { return sameBus(id, fields[0]) }) {
			continue
		}
		rows++
		if percent, err := strconv.ParseUint(fields[1], 10, 8); err == nil {
			s.busy += float64(percent) / 100 / float64(m.n)
			if percent == 0 {
				s.idle = append(s.idle, strings.Clone(fields[0]))
			}
		}
		if mib, err := strconv.ParseUint(fields[2], 10, 32); err == nil {
			s.memory += int64(mib) << 20
		}
	}
	if rows != m.n {
		return gpuSample{}, fmt.Errorf("measure the GPUs: nvidia-smi lists %d of %d", rows, m.n)
	}
	return s, nil
}

// sameBus compares bus addresses. Their domain has eight digits in nvidia-smi and four in /proc.
func sameBus(a, b string) bool {
	short := func(id string) string {
		domain, rest, _ := strings.Cut(strings.ToLower(id), ":")
		return strings.TrimLeft(domain, "0") + ":" + rest
	}
	return short(a) == short(b)
}
