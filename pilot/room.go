package pilot

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// dropRequests removes the requests of bundles that are neither staged nor run by a worker.
func (m *Manager) dropRequests(staged []Bundle) {
	needed := map[string]bool{}
	for _, b := range staged {
		needed[b.UUID] = true
	}
	for _, w := range m.workers {
		for _, uuid := range w.RunUUIDs {
			needed[uuid] = true
		}
	}
	maps.DeleteFunc(m.requests, func(uuid string, _ Bundle) bool { return !needed[uuid] })
}

// noteCapacity notes the capacity that a pilot reports.
func (m *Manager) noteCapacity(w codalab.WorkerInfo) {
	m.largest.CPUs, m.largest.GPUs = max(m.largest.CPUs, w.CPUs), max(m.largest.GPUs, w.GPUs)
	m.largest.Memory = max(m.largest.Memory, w.MemoryBytes)
}

// effective returns the shape that pilots really have: a worker may report less than was requested. A bundle
// that fits the requested shape but not the real one must not start pilot after pilot.
func (m *Manager) effective() Shape {
	shape := m.Shape
	if m.largest.CPUs > 0 {
		shape.CPUs, shape.GPUs, shape.Memory = min(shape.CPUs, m.largest.CPUs), min(shape.GPUs, m.largest.GPUs), min(shape.Memory, m.largest.Memory)
	}
	return shape
}

// decide counts the pilots to start from the answers so far.
func (m *Manager) decide(ctx context.Context, now time.Time, staged []Bundle) Decision {
	shape := m.effective()
	k := Known{Staged: staged, Live: m.live(), Others: m.others}
	for range m.othersPending {
		k.Coming = append(k.Coming, shape.Whole())
	}
	for _, name := range slices.Sorted(maps.Keys(m.tracked)) {
		t := m.tracked[name]
		w, known := m.workers[WorkerID(name)]
		switch {
		case m.isLost(t):
		case t.Phase == Active && !t.Since.IsZero() && now.Sub(t.Since) > bootPatience && !known: // it does not come
		case t.again && !t.stopped: // the server may still know the worker of the lost node
			k.Coming = append(k.Coming, shape.Whole())
		case known && !w.IsTerminating:
			k.Free = append(k.Free, m.roomIn(ctx, now, shape, t, w))
		case known, t.reached, t.stopped: // it is ending, or the server has lost it
		default:
			k.Coming = append(k.Coming, shape.Whole())
		}
	}
	spaced := m.Spacing > 0 && !m.started.IsZero() && now.Sub(m.started) < m.Spacing
	m.last = Decide(shape, k, Limits{Min: m.Min, Max: m.Max, Spaced: spaced})
	return m.last
}

// roomIn returns the free capacity of a pilot, from the server's information about it.
func (m *Manager) roomIn(ctx context.Context, now time.Time, shape Shape, t *tracked, w codalab.WorkerInfo) Room {
	r := Room{
		CPUs: w.CPUs - w.CPUsInUse, GPUs: w.GPUs - w.GPUsInUse, Memory: min(w.MemoryBytes, m.Shape.Memory), Runs: w.ExitAfterNumRuns,
		Longest: shape.Longest, Whole: len(w.RunUUIDs) == 0,
	}
	for _, uuid := range w.RunUUIDs {
		r.Memory -= m.memoryOf(ctx, uuid, r.Memory)
	}
	if t.Phase == Active && !t.Since.IsZero() && r.Longest > 0 {
		if r.Longest -= now.Sub(t.Since); r.Longest <= 0 {
			return Room{}
		}
	}
	return r
}

// memoryOf returns the memory that a run requests; all if that is not known.
func (m *Manager) memoryOf(ctx context.Context, uuid string, all int64) int64 {
	if b, ok := m.requests[uuid]; ok {
		return b.Memory
	}
	b, err := m.Server.Bundle(ctx, uuid)
	if err != nil {
		return all
	}
	m.requests[uuid] = readBundle(b.Bundle)
	return m.requests[uuid].Memory
}
