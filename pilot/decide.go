package pilot

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// Bundle is a staged bundle with its request. Memory is in bytes; a Time of 0 requests no limit.
type Bundle struct {
	UUID, Name         string
	CPUs, GPUs, Memory int64
	Time               time.Duration
	// Queue is its request_queue.
	Queue string
	// Created orders bundles.
	Created int64
}

// Shape is the capacity of a new pilot. All pilots of a manager are alike.
type Shape struct {
	CPUs, GPUs, Memory int64
	// Longest is the longest run that a pilot can take; 0 means no bound.
	Longest time.Duration
	// Tag is the workers' tag; empty for none. If it is exclusive, they take only bundles that ask for it.
	Tag       string
	Exclusive bool
	// Runs bounds the number of runs that a pilot takes in its life; 0 means no bound.
	Runs int64
}

// Lack is what the workers of a manager lack for a bundle.
type Lack string

// The lacks.
const (
	LackTag    Lack = "tag" // they have another tag, or take only bundles that ask for theirs
	LackCPUs   Lack = "cpus"
	LackGPUs   Lack = "gpus"
	LackMemory Lack = "memory"
	LackTime   Lack = "time"
)

// Lacks returns all lacks.
func Lacks() []Lack { return []Lack{LackTag, LackCPUs, LackGPUs, LackMemory, LackTime} }

// Misfit returns the reason for which no pilot of this shape can take a bundle; empty if one can. CodaLab's
// own manager compares only CPUs, GPUs and memory (worker_manager.py: filter_bundles). The rules about tags
// are those of the server (codalab/server/bundle_manager.py: _get_matched_workers, _filter_workers).
func (s Shape) Misfit(b Bundle) string {
	_, reason := s.misfit(b)
	return reason
}

// misfit returns what no pilot of this shape has for a bundle, and the reason of Misfit; nothing if one can take it.
func (s Shape) misfit(b Bundle) (lack Lack, reason string) {
	switch tag := b.tag(); {
	case tag != "" && s.Tag == "":
		return LackTag, fmt.Sprintf("it asks for the queue %s, and these workers have no tag", tag)
	case tag != "" && tag != s.Tag:
		return LackTag, fmt.Sprintf("it asks for the queue %s, and these workers have the tag %s", tag, s.Tag)
	case tag == "" && s.Exclusive && s.Tag != "":
		return LackTag, fmt.Sprintf("it asks for no queue, and these workers take only bundles for %s", s.Tag)
	case b.CPUs > s.CPUs:
		return LackCPUs, fmt.Sprintf("it asks for %s, and these workers have %d", termtext.Count(b.CPUs, "CPU"), s.CPUs)
	case b.GPUs > s.GPUs:
		return LackGPUs, fmt.Sprintf("it asks for %s, and these workers have %d", termtext.Count(b.GPUs, "GPU"), s.GPUs)
	case b.Memory > s.Memory:
		return LackMemory, fmt.Sprintf("it asks for %s of memory, and these workers have %s", codalab.FormatSize(b.Memory), codalab.FormatSize(s.Memory))
	case s.Longest > 0 && b.Time > s.Longest:
		return LackTime, fmt.Sprintf("it asks for %s, and these workers take runs of %s at most", codalab.FormatDuration(b.Time), codalab.FormatDuration(s.Longest))
	}
	return "", ""
}

// Room is the free capacity of a pilot.
type Room struct {
	CPUs, GPUs, Memory int64
	// Longest is the longest run; 0 means no bound. Runs is the number of runs; a negative one means no bound.
	Longest time.Duration
	Runs    int64
	// Whole is set while the pilot has no run yet.
	Whole bool
}

// Whole returns the room of a new pilot.
func (s Shape) Whole() Room {
	r := Room{CPUs: s.CPUs, GPUs: s.GPUs, Memory: s.Memory, Longest: s.Longest, Runs: -1, Whole: true}
	if s.Runs > 0 {
		r.Runs = s.Runs
	}
	return r
}

