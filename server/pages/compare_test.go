package pages

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

func TestComparedRowsDifferFirst(t *testing.T) {
	t.Parallel()
	run := func(name string, change func(*client.BundleInfo), settings ...string) client.BundleInfo {
		b := testRun(name, settings...)
		change(&b)
		return b
	}
	command := func(text string) func(*client.BundleInfo) {
		return func(b *client.BundleInfo) { b.Command = &text }
	}
	same := func(*client.BundleInfo) {}
	data := func(b *client.BundleInfo) {
		b.Dependencies = []codalab.Dependency{{ChildPath: "d", ParentName: "data", ParentUUID: "0x1", ParentPath: "x"}}
	}
	took := func(seconds float64) func(*client.BundleInfo) {
		return func(b *client.BundleInfo) { b.Metadata["time"] = seconds }
	}
	for name, test := range map[string]struct {
		bundles []client.BundleInfo
		values  map[string]any
		want    string
	}{
		"none":               {nil, nil, ""},
		"one":                {[]client.BundleInfo{run("a", command("x"))}, nil, "state:ready command:x tags:mine"},
		"the same":           {[]client.BundleInfo{run("a", same), run("b", same)}, nil, "state:ready|ready tags:mine|mine"},
		"commands":           {[]client.BundleInfo{run("a", command("x")), run("b", command("y"))}, nil, "*command:x|y state:ready|ready tags:mine|mine"},
		"settings":           {[]client.BundleInfo{run("a", same, "lr=1", "s=2"), run("b", same, "lr=3", "s=2")}, nil, "*setting lr:1|3 state:ready|ready setting s:2|2 tags:mine|mine"},
		"an input of one":    {[]client.BundleInfo{run("a", data), run("b", same)}, nil, "*input d:data(0x1)/x| state:ready|ready tags:mine|mine"},
		"values":             {[]client.BundleInfo{run("a", same), run("b", same)}, map[string]any{"0xa/s:y": "0.5", "0xb/s:z": "<b>"}, "*/s:y:0.5| */s:z:|<b> state:ready|ready tags:mine|mine"},
		"times are the last": {[]client.BundleInfo{run("a", took(60)), run("b", took(120))}, nil, "state:ready|ready tags:mine|mine ran:1m0s|2m0s"},
		"what is left out of results": {[]client.BundleInfo{
			run("a", same), run("b", func(b *client.BundleInfo) { b.Metadata["exclude_patterns"] = []any{"*.ckpt", "tmp"} }),
		}, nil, `*exclude_patterns:|*.ckpt tmp state:ready|ready tags:mine|mine`},
		"requests": {[]client.BundleInfo{
			run("a", func(b *client.BundleInfo) { b.Metadata["request_cpus"] = 2 }),
			run("b", func(b *client.BundleInfo) { b.State, b.Metadata["request_cpus"] = codalab.StateFailed, 4 }),
		}, nil, "*state:ready|failed *request_cpus:2|4 tags:mine|mine"},
	} {
		var got []string
		for _, r := range compared(test.bundles, properties(test.bundles, []string{"/s:y", "/s:z"}, func(uuid, path string) any { return test.values[uuid+path] })) {
			sign := ""
			if r.Differs {
				sign = "*"
			}
			got = append(got, fmt.Sprint(sign, r.Name, ":", strings.Join(r.Cells, "|")))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: %s\nwant %s", name, text, test.want)
		}
	}
}
