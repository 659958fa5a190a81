package plan

import (
	"fmt"
	"strings"
)

// triedSeparator is between the attempts in Row.Tried.
const triedSeparator = ", "

// mostTried bounds the length of Row.Tried. A bundle that nodes fail to start may have any number of attempts.
const mostTried = 600

// tried describes the attempt's job, for the history of the bundle.
func (r Row) tried() string {
	node := strings.ReplaceAll(r.Node(), ",", ";")
	if node == "" {
		return fmt.Sprintf("Slurm job %s", r.Job.ID)
	}
	return fmt.Sprintf("%s (Slurm job %s)", node, r.Job.ID)
}

// noteTried adds the attempt's job to those of the earlier attempts.
func (r *Row) noteTried() {
	if r.Job.ID == 0 || r.Standalone {
		return
	}
	r.Tried = strings.TrimPrefix(r.Tried+triedSeparator+r.tried(), triedSeparator)
	for len(r.Tried) > mostTried {
		_, r.Tried, _ = strings.Cut(r.Tried, triedSeparator)
	}
}
