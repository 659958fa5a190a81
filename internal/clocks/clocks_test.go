package clocks_test

import (
	"os"
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
		{time.Millisecond, 40 * time.Millisecond, 0, 39 * time.Millisecond, "within 0.1 s of"},
		{200 * time.Millisecond, 0, time.Second, 0, "within 1.0 s of"}, // a second's fraction is no difference
	} {
		o := clocks.Between(sent, sent.Add(test.took), sent.Add(test.shown), test.unit)
		if o.Magnitude() != test.least || o.String() != test.want {
			t.Errorf("%+v: %s, %q", test, o.Magnitude(), o)
		}
	}
}

// The disk's clock is two seconds ahead of ours, and five behind a node's: the node's is seven ahead.
func TestTwoHostsCompareTheirClocksByTheDisks(t *testing.T) {
	t.Parallel()
	off := func(by time.Duration) clocks.Offset {
		return clocks.Offset{Least: by - time.Millisecond, Most: by + time.Millisecond}
	}
	got := off(2 * time.Second).Less(off(-5 * time.Second))
	if want := (clocks.Offset{Least: 7*time.Second - 2*time.Millisecond, Most: 7*time.Second + 2*time.Millisecond}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	late := clocks.Offset{Least: -20 * time.Second, Most: 7 * time.Second}
	if both := got.And(late); both.Least != got.Least || both.Most != late.Most {
		t.Errorf("%+v", both)
	}
}

func TestClockOfALocalDiskIsOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o, err := clocks.OfDisk(dir, time.Now)
	if err != nil || o.Magnitude() != 0 {
		t.Errorf("%s, %v", o, err)
	}
	ahead, err := clocks.OfDisk(dir, func() time.Time { return time.Now().Add(-time.Minute) })
	if err != nil || ahead.Magnitude() < 59*time.Second {
		t.Errorf("for a host that is a minute behind: %s, %v", ahead, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	if _, err := clocks.OfDisk(dir+"/absent", time.Now); err == nil {
		t.Error("a directory that is not there has a clock")
	}
}
