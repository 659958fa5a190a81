package worker

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// ending is what the worker knows of a command's end.
type ending struct {
	exit container.Exit
	// err is why the command did not run, or not to its end.
	err error
	// unprepared is set when the container could not be prepared, and was not run.
	unprepared bool
	// stopRequested is set when the worker was told to stop before the command's end.
	stopRequested bool
	// stopped may be the *limitError for which the worker stopped the command.
	stopped error
	// oomKills counts the processes that the kernel killed for the job's
	// memory limit.
	oomKills int64
	// memoryPeak is the most memory that was measured.
	memoryPeak int64
	// diskFull is set when the working directory has no room left: the command may
	// have been unable to write its own message there.
	diskFull bool
	// uncopied is why results in a local working directory were not copied.
	uncopied error
}

// limitError says in a sentence which limit a command has exceeded.
type limitError struct{ sentence string }

func (e *limitError) Error() string { return e.sentence }

// userError says in a sentence what is wrong in the researcher's request.
type userError struct{ sentence string }

func (e *userError) Error() string { return e.sentence }

// verdict decides the cause of the end. Limits come first, because a command that
// exceeds one may end in any way. No exit status shows reliably that memory ran out:
// a command that failed after a kill for memory counts as out of memory. A command that
// exits with 0 by itself has succeeded, even after such a kill.
func (e ending) verdict(spec spool.Spec) spool.Exit {
	var host *container.HostError // the command did not begin
	out := spool.Exit{Terminated: e.stopRequested, NotStarted: e.unprepared || errors.As(e.err, &host)}
	if e.exit.Note != "" {
		out.Note = codalab.Sentence(e.exit.Note)
	}
	if e.err == nil {
		code := e.exit.Code
		out.ExitCode = &code
	}
	var limit *limitError
	switch {
	case errors.As(e.stopped, &limit):
		out.Cause, out.Failure = spool.CauseLimit, limit.sentence
	case e.oomKills > 0 && (e.err != nil || e.exit.Code != 0):
		out.Cause, out.Failure = spool.CauseLimit, memorySentence(spec.MemoryBytes, e.memoryPeak)
	case e.err != nil:
		out.Cause, out.Failure = e.explainNotRun()
	case e.exit.Code == 0:
		out.Cause = spool.CauseSucceeded
	case e.stopRequested:
		out.Cause, out.Failure = spool.CausePlatform, "The job was told to stop before the command had ended."
	case e.exit.Signal != 0:
		out.Cause = spool.CauseUser
		out.Failure = fmt.Sprintf("Exit code %d: %s (signal %d).", e.exit.Code, syscall.Signal(e.exit.Signal), e.exit.Signal)
	case e.diskFull:
		out.Cause = spool.CauseUser
		out.Failure = fmt.Sprintf("Exit code %d, and the disk of the working directory is full.", e.exit.Code)
	default:
		out.Cause = spool.CauseUser
	}
	if e.uncopied != nil {
		e.addLoss(&out)
	}
	return out
}

// addLoss adds to a verdict that results are lost. It sets Terminated if the job was told
// to stop during the copy: the bridge knows the reason for that.
func (e ending) addLoss(out *spool.Exit) {
	switch {
	case out.Cause == spool.CauseSucceeded:
		out.Cause = spool.CausePlatform
	case out.Failure == "":
		out.Failure = fmt.Sprintf("Exit code %d.", *out.ExitCode)
	}
	out.Failure = strings.TrimSpace(out.Failure + " " + codalab.Sentence(e.uncopied.Error()))
	out.Terminated = out.Terminated || errors.Is(e.uncopied, errTold)
}

func (e ending) explainNotRun() (spool.Cause, string) {
	var user *userError
	switch {
	case errors.As(e.err, &user):
		return spool.CauseUser, user.sentence
	case errors.Is(e.err, container.ErrNoShell):
		return spool.CauseUser, codalab.Sentence(container.ErrNoShell.Error())
	case e.stopRequested:
		return spool.CausePlatform, "The job was told to stop before the command began."
	default:
		return spool.CausePlatform, codalab.Sentence(e.err.Error())
	}
}

// The sentences of limits begin as those of CodaLab's own worker do
// (codalab/worker/worker_run_state.py: check_resource_utilization).

func timeSentence(uptime, limit time.Duration) string {
	return fmt.Sprintf("Time limit exceeded. (Container uptime %s > time limit %s) Ask for more with --request-time.",
		codalab.FormatDuration(roundUp(uptime)), codalab.FormatDuration(limit))
}

// memorySentence may get a smaller use than the limit, because the last moment
// before the kernel's kill may not have been measured.
func memorySentence(limit, used int64) string {
	if limit <= 0 {
		return "Memory limit of the job exceeded. Ask for more with --request-memory."
	}
	return fmt.Sprintf("Memory limit %s exceeded (used %s). Ask for more with --request-memory.",
		codalab.FormatSize(limit), codalab.FormatSize(max(limit, used)))
}

func diskSentence(limit, used int64) string {
	return fmt.Sprintf("Disk limit %s exceeded (used %s). Ask for more with --request-disk.",
		codalab.FormatSize(limit), codalab.FormatSize(used))
}

// roundUp rounds up to the unit in which codalab.FormatDuration prints, so that a
// time above a limit is printed as above it.
func roundUp(d time.Duration) time.Duration {
	unit := 100 * time.Millisecond
	const day = 24 * time.Hour
	switch {
	case d >= 365*day:
		unit = day
	case d >= day:
		unit = time.Hour
	case d >= time.Hour:
		unit = time.Minute
	case d >= time.Minute:
		unit = time.Second
	}
	return d.Truncate(unit) + unit
}
