package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// killUpload gives the upload of the results up at the wish of the user. Our server marks such a wish, because it repeats
// an earlier one to end the command: the results of a command that ended before that reached it are wanted. CodaLab's own
// server gives no reason of a user's kill, and tells the two apart only by their number (codalab/rest/bundle_actions.py:
// create_bundle_actions). A used-up quota gives no upload up. A verdict that was reported stays.
func (d *decision) killUpload(message string) {
	stop := d.row.StopVerdict
	unmarked := message == "" && (stop == nil || stop.Restage)
	if message != codalab.KillUpload && !unmarked || d.row.GivesUp || !d.row.Times.Finalizing.IsZero() {
		return
	}
	d.row.GivesUp = true
	d.row.Retry, d.row.DueAt, d.row.Progress = Retry{}, time.Time{}, ""
	d.row.Reason = "the server asked to kill it: the upload of the results is given up"
}

// givenUp ends a bundle whose results stay where they are at the wish of its user.
func (d *decision) givenUp(held spool.HeldResults) {
	d.row.Room = nil
	text := fmt.Sprintf("The upload of the results (%s) was given up.", held.Size)
	if held.Output {
		text += " The end of stdout and stderr is at the server."
	}
	d.killUncollected(text + " " + d.leftSentence(held.Dir))
	d.finalize("the upload of the results was given up, and they stay in " + held.Dir)
}

// killUncollected makes the bundle killed, unless a verdict was reported already. text tells of its results. A failure
// of the bundle before the kill is told too.
func (d *decision) killUncollected(text string) {
	if !d.row.Times.Finalizing.IsZero() {
		return
	}
	v := killVerdict("")
	v.ExitCode = d.row.Verdict.ExitCode
	v.Failure += ". " + text
	if before := d.row.Verdict.Failure; before != "" && !d.row.Verdict.killed() {
		v.Failure += " Before the kill: " + codalab.Sentence(before)
	}
	d.row.Verdict = &v
}

// leftSentence tells the researcher where files are that are not at the server.
func (d *decision) leftSentence(dir string) string {
	if d.row.Standalone {
		return "The worker does not keep the other files."
	}
	return fmt.Sprintf("All files stay in %s on the cluster's disk until %s.", dir, roomTime(d.now.Add(d.policy.KeepAfterAck)))
}
