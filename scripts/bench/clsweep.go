package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// benchSweep measures a sweep of 1,000 runs with five inputs: to make it, to show it with its settings and states, and
// to go on with it when nothing is missing. CodaLab's own cl has no sweeps.
func benchSweep(ctx context.Context, dir string) {
	const rounds, bar = 5, 1000
	members := ofSize(10_000) / 10
	data := filepath.Join(dir, "data")
	makeUsers(ctx, data)
	s := startServer(ctx, data)
	defer s.end()
	r := researcher{s.address, "ann", dir}
	file := filepath.Join(dir, "input")
	check(os.WriteFile(file, []byte("input"), 0o600))
	var inputs []string
	for i := range 5 {
		name := fmt.Sprint("input-", i)
		output(r.own(ctx, "upload", file, "-n", name))
		inputs = append(inputs, ":"+name)
	}
	args := func(name string) []string {
		return append(append([]string{"run"}, inputs...), "--sweep", name, "--each", fmt.Sprint("x=1..", members), "echo {x}")
	}
	var times []float64
	for i := range rounds {
		times = append(times, 1000*seconds(func() { output(r.own(ctx, args(fmt.Sprint("sweep-", i))...)) }))
	}
	figure{name: fmt.Sprint("cl/sweep_", members), value: median(times), unit: "ms", bar: bar}.print()
	for _, again := range []struct {
		name string
		args []string
	}{{"show", []string{"sweep", "show", "sweep-0"}}, {"again", args("sweep-0")}} {
		took := 1000 * seconds(func() { output(r.own(ctx, again.args...)) })
		figure{name: fmt.Sprintf("cl/sweep_%d_%s", members, again.name), value: took, unit: "ms"}.print()
	}
}
