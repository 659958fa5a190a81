package slurmbatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestJobIsAdaptedToItsPartitions(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	partitions := []sbatch.Partition{
		{Name: "cpu", Default: true, MaxTime: 7 * day},
		{Name: "gpu", MaxTime: 2 * day, Most: sbatch.NodeResources{GPUs: 4}},
		{Name: "free"},
	}
	for _, test := range []struct {
		partition string
		gpusGiven bool
		limit     time.Duration
		wantTime  time.Duration
		wantGPUs  int64
		wantSaid  string
	}{
		{"", false, 10 * day, 7 * day, 0, "--time is 7-00:00:00, which is the partition's maximum; --gpus is 0, because the partition has none"},
		{"", true, day, day, 1, ""},
		{"gpu", false, 10 * day, 2 * day, 1, "--time is 2-00:00:00, which is the partition's maximum"},
		{"cpu,gpu", false, 10 * day, 2 * day, 1, "--time is 2-00:00:00, which is the partition's maximum"},
		{"free", true, 10 * day, 10 * day, 1, ""},
		{"gpu", false, 0, 2 * day, 1, ""},
		{"unknown", false, 10 * day, 10 * day, 1, ""},
	} {
		j := slurmbatch.Job{Partition: test.partition, GPUs: 1, Time: test.limit}
		said := strings.Join(j.Fit(partitions, !test.gpusGiven), "; ")
		if j.Time != test.wantTime || j.GPUs != test.wantGPUs || said != test.wantSaid {
			t.Errorf("%+v: %v, %d GPUs, %q", test, j.Time, j.GPUs, said)
		}
	}
}

func TestWorkerStopsBeforeTermAndTermComesBeforeTheLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []time.Duration{time.Minute, 5 * time.Minute, 10 * time.Minute, 240 * time.Hour} {
		stop, longest := slurmbatch.StopAfter(limit), slurmbatch.Longest(limit)
		if longest >= stop || stop >= limit || longest <= 0 {
			t.Errorf("%v: runs of %v at most, stop after %v", limit, longest, stop)
		}
	}
	if got := slurmbatch.StopAfter(time.Hour); got != time.Hour-150*time.Second {
		t.Error(got)
	}
}
