package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Queue is workers that users see as one queue: a worker that describes itself as one, or all other workers of one user
// that have the same tag, exclusiveness and group. It has at least one.
type Queue []Capacity

// Queues returns the queues of these workers, by tag. It leaves out the workers that include refuses.
func Queues(capacities []Capacity, include func(*Capacity) bool) []Queue {
	type key struct {
		worker     Worker // of a queue of a batch system; else only its user
		tag, group string
		exclusive  bool
	}
	byKey := map[key]Queue{}
	for _, c := range capacities {
		if !include(&c) {
			continue
		}
		k := key{c.Worker, c.Tag, c.Group, c.Exclusive}
		if c.Queue == nil {
			k.worker.ID = ""
		}
		byKey[k] = append(byKey[k], c)
	}
	keys := slices.SortedFunc(maps.Keys(byKey), func(a, b key) int {
		return cmp.Or(strings.Compare(a.tag, b.tag), strings.Compare(a.worker.ID, b.worker.ID), strings.Compare(a.worker.User, b.worker.User),
			strings.Compare(a.group, b.group), cmp.Compare(truth(a.exclusive), truth(b.exclusive)))
	})
	queues := make([]Queue, 0, len(keys))
	for _, k := range keys {
		queues = append(queues, byKey[k])
	}
	return queues
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Show returns the queue as users see it, without its users.
func (q Queue) Show(site Site) codalab.Queue {
	first := q[0]
	shown := codalab.Queue{
		Tag: first.Tag, Default: !first.Exclusive, Workers: int64(len(q)), Sizes: q.sizes(),
		DefaultCPUImage: site.DefaultCPUImage, DefaultGPUImage: site.DefaultGPUImage, MaxTime: site.maxSeconds(), DefaultTime: site.maxSeconds(),
	}
	if !first.AwaySince.IsZero() {
		shown.AwaySince, shown.Workers = first.AwaySince.Unix(), 0
	}
	if !slices.ContainsFunc(q, func(c Capacity) bool { return !c.Closed }) {
		shown.Closed = cmp.Or(first.WhyClosed, "it takes no bundles")
	}
	if first.Queue != nil {
		describe(&shown, *first.Queue, site)
		return shown
	}
	for _, c := range q {
		shown.Running += int64(c.Running)
		shown.Nodes++
		if c.Running == 0 {
			shown.IdleNodes++
		}
	}
	return shown
}

// describe adds what a queue of a batch system tells of itself.
func describe(shown *codalab.Queue, info codalab.QueueInfo, site Site) {
	shown.GPUTypes = info.GPUTypes
	shown.MaxTime = leastBound(cmp.Or(info.MaxSeconds, info.PartitionSeconds), site.maxSeconds())
	shown.DefaultTime = cmp.Or(site.maxSeconds(), info.DefaultSeconds)
	shown.DefaultCPUImage, shown.DefaultGPUImage = cmp.Or(info.CPUImage, site.DefaultCPUImage), cmp.Or(info.GPUImage, site.DefaultGPUImage)
	if shown.AwaySince > 0 {
		return // its load is an old one
	}
	shown.Running, shown.Waiting, shown.Nodes, shown.IdleNodes = info.Running, info.Waiting, info.Nodes, info.IdleNodes
	shown.ExpectedWait = info.WaitSeconds
}

// leastBound returns the lower one of two bounds, of which 0 is none.
func leastBound(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// sizes returns the largest requests that the workers take, the ones with the most GPUs first.
func (q Queue) sizes() []codalab.NodeSize {
	var all []codalab.Resources
	for _, c := range q {
		all = append(all, c.Sizes()...)
	}
	sizes := []codalab.NodeSize{}
	for _, r := range largest(all) {
		if r.CPUs > 0 { // a closed worker tells no size
			sizes = append(sizes, codalab.NodeSize{CPUs: r.CPUs, GPUs: r.GPUs, MemoryBytes: r.Memory})
		}
	}
	return sizes
}

// largest leaves out the sizes that fit into another one. It ignores the disk, and returns the sizes with the most GPUs
// first.
func largest(sizes []codalab.Resources) []codalab.Resources {
	sizes = slices.Clone(sizes)
	for i := range sizes {
		sizes[i].Disk = 0
	}
	return withoutSmaller(sizes)
}