// reserve reserves room for a bundle, and reports whether there was enough.
func (r *Room) reserve(b Bundle) bool {
	if r.Runs == 0 || b.CPUs > r.CPUs || b.GPUs > r.GPUs || b.Memory > r.Memory || r.Longest > 0 && b.Time > r.Longest {
		return false
	}
	r.CPUs, r.GPUs, r.Memory, r.Runs, r.Whole = r.CPUs-b.CPUs, r.GPUs-b.GPUs, r.Memory-b.Memory, r.Runs-1, false
	return true
}

// reserveWhole reserves a whole pilot for a bundle that is too large for the shape.
func (r *Room) reserveWhole() bool {
	whole := r.Whole && r.Runs != 0
	if whole {
		*r = Room{}
	}
	return whole
}

// Known is the information for a decision.
type Known struct {
	// Staged are the bundles that wait for a worker of this manager.
	Staged []Bundle
	// Live counts the pilots that have not ended, and Others those of them that the manager has not started (Sharer).
	Live, Others int
	// Coming is the room of the pilots that are pending or have not reached the server yet, Free the room
	// of those that the server knows.
	Coming, Free []Room
}

// Limits are the bounds on the number of pilots.
type Limits struct {
	Min, Max int
	// Spaced is set while the time between two starts has not passed. It does not delay pilots below Min
	// (worker_manager.py: run_one_iteration).
	Spaced bool
}

// Decision is the number of pilots to start. AtMax is set if more are needed than there may be. Why is its reason, for the
// log.
type Decision struct {
	Start int
	AtMax bool
	Why   string
}

// Decide counts the pilots that staged bundles need. Each bundle goes to the first pilot with enough room:
// first to one that the server knows, then to one that is coming, then to a new one. Bundles share pilots
// as they do on the server, so that ten bundles of one CPU need three pilots of four. A bundle that is too
// large for the shape, which only a manager without a filter passes on, needs a pilot for itself.
func Decide(shape Shape, k Known, l Limits) Decision {
	free, coming := slices.Clone(k.Free), slices.Clone(k.Coming)
	var fresh []Room
	soon, later := 0, 0
	for _, b := range k.Staged {
		switch {
		case placeBundle(shape, free, b):
			soon++
		case placeBundle(shape, coming, b):
			later++
		case !placeBundle(shape, fresh, b):
			room := shape.Whole()
			if fits := room.reserve(b); !fits {
				room.reserveWhole()
			}
			fresh = append(fresh, room)
		}
	}
	need := len(fresh)
	missing := max(l.Min-k.Live, 0)
	start := max(need, missing)
	held := ""
	if l.Spaced && start > missing {
		start, held = missing, "the time between two starts has not passed"
	}
	most := max(l.Max-k.Live, 0)
	atMax := start > most
	if atMax {
		start, held = most, fmt.Sprintf("%d is the maximum", l.Max)
	}
	return Decision{Start: start, AtMax: atMax, Why: explain(k, soon, later, need, missing, held)}
}

// placeBundle puts a bundle into the first room with enough space.
func placeBundle(shape Shape, rooms []Room, b Bundle) bool {
	large := b.CPUs > shape.CPUs || b.GPUs > shape.GPUs || b.Memory > shape.Memory || shape.Longest > 0 && b.Time > shape.Longest
	for i := range rooms {
		if large && rooms[i].reserveWhole() || !large && rooms[i].reserve(b) {
			return true
		}
	}
	return false
}

// explain returns the reason of a decision.
func explain(k Known, soon, later, need, missing int, held string) string {
	parts := []string{termtext.Count(len(k.Staged), "staged bundle"), termtext.Count(k.Live, "worker")}
	if k.Others > 0 {
		parts = append(parts, fmt.Sprintf("%d of them not of this manager", k.Others))
	}
	if soon > 0 {
		parts = append(parts, fmt.Sprintf("running workers have room for %d", soon))
	}
	if later > 0 {
		parts = append(parts, fmt.Sprintf("%s will take %d", termtext.Count(len(k.Coming), "starting worker"), later))
	}
	if need > 0 {
		parts = append(parts, fmt.Sprintf("%d more needed", need))
	}
	if missing > 0 {
		parts = append(parts, fmt.Sprintf("%d below the minimum", missing))
	}
	if held != "" {
		parts = append(parts, held)
	}
	return strings.Join(parts, ", ")
}
