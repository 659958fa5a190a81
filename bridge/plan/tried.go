package plan

import (
	"fmt"
	"strings"
)

// triedSeparator is between the attempts in Row.Tried.
const triedSeparator = ", "

// mostTried bounds the length of Row.Tried. A bundle that nodes fail to start, or that is resumed, may have any number of
// attempts.
const mostTried = 1200

// tried describes the attempt's job, for the history of the bundle.
func (r Row) tried() string {
	node := strings.ReplaceAll(r.Node(), ",", ";")
	if node == "" {
		return fmt.Sprintf("Slurm job %s", r.Job.ID)
	}
	return fmt.Sprintf("%s (Slurm job %s)", node, r.Job.ID)
}

// lastTried returns the last n of the earlier attempts, and the number of those that Row.Tried has.
func (r Row) lastTried(n int) (last string, known int) {
	if r.Tried == "" {
		return "", 0
	}
	all := strings.Split(r.Tried, triedSeparator)
	return strings.Join(all[max(0, len(all)-n):], triedSeparator), len(all)
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
