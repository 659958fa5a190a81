package sim

import (
	"context"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// requestsLimit is the controller's bound on the requests of one user: a token every two seconds
// (slurm.conf(5), SlurmctldParameters, rl_enable).
var requestsLimit = sbatch.RateLimit{PerSecond: 0.5, Burst: 5}

// sleep returns the time that a command of Slurm sleeps before the controller accepts its request. It sleeps
// if other commands of the user have used up the tokens.
func (s *slurm) sleep() time.Duration {
	d := &s.w.dice
	if !s.limited || d.below(ofLimits, 4) > 0 {
		return 0
	}
	return d.duration(ofLimits, time.Second, 20*time.Second)
}

// settings runs scontrol show config.
func (c commands) settings(context.Context) (sbatch.Settings, error) {
	w := c.w
	if c.dead || w.slurm.down {
		return sbatch.Settings{}, errTimeout
	}
	s := sbatch.Settings{Accounting: w.policy.Accounting, MinJobAge: w.policy.RecordAge, MaxArraySize: maxArraySize}
	if w.slurm.limited {
		s.RateLimit = requestsLimit
	}
	return s, nil
}
