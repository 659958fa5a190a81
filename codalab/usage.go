package codalab

import (
	"fmt"
	"math"
	"strings"
)

// UsageNow is a run's use at the moment, beyond what CodaLab's own worker reports. CodaLab's own worker does not send it,
// and CodaLab's own server ignores it (codalab/worker/bundle_state.py: BundleCheckinState).
type UsageNow struct {
	MemoryBytes int64 `json:"memory_bytes"`
	// GPUs is nil if their use is not measured.
	GPUs *GPUsNow `json:"gpus,omitempty"`
}

// GPUsNow is the use of a run's GPUs at the moment.
type GPUsNow struct {
	// Busy is the share of the time in which the GPUs work, from 0 to 1, as the mean of all.
	Busy float64 `json:"busy"`
	// MemoryBytes is that of all GPUs together.
	MemoryBytes int64 `json:"memory_bytes"`
}

// Usage has the use of processors, memory and GPUs of a run over time: GET /bundles/UUID/usage. CodaLab's own server has no such
// route.
type Usage struct {
	// SectionSeconds is the length of the sections of time for which there are points.
	SectionSeconds int64 `json:"section_seconds"`
	// Points are those of the sections in which the command ran, the oldest first.
	Points []UsagePoint `json:"points"`
	// Whole has the means and the highest values of all sections; its Time is that of the first.
	Whole UsagePoint `json:"whole"`
	// Limits are the resources of the run, asked for or given by default.
	Limits UsageLimits `json:"limits"`
}

// UsagePoint is the use in a section of time: means and highest values. Those that nobody measured are nil.
type UsagePoint struct {
	// Time is the begin of the section in Unix seconds; Seconds is the part of it in which the command ran.
	Time    float64 `json:"time"`
	Seconds float64 `json:"seconds"`
	// CPUs is the number of processors in use.
	CPUs    *float64 `json:"cpus,omitempty"`
	CPUsMax *float64 `json:"cpus_max,omitempty"`
	// Memory is in bytes.
	Memory    *float64 `json:"memory,omitempty"`
	MemoryMax *float64 `json:"memory_max,omitempty"`
	// GPUUsage is the share of the time in which the GPUs worked, from 0 to 1, as the mean of all. GPUMemory is in bytes, of all
	// together.
	GPUUsage     *float64 `json:"gpu_usage,omitempty"`
	GPUUsageMax  *float64 `json:"gpu_usage_max,omitempty"`
	GPUMemory    *float64 `json:"gpu_memory,omitempty"`
	GPUMemoryMax *float64 `json:"gpu_memory_max,omitempty"`
}

// UsageLimits are the resources that a run has. Memory is in bytes; 0 is no limit.
type UsageLimits struct {
	CPUs   int64 `json:"cpus"`
	GPUs   int64 `json:"gpus"`
	Memory int64 `json:"memory"`
}

// Sentence says how much of its limits the run used; empty if nothing was measured.
func (u Usage) Sentence() string {
	var said []string
	if n := u.Whole.CPUs; n != nil {
		said = append(said, fmt.Sprintf("%s of %s on average", shortNumber(*n), plural(u.Limits.CPUs, "CPU")))
	}
	if n := u.Whole.MemoryMax; n != nil {
		text := "at most " + FormatSize(int64(*n))
		if u.Limits.Memory > 0 {
			text += " of " + FormatSize(u.Limits.Memory)
		}
		said = append(said, text+" of memory")
	}
	if n := u.Whole.GPUUsage; n != nil {
		said = append(said, fmt.Sprintf("%.0f %% of %s on average", 100**n, plural(u.Limits.GPUs, "GPU")))
	}
	if n := u.Whole.GPUMemoryMax; n != nil {
		said = append(said, "at most "+FormatSize(int64(*n))+" of GPU memory")
	}
	if len(said) == 0 {
		return ""
	}
	return "It used " + joinWithAnd(said) + "."
}

// certainAfter is the time, in seconds, before which Hint says nothing: a run may begin with reading its inputs.
const certainAfter = 300

// Hint says which processors or GPUs the run asked for in vain; empty if it used them, or if that is not certain.
func (u Usage) Hint() string {
	if u.Whole.Seconds < certainAfter {
		return ""
	}
	var said []string
	if n := u.Whole.CPUsMax; n != nil && u.Limits.CPUs > 1 && *n <= float64(u.Limits.CPUs)/2 {
		said = append(said, fmt.Sprintf("It has %d CPUs and never used more than %s: --request-cpus %d would do.", u.Limits.CPUs, shortNumber(*n), max(1, int64(math.Ceil(*n)))))
	}
	if n := u.Whole.GPUUsageMax; n != nil && u.Limits.GPUs > 0 && *n == 0 {
		said = append(said, fmt.Sprintf("It has %s and was not seen to use any.", plural(u.Limits.GPUs, "GPU")))
	}
	return strings.Join(said, " ")
}

// shortNumber prints a number of processors with one decimal, or with two if it is small.
func shortNumber(n float64) string {
	switch {
	case n >= 100:
		return fmt.Sprintf("%.0f", n)
	case n < 0.1:
		return fmt.Sprintf("%.2f", n)
	}
	return fmt.Sprintf("%.1f", n)
}

func plural(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// joinWithAnd joins parts of a sentence.
func joinWithAnd(parts []string) string {
	last := len(parts) - 1
	if last < 1 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}
