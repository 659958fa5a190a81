package plan

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// triedSeparator is between the attempts in Row.Tried.
const triedSeparator = ", "

// mostTried bounds the length of Row.Tried. A bundle that nodes fail to start, or that is resumed, may have any number of
// attempts.
const mostTried = 4000

// tried describes the attempt's job, for the history of the bundle. Once the job has ended, it has the times of its start and its end.
func (r Row) tried() string {
	job := fmt.Sprintf("Slurm job %s", r.Job.ID)
	if c, ended := r.Charge(); ended {
		job += " from " + c.Start.UTC().Format(time.RFC3339) + " to " + c.End.UTC().Format(time.RFC3339)
	}
	node := strings.ReplaceAll(r.Node(), ",", ";")
	if node == "" {
		return job
	}
	return node + " (" + job + ")"
}

// lastTried returns the last n of the earlier attempts without their times, for a sentence, and the number of those that Row.Tried has.
func (r Row) lastTried(n int) (last string, known int) {
	if r.Tried == "" {
		return "", 0
	}
	all := strings.Split(r.Tried, triedSeparator)
	last = strings.Join(all[max(0, len(all)-n):], triedSeparator)
	return regexp.MustCompile(` from \S+Z to \S+Z`).ReplaceAllString(last, ""), len(all)
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
