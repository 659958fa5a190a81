package slurmtest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// spec is a submission as slurmctld gets it: a Request, with the values of its further options.
type spec struct {
	sbatch.Request
	hold, requeue bool
	nodeList      string // one node, or empty
	// warning is the time before the limit at which the batch script gets TERM; 0 for never.
	warning time.Duration
}

// allows reports whether a submission may run on a node.
func (s *spec) allows(node string) bool {
	return (s.nodeList == "" || s.nodeList == node) && !slices.Contains(strings.Split(s.Exclude, ","), node)
}

// specOf reads the further options of a request. It panics for an option that this package does not model:
// that is a fault of the test or of this package, never an answer of Slurm.
func specOf(r sbatch.Request) *spec {
	s := &spec{Request: r}
	for _, option := range r.Extra {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "--hold":
			s.hold = true
		case "--requeue":
			s.requeue = true
		case "--nodelist":
			s.nodeList = value
		case "--signal":
			seconds, err := strconv.Atoi(strings.TrimPrefix(value, "B:TERM@"))
			if err != nil {
				panic("slurmtest does not model sbatch " + option)
			}
			s.warning = time.Duration(seconds) * time.Second
		default:
			panic("slurmtest does not model sbatch " + option)
		}
	}
	return s
}
