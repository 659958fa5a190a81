package subpath_test

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/subpath"
)

func TestWithin(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, dir string
		want      bool
	}{
		{"/data", "/data", true},
		{"/data/set/a", "/data", true},
		{"/data/../data/a", "/data/", true},
		{"/data", "/", true},
		{"set/a", "set", true},
		{"/database", "/data", false},
		{"/data/../etc", "/data", false},
		{"/", "/data", false},
		{"set", "/set", false},
	} {
		if got := subpath.Within(test.name, test.dir); got != test.want {
			t.Errorf("Within(%q, %q) = %t", test.name, test.dir, got)
		}
	}
}
