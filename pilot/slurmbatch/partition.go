package slurmbatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Fit adapts a job to the partitions that it may run in, and returns a sentence for each change. It lowers a
// time limit above theirs. It removes GPUs that the partitions do not have, if they are only the default
// (defaultGPUs). A job that names no partition is for the default one.
func (j *Job) Fit(partitions []sbatch.Partition, defaultGPUs bool) (changes []string) {
	wanted := strings.Split(j.Partition, ",")
	var limit time.Duration
	gpus, known := false, false
	for _, p := range partitions {
		if !slices.Contains(wanted, p.Name) && (j.Partition != "" || !p.Default) {
			continue
		}
		known, gpus = true, gpus || p.Most.GPUs > 0
		if p.MaxTime > 0 && (limit == 0 || p.MaxTime < limit) {
			limit = p.MaxTime
		}
	}
	if limit > 0 && (j.Time == 0 || j.Time > limit) {
		if j.Time > 0 {
			changes = append(changes, fmt.Sprintf("--time is %s, which is the partition's maximum", formatLimit(limit)))
		}
		j.Time = limit
	}
	if defaultGPUs && known && !gpus && j.GPUs > 0 {
		j.GPUs = 0
		changes = append(changes, "--gpus is 0, because the partition has none")
	}
	return changes
}

func formatLimit(d time.Duration) string {
	days, rest := d/(24*time.Hour), d%(24*time.Hour)
	return fmt.Sprintf("%d-%02d:%02d:%02d", days, rest/time.Hour, rest%time.Hour/time.Minute, rest%time.Minute/time.Second)
}
