//go:build linux

package subids

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRangesFillAContainersIdsInTheirOrder(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ranges []extent
		want   []extent
		lack   string
	}{
		"one":               {[]extent{{0, 100000, 65536}}, []extent{{0, 1001, 1}, {1, 100000, 65535}}, ""},
		"several":           {[]extent{{0, 100000, 1000}, {0, 300000, 70000}}, []extent{{0, 1001, 1}, {1, 100000, 1000}, {1001, 300000, 64535}}, ""},
		"more than enough":  {[]extent{{0, 100000, 65536}, {0, 300000, 65536}}, []extent{{0, 1001, 1}, {1, 100000, 65535}}, ""},
		"twice the same":    {[]extent{{0, 100000, 40000}, {0, 100000, 40000}}, nil, "40000 ids, and a container needs 65535"},
		"the user's own id": {[]extent{{0, 1000, 65536}}, nil, "no range of ids"},
		"short":             {[]extent{{0, 100000, 65534}}, nil, "65534 ids, and a container needs 65535"},
		"none":              {nil, nil, "no range of ids"},
		"up to the last id": {[]extent{{0, 1<<32 - 65537, 65535}}, []extent{{0, 1001, 1}, {1, 1<<32 - 65537, 65535}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := arrange(1001, tt.ranges)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(extent{})); diff != "" {
				t.Errorf("extents (-want +got):\n%s", diff)
			}
			if (err == nil) != (tt.lack == "") || err != nil && !strings.Contains(err.Error(), tt.lack) {
				t.Errorf("%v, want %q", err, tt.lack)
			}
		})
	}
}

func TestOnlyWholeRangesAreRead(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"x:1", "1:x", "-1:5", "1:0", "4294967295:1", "1:4294967295", "5000000000:1"} {
		first, count, _ := strings.Cut(line, ":")
		if got := appendRange(nil, first, count); got != nil {
			t.Errorf("%s: %v", line, got)
		}
	}
	want := []extent{{outside: 4294901759, count: 65536}}
	if diff := cmp.Diff(want, appendRange(nil, "4294901759", "65536"), cmp.AllowUnexported(extent{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
