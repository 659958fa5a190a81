// Package affinity reads and sets the processors on which threads may run (sched_setaffinity(2)).
package affinity

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Most is more than the largest processor number of any kernel (Linux: NR_CPUS).
const Most = 1 << 13

// Own returns the numbers of the processors on which the calling thread may run, in order.
func Own() ([]int, error) {
	set := unix.NewCPUSet(Most)
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		return nil, fmt.Errorf("find the CPUs of this process: %w", err)
	}
	var cpus []int
	for cpu := range Most {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// Set makes the calling thread, and the processes that it starts from then on, run on these processors only. The caller has
// locked its goroutine to the thread.
func Set(cpus []int) error {
	set := unix.NewCPUSet(Most)
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
		return fmt.Errorf("run on processors %s: %w", Format(cpus), err)
	}
	return nil
}

// Format prints sorted numbers as Linux does, such as 0-3,8 (cpuset(7), List format).
func Format(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		part := strconv.Itoa(numbers[i])
		if end > i {
			part += "-" + strconv.Itoa(numbers[end])
		}
		parts = append(parts, part)
		i = end + 1
	}
	return strings.Join(parts, ",")
}
