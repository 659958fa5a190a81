package slurmtest

import (
	"strings"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// spec is a submission as slurmctld gets it: a Request, and what its further
// options mean.
type spec struct {
	sbatch.Request
	hold, requeue bool
	nodeList      string // one node, or empty
}

// UnmodelledError says that a test asked for something that this package does not
// model. It is a fault of the test or of this package, never an answer of Slurm.
type UnmodelledError struct{ Option string }

// Error names what is not modelled.
func (e *UnmodelledError) Error() string { return "slurmtest does not model sbatch " + e.Option }

// specOf reads the further options of a request.
func specOf(r sbatch.Request) (*spec, error) {
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
		default:
			return nil, &UnmodelledError{Option: option}
		}
	}
	return s, nil
}
