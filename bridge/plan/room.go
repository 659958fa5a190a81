package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/spool"
)

// RoomWait is the wait of results for room in their owner's disk quota. The row is collecting meanwhile, holds no job,
// and no place of an upload between two tries.
type RoomWait struct {
	spool.HeldResults
	// Since is the time of the server's first refusal. The bundle fails after Until.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Each try costs the server a question if it is one of ours, and CodaLab's own server an upload.
const longestRoomPause = 30 * time.Minute

// awaitRoom begins, or goes on, to wait until the owner of the results has room for them. A bundle that was killed
// does not wait.
func (d *decision) awaitRoom(held spool.HeldResults) {
	wait := RoomWait{HeldResults: held, Since: d.now}
	if d.row.Room != nil {
		wait.Since = d.row.Room.Since
	}
	wait.Until = wait.Since.Add(d.policy.QuotaPatience)
	d.row.Room = &wait
	if d.row.Verdict.killed() || !d.now.Before(wait.Until) {
		d.giveUpRoom()
		return
	}
	d.row.FailedTries++
	d.row.LastFailure, d.row.FailingSince = "", time.Time{}
	d.row.Reason = "the results wait for room in their owner's disk quota: " + held.Size + " in " + held.Dir
	d.row.DueAt = d.now.Add(backoff.After(d.row.FailedTries, time.Minute, longestRoomPause))
	if d.row.DueAt.After(wait.Until) {
		d.row.DueAt = wait.Until // for the last try
	}
}

// giveUpRoom ends the wait for room. The verdict tells where the results stay, unless one was reported before.
func (d *decision) giveUpRoom() {
	wait := *d.row.Room
	d.row.Uncollected, d.row.Room = true, nil
	if d.row.Times.Finalizing.IsZero() {
		v := *d.row.Verdict
		switch {
		case v.Failure != "":
			v.Failure = codalab.Sentence(v.Failure) + " "
		case v.ExitCode != nil && *v.ExitCode != 0: // the server's words for it
			v.Failure = fmt.Sprintf("Exit code %d. ", *v.ExitCode)
		default:
			v.Cause = spool.CauseLimit
		}
		v.Failure += d.heldSentence(wait)
		d.row.Verdict = &v
	}
	d.finalize("the results did not fit into their owner's disk quota, and stay in " + wait.Dir)
}

// heldSentence tells the researcher at the bundle's end where results are that the server had no room for.
func (d *decision) heldSentence(wait RoomWait) string {
	text := wait.tooLarge()
	if waited := d.now.Sub(wait.Since); waited > 0 {
		text += ", and there was no room within " + codalab.FormatDuration(waited)
	}
	text += "."
	if wait.Output {
		text += " The end of stdout and stderr is at the server."
	}
	return text + " " + d.leftSentence(wait.Dir)
}

// tooLarge is the beginning of a sentence.
func (w RoomWait) tooLarge() string {
	left := w.Left
	if left != "" {
		left = " (" + left + ")"
	}
	return fmt.Sprintf("The results (%s) are larger than what is left of their owner's disk quota%s", w.Size, left)
}

// status tells the researcher about the wait.
func (w RoomWait) status() string {
	where := "they wait"
	if w.Output {
		where = "the end of stdout and stderr is at the server, and all files wait"
	}
	return fmt.Sprintf("%s: %s in %s on the cluster's disk until %s, and are delivered when there is room. "+
		"Remove bundles (cl rm), or ask for a larger quota; cl kill ends the wait.", w.tooLarge(), where, w.Dir, roomTime(w.Until))
}

func roomTime(t time.Time) string { return t.Format("2006-01-02 15:04 MST") }

// killWaiting ends the wait for room at the wish of the user. A kill for a used-up quota ends no wait: the bundle uses
// nothing of it.
func (d *decision) killWaiting(message string) {
	if codalab.KilledForQuota(message) {
		return
	}
	if d.row.Times.Finalizing.IsZero() {
		v := killVerdict(message)
		v.ExitCode = d.row.Verdict.ExitCode
		d.row.Verdict = &v
	}
	d.giveUpRoom()
}

// State is the state in which servers end the bundle: ready, failed or killed.
func (v Verdict) State() codalab.State {
	switch {
	case v.killed():
		return codalab.StateKilled
	case v.Failure != "" || v.ExitCode != nil && *v.ExitCode != 0:
		return codalab.StateFailed
	}
	return codalab.StateReady
}

// killed reports whether servers take the bundle for killed.
func (v Verdict) killed() bool { return strings.Contains(v.Failure, codalab.KillRequested) }
