package plan

import (
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// Since returns what a transition that no user made has done with a bundle that was before, and why, as the owner
// should know it; an empty action for nothing.
func (b Bundle) Since(before Bundle) (action codalab.Action, reason string) {
	worker := fmt.Sprintf("its worker %q", before.Worker.ID)
	switch {
	case before.KillMessage == "" && b.KillMessage != "":
		return codalab.ActionKilled, killReason(b.KillMessage)
	case before.State.Final() || before.KillMessage != "": // a user's kill, or that for a quota, is told already
	case b.State == codalab.StateFailed:
		return codalab.ActionFailed, shortReason(b.Metadata.String("failure_message"))
	case b.State == codalab.StateWorkerOffline && before.State != b.State:
		return codalab.ActionLost, worker + " does not check in; it may come back"
	case b.State == codalab.StateStaged && before.claimed():
		return codalab.ActionRestaged, worker + " gave the run back, or is gone"
	}
	return "", ""
}

// killReason is the part of a kill message that tells the reason.
func killReason(message string) string {
	message = strings.TrimPrefix(message, codalab.KillRequested+": ")
	return shortReason(strings.TrimSuffix(message, moreQuota))
}

// mostReason bounds a reason, in runes. The bundle's failure_message has the whole text.
const mostReason = 300

func shortReason(message string) string {
	message = termtext.OneLine(message)
	if runes := []rune(message); len(runes) > mostReason {
		return string(runes[:mostReason]) + "…"
	}
	return message
}
