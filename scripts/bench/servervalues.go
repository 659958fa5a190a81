package main

import (
	"context"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/server/store/storetest"
)

// benchValues measures searches by a value in the files of 10,000 runs.
func benchValues(ctx context.Context, dir string) {
	const bundles = 10_000
	data := filepath.Join(dir, "data")
	token := fillData(ctx, data, bundles)
	check(storetest.AddValues(ctx, data))
	s := startServer(ctx, data)
	defer s.end()
	c := must(dial(ctx, s.address, nil))
	for _, search := range []namedSearch{
		{"value_sort_10000", "/stats.json:acc=.sort-"},
		{"value_below_10000", "/stats.json:loss<0.3 /stats.json:acc=.sort-"},
		{"value_count_10000", "/stats.json:loss<0.3 .count"},
	} {
		figure{name: "server/" + search.name, value: search.measure(c, token), unit: "ms", bar: 100}.print()
	}
	check(c.Close())
}
