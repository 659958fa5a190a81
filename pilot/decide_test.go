package pilot_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot"
)

const gib = 1 << 30

// bundles returns n bundles that request this many CPUs and 2 GiB.
func bundles(n int, cpus int64) []pilot.Bundle {
	var list []pilot.Bundle
	for range n {
		list = append(list, pilot.Bundle{CPUs: cpus, Memory: 2 * gib})
	}
	return list
}

// TestPilotsAreStartedForBundlesWithoutRoom is the table of the arithmetic.
func TestPilotsAreStartedForBundlesWithoutRoom(t *testing.T) {
	t.Parallel()
	small, large := pilot.Shape{CPUs: 1, Memory: 2 * gib}, pilot.Shape{CPUs: 4, GPUs: 1, Memory: 16 * gib, Longest: time.Hour}
	once := pilot.Shape{CPUs: 4, Memory: 16 * gib, Runs: 1}
	rooms := func(n int, r pilot.Room) []pilot.Room {
		var list []pilot.Room
		for range n {
			list = append(list, r)
		}
		return list
	}
	long := pilot.Bundle{CPUs: 1, Memory: gib, Time: 50 * time.Minute}
	for name, test := range map[string]struct {
		shape  pilot.Shape
		known  pilot.Known
		limits pilot.Limits
		want   int
		why    string
	}{
		"nothing staged": {
			shape: small, limits: pilot.Limits{Max: 10}, why: "0 staged bundles, 0 workers",
		},
		"below the minimum": {
			shape: small, limits: pilot.Limits{Min: 2, Max: 10}, known: pilot.Known{Live: 1}, want: 1,
			why: "0 staged bundles, 1 worker, 1 below the minimum",
		},
		"ten bundles, ten pilots": {
			shape: small, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: bundles(10, 1)}, want: 10,
			why: "10 staged bundles, 0 workers, 10 more needed",
		},
		"never above the maximum": {
			shape: small, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: bundles(30, 1), Live: 4}, want: 6,
			why: "30 staged bundles, 4 workers, 30 more needed, 10 is the maximum",
		},
		"above the maximum already": {
			shape: small, limits: pilot.Limits{Max: 2}, known: pilot.Known{Staged: bundles(1, 1), Live: 4},
			why: "1 staged bundle, 4 workers, 1 more needed, 2 is the maximum",
		},
		"coming pilots count": {
			shape: small, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: bundles(3, 1), Live: 2, Coming: rooms(2, small.Whole())}, want: 1,
			why: "3 staged bundles, 2 workers, 2 starting workers will take 2, 1 more needed",
		},
		"free room counts": {
			shape: large, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: bundles(3, 1), Live: 1, Free: rooms(1, pilot.Room{CPUs: 2, Memory: 8 * gib, Runs: -1})}, want: 1,
			why: "3 staged bundles, 1 worker, running workers have room for 2, 1 more needed",
		},
		"free room of memory counts": {
			shape: large, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: bundles(1, 1), Live: 1, Free: rooms(1, pilot.Room{CPUs: 2, Memory: gib, Runs: -1})}, want: 1,
			why: "1 staged bundle, 1 worker, 1 more needed",
		},
		"a pilot that takes no more runs has no room": {
			shape: large, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: bundles(1, 1), Live: 1, Free: rooms(1, pilot.Room{CPUs: 2, Memory: 8 * gib})}, want: 1,
			why: "1 staged bundle, 1 worker, 1 more needed",
		},
		"a pilot that ends soon has no room for a long run": {
			shape: large, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: []pilot.Bundle{long}, Live: 1, Free: rooms(1, pilot.Room{CPUs: 2, Memory: 8 * gib, Runs: -1, Longest: time.Minute})}, want: 1,
			why: "1 staged bundle, 1 worker, 1 more needed",
		},
		"bundles share pilots": {
			shape: large, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: bundles(10, 1)}, want: 3,
			why: "10 staged bundles, 0 workers, 3 more needed",
		},
		"pilots of one run share nothing": {
			shape: once, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: bundles(4, 1)}, want: 4,
			why: "4 staged bundles, 0 workers, 4 more needed",
		},
		"too soon after the last start": {
			shape: small, limits: pilot.Limits{Max: 10, Spaced: true}, known: pilot.Known{Staged: bundles(2, 1), Live: 1},
			why: "2 staged bundles, 1 worker, 2 more needed, the time between two starts has not passed",
		},
		"the minimum does not wait": {
			shape: small, limits: pilot.Limits{Min: 1, Max: 10, Spaced: true}, known: pilot.Known{Staged: bundles(2, 1)}, want: 1,
			why: "2 staged bundles, 0 workers, 2 more needed, 1 below the minimum, the time between two starts has not passed",
		},
		"an unfit bundle needs a pilot for itself": {
			shape: small, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: bundles(2, 64)}, want: 2,
			why: "2 staged bundles, 0 workers, 2 more needed",
		},
		"an unfit bundle starts no second pilot": {
			shape: small, limits: pilot.Limits{Max: 10}, known: pilot.Known{Staged: bundles(1, 64), Live: 1, Free: rooms(1, small.Whole())},
			why: "1 staged bundle, 1 worker, running workers have room for 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := pilot.Decide(test.shape, test.known, test.limits)
			if got.Start != test.want || got.Why != test.why {
				t.Errorf("%d: %s\nwant %d: %s", got.Start, got.Why, test.want, test.why)
			}
		})
	}
}

func TestBundleThatNoPilotCanTakeIsLeftOutForAReason(t *testing.T) {
	t.Parallel()
	shape := pilot.Shape{CPUs: 4, GPUs: 1, Memory: 16 * gib, Longest: 10 * time.Hour}
	tagged, exclusive := shape, shape
	tagged.Tag, exclusive.Tag, exclusive.Exclusive = "gpu", "gpu", true
	fit := pilot.Bundle{CPUs: 4, GPUs: 1, Memory: 16 * gib, Time: 10 * time.Hour}
	with := func(change func(*pilot.Bundle)) pilot.Bundle {
		b := fit
		change(&b)
		return b
	}
	queue := func(q string) pilot.Bundle { return with(func(b *pilot.Bundle) { b.Queue = q }) }
	for _, test := range []struct {
		shape  pilot.Shape
		bundle pilot.Bundle
		want   string
	}{
		{shape, fit, ""},
		{tagged, fit, ""},
		{tagged, queue("gpu"), ""},
		{exclusive, queue("tag=gpu"), ""},
		{shape, with(func(b *pilot.Bundle) { b.CPUs = 5 }), "it asks for 5 CPUs, and these workers have 4"},
		{pilot.Shape{CPUs: 4, Memory: 16 * gib}, with(func(b *pilot.Bundle) { b.Time = 0 }), "it asks for 1 GPU, and these workers have 0"},
		{shape, with(func(b *pilot.Bundle) { b.GPUs = 2 }), "it asks for 2 GPUs, and these workers have 1"},
		{shape, with(func(b *pilot.Bundle) { b.Memory = 32 * gib }), "it asks for 32g of memory, and these workers have 16g"},
		{shape, with(func(b *pilot.Bundle) { b.Time = 48 * time.Hour }), "it asks for 2d0h, and these workers take runs of 10h0m at most"},
		{shape, queue("gpu"), "it asks for the queue gpu, and these workers have no tag"},
		{tagged, queue("tag=cpu"), "it asks for the queue cpu, and these workers have the tag gpu"},
		{exclusive, fit, "it asks for no queue, and these workers take only bundles for gpu"},
	} {
		if got := test.shape.Misfit(test.bundle); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
