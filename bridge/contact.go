package bridge

import (
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// contact says whether Slurm and the server answer. It is safe for concurrent use.
type contact struct {
	// observed is set once Slurm was seen as a whole since the start. unreachable is set while it does not
	// answer.
	observed, unreachable atomic.Bool
	// generation is the highest number of a submission in the ledger.
	generation atomic.Int64
	// lastAnswer is the time of the server's last answer to a check-in, in nanoseconds since 1970; 0 for none.
	// failing is set while the server does not take check-ins.
	lastAnswer atomic.Int64
	failing    atomic.Bool
	// replaced is the server's refusal of a stand-alone worker that has begun again as another program; nil for none.
	replaced atomic.Pointer[codalab.Error]
}

func (c *contact) init() {
	c.observed.Store(false)
	c.unreachable.Store(false)
}

// answeredAt returns the time of the server's last answer to a check-in; zero for none.
func (c *contact) answeredAt() time.Time {
	if at := c.lastAnswer.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// noteAnswer notes that the server has answered a check-in.
func (c *contact) noteAnswer(now time.Time) {
	c.lastAnswer.Store(now.UnixNano())
	c.failing.Store(false)
}
