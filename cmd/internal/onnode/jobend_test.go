package onnode

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func TestPackKnowsTheEndOfItsJob(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		slurms string
		limit  time.Duration
		want   time.Time
	}{
		{"1800000600", time.Hour, now.Add(10 * time.Minute)}, // the job began before this process, or its limit was changed
		{"1800000600", 0, now.Add(10 * time.Minute)},
		{"", time.Hour, now.Add(time.Hour)},
		{"0", time.Hour, now.Add(time.Hour)},
		{"soon", time.Hour, now.Add(time.Hour)},
		{"", 0, time.Time{}},
	} {
		p := program.Process{Now: func() time.Time { return now }, Getenv: func(name string) string {
			if name == "SLURM_JOB_END_TIME" {
				return test.slurms
			}
			return ""
		}}
		if got := jobEnd(p, test.limit); !got.Equal(test.want) {
			t.Errorf("SLURM_JOB_END_TIME=%q, limit %s: %s, want %s", test.slurms, test.limit, got, test.want)
		}
	}
}
