package usage

import (
	"math"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// show returns the series as the server tells it.
func (r *Run) show(limits codalab.UsageLimits) codalab.Usage {
	u := codalab.Usage{SectionSeconds: int64(r.series.length), Points: []codalab.UsagePoint{}, Limits: limits}
	for i := range r.series.sections {
		if one := &r.series.sections[i]; one.seconds > 0 {
			u.Points = append(u.Points, one.point(r.series.start+float64(i)*r.series.length))
		}
	}
	all := r.series.whole()
	u.Whole = all.point(r.series.start)
	return u
}

func (s *section) point(at float64) codalab.UsagePoint {
	return codalab.UsagePoint{
		Time: at, Seconds: math.Round(float64(s.seconds)*1e3) / 1e3,
		CPUs: known(s.mean, cpus), CPUsMax: known(s.most, cpus),
		Memory: known(s.mean, memory), MemoryMax: known(s.most, memory),
		GPUUsage: known(s.mean, gpus), GPUUsageMax: known(s.most, gpus),
		GPUMemory: known(s.mean, gpuMemory), GPUMemoryMax: known(s.most, gpuMemory),
	}
}

// known returns a value in whole units of its measure, as the database has it; nil for one that is unknown.
func known(v values, m int) *float64 {
	n := inUnits(v[m], m)
	if n == unknown {
		return nil
	}
	f := float64(n) / perUnit(m) // a float32 has odd decimals as a float64
	return &f
}
