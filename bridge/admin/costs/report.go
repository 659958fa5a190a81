package costs

import (
	"cmp"
	"slices"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Report is the cost of the jobs that ended in a time.
type Report struct {
	// Jobs are the jobs, in the order of their ends. It is nil in a report of sums.
	Jobs []Line `json:"jobs,omitempty"`
	// Sums has a sum for each user, queue or group, the most expensive first. It is nil in a report of jobs.
	Sums []Sum `json:"sums,omitempty"`
	// Total is the sum of all jobs.
	Total Sum `json:"total"`
	// Note names the unknown facts; empty if all are known.
	Note string `json:"note,omitempty"`
}

// Sum is the cost of several jobs.
type Sum struct {
	// Name is a user, a queue or a group; empty for jobs of no group, and for all jobs.
	Name    string `json:"name"`
	Bundles int    `json:"bundles"`
	Jobs    int    `json:"jobs"`
	// Unaccounted is the number of jobs that Slurm's accounting database does not know.
	Unaccounted    int     `json:"unaccounted"`
	StagingSeconds float64 `json:"staging_seconds"`
	QueuedSeconds  float64 `json:"queued_seconds"`
	ElapsedSeconds float64 `json:"elapsed_seconds"`
	CPUHours       float64 `json:"cpu_hours"`
	CPUSeconds     float64 `json:"cpu_seconds"`
	CPUEfficiency  float64 `json:"cpu_efficiency"`
	GPUHours       float64 `json:"gpu_hours"`
	// GPUUse is the mean of the measured GPU-hours; nil if none was measured.
	GPUUse *float64 `json:"gpu_use"`
	// EnergyJoules is nil if Slurm measured none.
	EnergyJoules *int64 `json:"energy_joules"`

	measured, busy float64 // GPU-hours
	bundles        map[string]struct{}
}

// By names the property of jobs that a report sums by.
type By string

// The properties. The empty one asks for no sums.
const (
	ByUser  By = "user"
	ByQueue By = "queue"
	ByGroup By = "group"
)

// Builder makes a report of charges.
type Builder struct {
	by    By
	known allocations
	names Names
	total Sum
	lines []Line
	sums  map[string]*Sum
}

// NewBuilder returns a builder for a report of jobs, or of sums. known are the allocations that Slurm's accounting
// database knows.
func NewBuilder(by By, known []sbatch.Charge, names Names) *Builder {
	return &Builder{by: by, known: newAllocations(known), names: names, sums: map[string]*Sum{}}
}

// Add adds a charge.
func (b *Builder) Add(c ledger.Charge) {
	l := newLine(c, b.known.of(c), b.names)
	b.total.add(l)
	if b.by == "" {
		b.lines = append(b.lines, l)
		return
	}
	name := map[By]string{ByUser: l.User, ByQueue: l.Queue, ByGroup: l.Group}[b.by]
	sum := b.sums[name]
	if sum == nil {
		sum = &Sum{Name: name}
		b.sums[name] = sum
	}
	sum.add(l)
}

// Report returns the report.
func (b *Builder) Report() Report {
	r := Report{Jobs: b.lines, Total: b.total.finished()}
	for _, sum := range b.sums {
		r.Sums = append(r.Sums, sum.finished())
	}
	slices.SortFunc(r.Sums, func(x, y Sum) int {
		return cmp.Or(cmp.Compare(y.GPUHours, x.GPUHours), cmp.Compare(y.CPUHours, x.CPUHours), cmp.Compare(x.Name, y.Name))
	})
	return r
}

func (s *Sum) add(l Line) {
	if s.bundles == nil {
		s.bundles = map[string]struct{}{}
	}
	s.bundles[l.Bundle] = struct{}{}
	s.Jobs++
	if l.Source != FromSlurm {
		s.Unaccounted++
	}
	s.StagingSeconds += l.StagingSeconds
	s.QueuedSeconds += l.QueuedSeconds
	s.ElapsedSeconds += l.ElapsedSeconds
	s.CPUHours += l.CPUHours
	s.CPUSeconds += l.CPUSeconds
	s.GPUHours += l.GPUHours
	if l.GPUUse != nil {
		s.measured += l.GPUHours
		s.busy += l.GPUHours * *l.GPUUse
	}
	if l.EnergyJoules != nil {
		energy := *l.EnergyJoules
		if s.EnergyJoules != nil {
			energy += *s.EnergyJoules
		}
		s.EnergyJoules = &energy
	}
}

// finished returns the sum with its shares.
func (s Sum) finished() Sum {
	s.Bundles, s.CPUEfficiency = len(s.bundles), share(s.CPUSeconds, s.CPUHours*3600)
	if s.measured > 0 {
		use := share(s.busy, s.measured)
		s.GPUUse = &use
	}
	s.bundles = nil
	return s
}
