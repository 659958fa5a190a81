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

// UsageMeasure is a measure of a UsagePoint, for charts.
type UsageMeasure struct {
	// Name names the unit, too, if there is one.
	Name string
	// Unit is the value that is drawn as 1.
	Unit float64
	// Of returns the mean and the highest value of a section; nil if nobody measured them.
	Of func(UsagePoint) (mean, most *float64)
	// Limit is the most that a run may use, in the units of Of; 0 if there is no limit.
	Limit func(UsageLimits) float64
	// Peaks is set if a run fails for the highest values, and not for the mean.
	Peaks bool
}

// UsageMeasures returns the measures in the order in which they are drawn.
func UsageMeasures() []UsageMeasure {
	const gib = 1 << 30
	return []UsageMeasure{
		{"CPUs", 1, func(p UsagePoint) (mean, most *float64) { return p.CPUs, p.CPUsMax }, func(l UsageLimits) float64 { return float64(l.CPUs) }, false},
		{"Memory in GiB", gib, func(p UsagePoint) (mean, most *float64) { return p.Memory, p.MemoryMax }, func(l UsageLimits) float64 { return float64(l.Memory) }, true},
		{"GPUs, busy in %", .01, func(p UsagePoint) (mean, most *float64) { return p.GPUUsage, p.GPUUsageMax }, func(UsageLimits) float64 { return 1 }, false},
		{"GPU memory in GiB", gib, func(p UsagePoint) (mean, most *float64) { return p.GPUMemory, p.GPUMemoryMax }, func(UsageLimits) float64 { return 0 }, true},
	}
}

// Sentence compares the use of the run with its limits; it is empty if nothing was measured.
func (u Usage) Sentence() string {
	var said []string
	if n := u.Whole.CPUs; n != nil {
		said = append(said, fmt.Sprintf("CPUs: %s of %d on average.", shortNumber(*n), u.Limits.CPUs))
	}
	if n := u.Whole.MemoryMax; n != nil {
		text := "Memory: at most " + FormatSize(int64(*n))
		if u.Limits.Memory > 0 {
			text += " of " + FormatSize(u.Limits.Memory)
		}
		said = append(said, text+".")
	}
	if n := u.Whole.GPUUsage; n != nil {
		said = append(said, fmt.Sprintf("GPUs: %.0f %% of %d on average.", 100**n, u.Limits.GPUs))
	}
	if n := u.Whole.GPUMemoryMax; n != nil {
		said = append(said, "GPU memory: at most "+FormatSize(int64(*n))+".")
	}
	return strings.Join(said, " ")
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
		said = append(said, "It was not seen to use its GPUs.")
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
