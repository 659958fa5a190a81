package codalab

import "math"

// Cost is the cost of a run that its worker measures, beyond the keys of its metadata. A server shows it beside the
// metadata, in the attribute cost of a bundle. It is not in the metadata, because CodaLab's own programs send the
// metadata of a copied bundle to another server, and CodaLab's own server refuses keys that it does not know.
// CodaLab's own worker sends no cost, and CodaLab's own server ignores it.
type Cost struct {
	// StagingSeconds is the time from the claim until the image and the inputs were ready.
	StagingSeconds float64 `json:"staging_seconds,omitempty"`
	// QueuedSeconds is the time that the run's jobs waited in the batch system, and AllocatedSeconds the time for
	// which they had their resources. Both are sums over the attempts so far.
	QueuedSeconds    float64 `json:"queued_seconds,omitempty"`
	AllocatedSeconds float64 `json:"allocated_seconds,omitempty"`
	// Attempts is the number of attempts.
	Attempts int `json:"attempts,omitempty"`
	// GPUs is the measured use of the last attempt's GPUs; nil if it was not measured.
	GPUs *GPUUse `json:"gpus,omitempty"`
	// EnergyJoules is the measured energy of all attempts so far; 0 if it is not known.
	EnergyJoules int64 `json:"energy_joules,omitempty"`
}

// GPUUse is the use of a run's GPUs.
type GPUUse struct {
	// Busy is the mean share of the time in which the GPUs worked, from 0 to 1.
	Busy float64 `json:"busy"`
	// MemoryMax is the peak of their memory in bytes, all GPUs together.
	MemoryMax int64 `json:"memory_max"`
}

// Bounded returns the cost without impossible numbers: any user may run workers.
func (c Cost) Bounded() Cost {
	const longest, largest = 1e10, 1 << 50 // three hundred years; a petabyte, or 300 GWh
	bound := func(n, most float64) float64 {
		if math.IsNaN(n) {
			return 0
		}
		return max(0, min(n, most))
	}
	c.StagingSeconds, c.QueuedSeconds = bound(c.StagingSeconds, longest), bound(c.QueuedSeconds, longest)
	c.AllocatedSeconds, c.Attempts = bound(c.AllocatedSeconds, longest), max(0, min(c.Attempts, math.MaxInt32))
	c.EnergyJoules = max(0, min(c.EnergyJoules, largest))
	if c.GPUs != nil {
		c.GPUs = &GPUUse{Busy: bound(c.GPUs.Busy, 1), MemoryMax: max(0, min(c.GPUs.MemoryMax, largest))}
	}
	return c
}

// EnergyReport tells the energy of runs of a worker, also of those that have ended: POST /workers/ID/energy. CodaLab's own
// server has no such route.
type EnergyReport struct {
	Runs []RunEnergy `json:"runs"`
}

// RunEnergy is the energy of all attempts of a run together.
type RunEnergy struct {
	UUID   string `json:"uuid"`
	Joules int64  `json:"energy_joules"`
}

// MostEnergyRuns bounds the runs of an EnergyReport.
const MostEnergyRuns = 1000
