package clocks_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/clocks"
)

func TestSlowMessageProvesNoDifferenceOfClocks(t *testing.T) {
	t.Parallel()
	sent := time.Unix(1_000_000, 0)
	for _, test := range []struct {
		took, shown time.Duration // after sent
		unit        time.Duration
		least       time.Duration
		want        string
	}{
		{time.Second, 500 * time.Millisecond, 0, 0, "within 0.5 s of"},
		{time.Second, 11 * time.Second, 0, 10 * time.Second, "at least 10.0 s ahead of"},
		{time.Minute, 11 * time.Second, 0, 0, "within 49.0 s of"},
		{time.Second, -10 * time.Second, 0, 10 * time.Second, "at least 10.0 s behind"},
		{time.Second, -10 * time.Second, time.Second, 9 * time.Second, "at least 9.0 s behind"},
		{time.Second, -10 * time.Minute, time.Second, 10*time.Minute - time.Second, "at least 9m59s behind"},
		{200 * time.Millisecond, 0, time.Second, 0, "within 1.0 s of"}, // a second's fraction is no difference
	} {
		o := clocks.Between(sent, sent.Add(test.took), sent.Add(test.shown), test.unit)
		if o.Magnitude() != test.least || o.String() != test.want {
			t.Errorf("%+v: %s, %q", test, o.Magnitude(), o)
		}
	}
}
