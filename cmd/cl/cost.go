package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// costFields are the fields of a run's cost, in the order in which cl info prints them. They are computed from the
// metadata and from the attribute cost, which CodaLab's own server does not have.
func costFields() []string {
	return []string{"time_staging", "time_queued", "time_allocated", "cpu_hours", "gpu_hours", "gpu_usage", "gpu_memory_max", "energy", "efficiency"}
}

// costField returns a field of a run's cost; nil if it is not known. ok is false for a field of another kind.
func costField(b codalab.Bundle, field string) (value any, ok bool) {
	if field == "efficiency" {
		if text := efficiency(b); text != "" {
			return text, true
		}
		return nil, true
	}
	c := b.Cost
	if c == nil {
		c = &codalab.Cost{}
	}
	known := func(n float64) any {
		if b.Cost == nil {
			return nil
		}
		return math.Round(n*1e4) / 1e4 // the clocks are no better, and people read it
	}
	switch field {
	case "time_staging":
		return known(c.StagingSeconds), true
	case "time_queued":
		return known(c.QueuedSeconds), true
	case "time_allocated":
		return known(c.AllocatedSeconds), true
	case "cpu_hours":
		return known(c.AllocatedSeconds / 3600 * max(b.Metadata.Float("request_cpus"), 1)), true
	case "gpu_hours":
		return known(c.AllocatedSeconds / 3600 * b.Metadata.Float("request_gpus")), true
	case "gpu_usage":
		if c.GPUs != nil {
			return c.GPUs.Busy, true
		}
		return nil, true
	case "gpu_memory_max":
		if c.GPUs != nil {
			return float64(c.GPUs.MemoryMax), true
		}
		return nil, true
	case "energy":
		if c.EnergyJoules > 0 {
			return float64(c.EnergyJoules), true
		}
		return nil, true
	}
	return nil, false
}

// addCost adds a line for each known field of a bundle's cost, if its server keeps one.
func addCost(b codalab.Bundle, add func(key, value string)) {
	for _, key := range costFields() {
		if v, _ := costField(b, key); v != nil && b.Cost != nil {
			add(key, codalab.FormatMetadata(key, v, time.Local))
		}
	}
}

// efficiency says which shares of its request a run has used; empty for a run whose command has not begun.
func efficiency(b codalab.Bundle) string {
	m := b.Metadata
	if b.Type != codalab.TypeRun || m.Float("time") <= 0 {
		return ""
	}
	of := func(share float64, n int64, what string) string {
		if n != 1 {
			what += "s"
		}
		return fmt.Sprintf("%.0f %% of %d %s", 100*share, n, what)
	}
	said := []string{of(m.Float("cpu_usage"), max(m.Int("request_cpus"), 1), "CPU")}
	if m.Has("memory_usage") {
		said = append(said, fmt.Sprintf("%.0f %% of the memory", 100*m.Float("memory_usage")))
	}
	if gpus := m.Int("request_gpus"); gpus > 0 && b.Cost != nil && b.Cost.GPUs != nil {
		said = append(said, of(b.Cost.GPUs.Busy, gpus, "GPU"))
	}
	return strings.Join(said, ", ")
}
