package usage

import (
	"math"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Run is the use of one run so far. Its zero value is a run of which nothing is known.
type Run struct {
	series series
	// ran and cpu are the counters of the last sample.
	ran, cpu float64
}

// sample has the numbers of a report about a run.
type sample struct {
	// ran is the time for which the command has run, and cpu the processor time that it took, both in seconds since the begin of
	// the attempt, or of the first one.
	ran, cpu float64
	// now has the values of the moment. The processors in use are unknown if cpu tells them.
	now values
}

const (
	// mostProcessors and mostBytes bound what a worker can tell; more is unknown, and so are negative numbers.
	mostProcessors = 1 << 17
	mostBytes      = 1 << 50
	mostSeconds    = 1e10
)

// possible returns a number; unknown for one that cannot be.
func possible(n, most float64) float64 {
	if n >= 0 && n <= most { // NaN is neither
		return n
	}
	return unknown
}

func value(n, most float64) float32 { return float32(possible(n, most)) }

// newSample reads a report of a run that may use this much memory; 0 if it has no limit.
//
// Our own workers tell processor times, from which the mean since the last sample is computed, and the memory in bytes.
// CodaLab's own worker leaves processor times 0, tells the number of processors in use at the moment as cpu_usage
// (codalab/worker/docker_utils.py: get_cpu_usage), and the memory as a share of the limit.
func newSample(r *codalab.RunReport, limit int64) sample {
	s := sample{
		ran: max(0, possible(r.ContainerTimeTotal, mostSeconds)),
		cpu: max(0, possible(r.ContainerTimeUser+r.ContainerTimeSystem, mostSeconds)),
	}
	for m := range measures {
		s.now[m] = unknown
	}
	if s.cpu == 0 && r.CPUUsage > 0 {
		s.now[cpus] = value(r.CPUUsage, mostProcessors)
	}
	if limit > 0 && r.MemoryUsage > 0 {
		s.now[memory] = value(r.MemoryUsage*float64(limit), mostBytes)
	}
	if u := r.Usage; u != nil {
		if u.MemoryBytes != 0 {
			s.now[memory] = value(float64(u.MemoryBytes), mostBytes)
		}
		if u.GPUs != nil {
			s.now[gpus], s.now[gpuMemory] = value(u.GPUs.Busy, 1), value(float64(u.GPUs.MemoryBytes), mostBytes)
		}
	}
	return s
}

const (
	// shortest is the shortest time between two samples of which the second is used: processor times are counted in
	// hundredths of a second.
	shortest = 1.0
	// mostBefore bounds the time before the first sample of an attempt that it stands for.
	mostBefore = 60.0
)

// add adds a sample that arrives now. It ignores one without news, and one that is not after the last.
func (r *Run) add(s sample, now time.Time) {
	ran, cpu := s.ran-r.ran, s.cpu-r.cpu
	began := r.ran == 0 || ran < 0 || cpu < 0 // another attempt, whose counters began at 0
	if began {
		ran, cpu = s.ran, s.cpu
	}
	if ran < shortest {
		return
	}
	r.ran, r.cpu = s.ran, s.cpu
	v := s.now
	if s.cpu > 0 {
		v[cpus] = value(cpu/ran, mostProcessors)
	}
	to := codalab.UnixSeconds(now)
	from := to - ran
	if began {
		from = to - min(ran, mostBefore)
	}
	if len(r.series.sections) > 0 && from-r.series.end < ran && !began || from < r.series.end {
		from = r.series.end // a report that was a little late leaves no gap
	}
	if to-from >= shortest {
		r.series.add(math.Floor(from*1e3)/1e3, math.Floor(to*1e3)/1e3, v)
	}
}
