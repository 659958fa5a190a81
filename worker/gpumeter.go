package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/internal/command"
)

// How often the GPUs are looked at. nvidia-smi may take long where the driver
// has to be woken, and what it takes is the job's.
const (
	gpuFirst    = 5 * time.Second  // after the start of the command
	gpuPause    = 30 * time.Second // between two looks, and at least
	gpuIdle     = 100              // times as long as a look took
	gpuPatience = 10 * time.Second // with one look
	gpuTries    = 3                // that may fail one after another
)

// gpuSample is what a run's GPUs do at a moment.
type gpuSample struct {
	busy   float64 // from 0 to 1, their mean
	memory int64
}

// gpuMeter asks nvidia-smi for the GPUs of a run.
type gpuMeter struct {
	program string
	// bus are where the GPUs are, as /proc spells it; none where that is not
	// known.
	bus []string
	n   int // GPUs
	// patience bounds one look.
	patience time.Duration
}

// watchGPUs looks at what the GPUs do, now and then, where nvidia-smi answers.
// Nothing depends on that.
func (r *run) watchGPUs(ctx context.Context) {
	if r.gpus.maker != gpudriver.NVIDIA || len(r.gpus.parts) > 0 { // nvidia-smi tells of whole GPUs
		return
	}
	m := gpuMeter{
		program:  r.driver.Program("nvidia-smi"),
		bus:      busIDs(r.procDir(), r.gpus.gpus),
		n:        len(r.gpus.gpus),
		patience: gpuPatience,
	}
	if m.program == "" {
		return
	}
	failed := 0
	for rest := gpuFirst; pause(ctx, rest); {
		began := time.Now() //nolint:forbidigo // how long it takes decides the rest
		s, err := m.read(ctx)
		took := time.Since(began) //nolint:forbidigo // as above
		rest = max(gpuPause, gpuIdle*took)
		if err == nil {
			failed = 0
			r.account.useGPUs(s)
			continue
		}
		if failed++; failed == gpuTries && ctx.Err() == nil {
			r.Log.InfoContext(ctx, "the GPUs are no longer looked at", slog.Any("error", err))
			return
		}
	}
}

// busIDs finds where GPUs are on the bus (Linux driver's README, "Proc
// interface": gpus/BUS-ID/information).
func busIDs(proc string, gpus []gpu) []string {
	dir := filepath.Join(proc, "driver/nvidia/gpus")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var ids []string
	for _, e := range entries {
		_, minor, ok := strings.Cut(readText(filepath.Join(dir, e.Name(), "information")), "Device Minor:")
		minor, _, _ = strings.Cut(minor, "\n")
		n, err := strconv.Atoi(strings.TrimSpace(minor))
		if ok && err == nil && slices.ContainsFunc(gpus, func(g gpu) bool { return g.index == n }) {
			ids = append(ids, e.Name())
		}
	}
	if len(ids) != len(gpus) {
		return nil
	}
	return ids
}

// read takes a sample. A nvidia-smi that does not end even when it is killed, as
// one that waits for a broken GPU, is left to itself.
func (m gpuMeter) read(ctx context.Context) (gpuSample, error) {
	ctx, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	args := []string{m.program, "--query-gpu=pci.bus_id,utilization.gpu,memory.used", "--format=csv,noheader,nounits"}
	if len(m.bus) > 0 {
		args = append(args, "--id="+strings.Join(m.bus, ","))
	}
	type answer struct {
		out []byte
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		out, err := command.Command{Args: args}.Output(ctx)
		answers <- answer{out, err}
	}()
	select {
	case <-ctx.Done():
		return gpuSample{}, fmt.Errorf("look at the GPUs: nvidia-smi: %w", ctx.Err())
	case a := <-answers:
		if a.err != nil {
			return gpuSample{}, fmt.Errorf("look at the GPUs: %w", a.err)
		}
		return m.parse(string(a.out))
	}
}

// parse reads nvidia-smi's table. Where not all of the node's GPUs are the
// run's, it has to be known which are. What a GPU does not tell, such as one
// that is divided, counts for nothing.
func (m gpuMeter) parse(out string) (s gpuSample, err error) {
	rows := 0
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), ", ")
		if len(fields) != 3 {
			return gpuSample{}, fmt.Errorf("look at the GPUs: nvidia-smi answers %q", line)
		}
		if len(m.bus) > 0 && !slices.ContainsFunc(m.bus, func(id string) bool { return sameBus(id, fields[0]) }) {
			continue
		}
		rows++
		if percent, err := strconv.ParseFloat(fields[1], 64); err == nil {
			s.busy += percent / 100 / float64(m.n)
		}
		if mib, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
			s.memory += mib << 20
		}
	}
	if rows != m.n {
		return gpuSample{}, fmt.Errorf("look at the GPUs: nvidia-smi answers for %d of %d", rows, m.n)
	}
	return s, nil
}

// sameBus compares places on the bus: nvidia-smi gives the domain eight digits
// where /proc gives it four.
func sameBus(a, b string) bool {
	short := func(id string) string {
		domain, rest, _ := strings.Cut(strings.ToLower(id), ":")
		return strings.TrimLeft(domain, "0") + ":" + rest
	}
	return short(a) == short(b)
}
