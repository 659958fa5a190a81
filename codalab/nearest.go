package codalab

import (
	"fmt"
	"strings"
	"time"
)

// NearestRequest returns the request nearest to this one that fits a node of these sizes: of each resource the requested
// amount, or the amount that the node has. It keeps the time limit. It returns false if there is none, for example
// because no node has a GPU.
func NearestRequest(asked Resources, sizes []NodeSize) (nearest Resources, ok bool) {
	closest := 0.0
	for _, node := range sizes {
		fits := Resources{CPUs: min(max(asked.CPUs, 1), node.CPUs), GPUs: min(asked.GPUs, node.GPUs), Time: asked.Time}
		if asked.Memory > 0 {
			fits.Memory = min(asked.Memory, roundDown(node.MemoryBytes))
		}
		share := shareOf(fits.CPUs, max(asked.CPUs, 1)) * shareOf(fits.GPUs, asked.GPUs) * shareOf(fits.Memory, asked.Memory)
		if share > closest {
			closest, nearest = share, fits
		}
	}
	return nearest, closest > 0
}

// Options spells a request as options of cl run. It leaves out the disk, and the time limit if there is none.
func (r Resources) Options() string {
	options := []string{fmt.Sprintf("--request-cpus %d", r.CPUs)}
	if r.GPUs > 0 {
		options = append(options, fmt.Sprintf("--request-gpus %d", r.GPUs))
	}
	if r.Memory > 0 {
		options = append(options, "--request-memory "+FormatSize(r.Memory))
	}
	if r.Time > 0 {
		options = append(options, "--request-time "+SpellDuration(time.Duration(r.Time)*time.Second))
	}
	return strings.Join(options, " ")
}

// roundDown rounds bytes to whole gibibytes, or to whole mebibytes below one.
func roundDown(bytes int64) int64 {
	if bytes >= 1<<30 {
		return bytes >> 30 << 30
	}
	return max(bytes, 0) >> 20 << 20
}

// shareOf returns left as a share of asked; 1 if nothing was asked.
func shareOf(left, asked int64) float64 {
	if asked <= 0 {
		return 1
	}
	return float64(left) / float64(asked)
}
