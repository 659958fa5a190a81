package usage

import (
	"github.com/cl-slurm/cl-slurm/codalab"
)

// show returns the series as the server tells it.
func (r *Run) show(limits codalab.UsageLimits) codalab.Usage {
	u := codalab.Usage{SectionSeconds: int64(r.series.length), Points: []codalab.UsagePoint{}, Limits: limits}
	for i, one := range r.series.sections {
		if one.seconds > 0 {
			u.Points = append(u.Points, one.point(r.series.start+float64(i)*r.series.length))
		}
	}
	u.Whole = r.series.whole().point(r.series.start)
	return u
}

func (s section) point(at float64) codalab.UsagePoint {
	return codalab.UsagePoint{
		Time: at, Seconds: s.seconds,
		CPUs: known(s.mean[cpus]), CPUsMax: known(s.most[cpus]),
		Memory: known(s.mean[memory]), MemoryMax: known(s.most[memory]),
		GPUUsage: known(s.mean[gpus]), GPUUsageMax: known(s.most[gpus]),
		GPUMemory: known(s.mean[gpuMemory]), GPUMemoryMax: known(s.most[gpuMemory]),
	}
}

func known(n float64) *float64 {
	if n == unknown {
		return nil
	}
	return &n
}
