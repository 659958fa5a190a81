package costs

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// Text returns a report for people.
func Text(r Report) string {
	var said string
	switch {
	case r.Total.Jobs == 0:
		said = "No job of a bundle ended in this time.\n"
	case r.Jobs != nil:
		said = termtext.Table(jobRows(r.Jobs)) + "\n" + totalText(r.Total)
	default:
		said = termtext.Table(sumRows(r.Sums)) + "\n" + totalText(r.Total)
	}
	if r.Note != "" {
		said += r.Note + "\n"
	}
	return said
}

func jobRows(lines []Line) [][]string {
	rows := [][]string{{"BUNDLE", "JOB", "NODE", "USER", "QUEUE", "ENDED", "QUEUED", "ELAPSED", "CPUS", "CPU USE", "GPUS", "GPU-HOURS", "GPU USE", "ENERGY"}}
	for _, l := range lines {
		rows = append(rows, []string{
			l.Bundle[:min(len(l.Bundle), 10)], l.Job.String(), l.Node, l.User, l.Queue, termtext.Clock(l.End), duration(l.QueuedSeconds), duration(l.ElapsedSeconds),
			strconv.FormatInt(l.CPUs, 10), percent(&l.CPUEfficiency), strconv.FormatInt(l.GPUs, 10), hours(l.GPUHours), percent(l.GPUUse), energy(l.EnergyJoules),
		})
	}
	return rows
}

func sumRows(sums []Sum) [][]string {
	rows := [][]string{{"NAME", "BUNDLES", "JOBS", "QUEUED", "CPU-HOURS", "CPU USE", "GPU-HOURS", "GPU USE", "ENERGY"}}
	for _, s := range sums {
		name := s.Name
		if name == "" {
			name = "(none)"
		}
		rows = append(rows, []string{
			name, strconv.Itoa(s.Bundles), strconv.Itoa(s.Jobs), duration(s.QueuedSeconds / float64(max(s.Jobs, 1))),
			hours(s.CPUHours), percent(&s.CPUEfficiency), hours(s.GPUHours), percent(s.GPUUse), energy(s.EnergyJoules),
		})
	}
	return rows
}

func totalText(s Sum) string {
	said := fmt.Sprintf("%s of %s: %s CPU-hours, of which %s were used, and %s GPU-hours",
		termtext.Count(s.Jobs, "job"), termtext.Count(s.Bundles, "bundle"), hours(s.CPUHours), percent(&s.CPUEfficiency), hours(s.GPUHours))
	if s.GPUUse != nil {
		said += fmt.Sprintf(", of which %s were used", percent(s.GPUUse))
	}
	if s.EnergyJoules != nil {
		said += "; " + energy(s.EnergyJoules)
	}
	return said + ".\n"
}

func duration(seconds float64) string {
	return codalab.FormatDuration(time.Duration(seconds * float64(time.Second)))
}

func hours(h float64) string { return strconv.FormatFloat(h, 'f', 2, 64) }

// percent returns a share for people; "-" if it is not known.
func percent(share *float64) string {
	if share == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100**share)
}

func energy(joules *int64) string {
	if joules == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f kWh", float64(*joules)/3.6e6)
}

// WriteCSV writes a report as a table with the keys of its JSON, without the total. An unknown value is empty.
func WriteCSV(to io.Writer, r Report) error {
	w := csv.NewWriter(to)
	var rows [][]string
	if r.Sums != nil {
		rows = append(rows, []string{
			"name", "bundles", "jobs", "unaccounted", "staging_seconds", "queued_seconds", "elapsed_seconds",
			"cpu_hours", "cpu_seconds", "cpu_efficiency", "gpu_hours", "gpu_use", "energy_joules",
		})
		for _, s := range r.Sums {
			rows = append(rows, []string{
				s.Name, strconv.Itoa(s.Bundles), strconv.Itoa(s.Jobs), strconv.Itoa(s.Unaccounted), number(s.StagingSeconds), number(s.QueuedSeconds),
				number(s.ElapsedSeconds), number(s.CPUHours), number(s.CPUSeconds), number(s.CPUEfficiency), number(s.GPUHours), known(s.GPUUse, number), known(s.EnergyJoules, integer),
			})
		}
	} else {
		rows = append(rows, []string{
			"bundle", "attempt", "user", "group", "queue", "job", "node", "cause", "submitted", "start", "end",
			"staging_seconds", "queued_seconds", "elapsed_seconds", "source", "cpus", "gpus", "cpu_hours", "gpu_hours", "cpu_seconds",
			"cpu_efficiency", "memory_bytes", "memory_peak_bytes", "memory_efficiency", "gpu_use", "gpu_memory_peak_bytes", "energy_joules",
		})
		for _, l := range r.Jobs {
			rows = append(rows, []string{
				l.Bundle, strconv.Itoa(l.Attempt), l.User, l.Group, l.Queue, l.Job.String(), l.Node, string(l.Cause), moment(l.Submitted), moment(l.Start), moment(l.End),
				number(l.StagingSeconds), number(l.QueuedSeconds), number(l.ElapsedSeconds), l.Source, integer(l.CPUs), integer(l.GPUs), number(l.CPUHours), number(l.GPUHours), number(l.CPUSeconds),
				number(l.CPUEfficiency), integer(l.MemoryBytes), integer(l.MemoryPeakBytes), known(l.MemoryEfficiency, number), known(l.GPUUse, number), integer(l.GPUMemoryPeakBytes), known(l.EnergyJoules, integer),
			})
		}
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

// number returns a number with six decimals at most: none is exacter.
func number(n float64) string   { return strconv.FormatFloat(math.Round(n*1e6)/1e6, 'f', -1, 64) }
func integer(n int64) string    { return strconv.FormatInt(n, 10) }
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// known returns the text of a value; empty for nil.
func known[T any](value *T, text func(T) string) string {
	if value == nil {
		return ""
	}
	return text(*value)
}
