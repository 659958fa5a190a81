package main

import (
	"context"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/server/store/storetest"
)

// benchValues measures searches by a value in the files of 10,000 runs.
func benchValues(ctx context.Context, dir string) {
	const bundles, repeats, bar = 10_000, 9, 100
	data := filepath.Join(dir, "data")
	token := fillData(ctx, data, bundles)
	check(storetest.AddValues(ctx, data))
	s := startServer(ctx, data)
	defer s.end()
	c := must(dial(ctx, s.address, nil))
	for _, search := range []struct{ name, words string }{
		{"value_sort_10000", "/stats.json:acc=.sort-"},
		{"value_below_10000", "/stats.json:loss<0.3 /stats.json:acc=.sort-"},
		{"value_count_10000", "/stats.json:loss<0.3 .count"},
	} {
		query := url.Values{"keywords": strings.Fields(search.words), "worksheet": {"0xw"}, "include": {"owner"}}
		get := request(http.MethodGet, "/rest/bundles?"+query.Encode(), token, nil)
		check(c.call(get)) // the first call fills the page cache
		var took []float64
		for range repeats {
			took = append(took, seconds(func() { check(c.call(get)) })*1000)
		}
		figure{name: "server/" + search.name, value: median(took), unit: "ms", bar: bar}.print()
	}
	check(c.Close())
}
