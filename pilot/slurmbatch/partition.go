package slurmbatch

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

// limitForm matches a time limit: days-hours[:minutes[:seconds]], minutes[:seconds], or hours:minutes:seconds.
var limitForm = regexp.MustCompile(`^(?:(\d{1,5})-(\d{1,4})(?::(\d{1,4})(?::(\d{1,4}))?)?|(\d{1,8})(?::(\d{1,8}))?(?::(\d{1,8}))?)$`)

// ParseLimit reads a time limit like sbatch (sbatch(1): --time); 0 means no limit of its own.
func ParseLimit(text string) (time.Duration, error) {
	if strings.EqualFold(text, "UNLIMITED") || strings.EqualFold(text, "INFINITE") {
		return 0, nil
	}
	m := limitForm.FindStringSubmatch(text)
	if m == nil {
		return 0, errors.New("want minutes, hours:minutes:seconds, days-hours or days-hours:minutes:seconds, such as 10-0")
	}
	const day = 24 * time.Hour
	switch {
	case m[1] != "":
		return span(m[1:5], day, time.Hour, time.Minute, time.Second), nil
	case m[7] != "":
		return span(m[5:8], time.Hour, time.Minute, time.Second), nil
	}
	return span(m[5:7], time.Minute, time.Second), nil
}

// span adds numbers of units. An absent number is 0.
func span(numbers []string, units ...time.Duration) (d time.Duration) {
	for i, unit := range units {
		n, _ := strconv.Atoi(numbers[i]) // digits, or nothing
		d += time.Duration(n) * unit
	}
	return d
}
