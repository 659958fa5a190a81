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

// ending collects the facts about a command's end.
type ending struct {
	node string
	exit container.Exit
	// err is set if the command did not run, or not to its end.
	err error
	// unprepared is set if the container could not be prepared, and was not run.
	unprepared bool
	// terminated is set if the job got TERM before the command's end.
	terminated bool
	// overLimit may be the *limitError for which the worker stopped the command.
	overLimit error
	// oomKills counts the processes that the kernel killed for the job's memory limit.
	oomKills int64
	// struck is set if the kernel killed the command for the memory of a job that it shared, and the command's own use was within its
	// limit.
	struck bool
	// refused counts the processes that the kernel refused for the run's limit, as far as that is known.
	refused int64
	// memoryPeak is the largest measured memory.
	memoryPeak int64
	// diskFull is set if the working directory has no room. The command may then have been unable
	// to write its own message there.
	diskFull bool
	// freeBefore is the free space of that disk when the command began, 0 if it is not known or the command has a limit, and
	// diskUsed the size of the command's files on it.
	freeBefore, diskUsed int64
	// noexec is set if no program in the node's scratch directory can be executed.
	noexec bool
	// stderrEnd is the end of the command's standard error; empty if there is none.
	stderrEnd string
	// uncopied is the reason why results in a local working directory were not copied.
	uncopied error
}

// limitError is a sentence that names the limit that a command has exceeded.
type limitError struct {
	sentence string
	timedOut bool // it is the time limit
}

func (e *limitError) Error() string { return e.sentence }

// userError is a sentence about a mistake in the researcher's request.
type userError struct{ sentence string }

func (e *userError) Error() string { return e.sentence }

// fullDiskError means that the shared disk, which all nodes use, is full.
type fullDiskError struct{ error }

func (e *fullDiskError) Unwrap() error { return e.error }

// onShared returns the error of a write to the shared disk as a *fullDiskError if the disk is full.
// Other errors may concern this node alone.
func onShared(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &fullDiskError{err}
	}
	return err
}

// verdict decides the cause of the end. Limits come first, because a command that exceeds one may
// end in any way. No exit status shows reliably that memory ran out, so a command that failed after
// a kill for memory counts as out of memory. A command that exits with 0 by itself has succeeded,
// even after such a kill.
func (e ending) verdict(spec spool.Spec) spool.Exit {
	out := spool.Exit{Terminated: e.terminated, NotStarted: e.notStarted()}
	var full *fullDiskError
	out.SharedDiskFull = out.NotStarted && errors.As(e.err, &full)
	var host *container.HostError
	out.NodeAtFault = errors.As(e.err, &host) && !host.Doubtful
	noNetwork := e.noNetwork(spec)
	out.Note = joinSentences(e.exit.Note, noNetwork)
	if e.err == nil {
		code := e.exit.Code
		out.ExitCode = &code
	}
	var limit *limitError
	switch {
	case errors.As(e.overLimit, &limit):
		out.Cause, out.Failure, out.TimedOut = spool.CauseLimit, limit.sentence, limit.timedOut
	case e.oomKills > 0 && (e.err != nil || e.exit.Code != 0):
		out.Cause, out.Failure = spool.CauseLimit, memorySentence(spec.MemoryBytes, e.memoryPeak)
	case e.struck && e.err == nil:
		out.Cause, out.Failure = spool.CausePlatform, struckSentence(spec.MemoryBytes, e.memoryPeak)
	case e.err != nil:
		out.Cause, out.Failure = e.explainNotRun()
	case e.exit.Code == 0 && e.exit.OutputError != 0:
		out.Cause, out.Failure = e.explainLostOutput(spec.DiskBytes)
	case e.exit.Code == 0:
		out.Cause = spool.CauseSucceeded
	case e.terminated:
		out.Cause, out.Failure = spool.CausePlatform, "The job was terminated before the command had ended."
	case e.exit.Signal != 0:
		out.Cause = spool.CauseUser
		out.Failure = fmt.Sprintf("Exit code %d: %s (signal %d).", e.exit.Code, syscall.Signal(e.exit.Signal), e.exit.Signal)
	case e.exit.Code == exitNotExecutable && e.noexec:
		out.Cause = spool.CauseUser
		out.Failure = fmt.Sprintf("Exit code %d: %s", e.exit.Code, e.noexecSentence(spec))
	case e.diskFull || isFull(e.exit.OutputError):
		out.Cause, out.Failure = e.explainFullDisk(spec.DiskBytes)
	default:
		out.Cause = spool.CauseUser
		if noNetwork != "" {
			out.Failure = fmt.Sprintf("Exit code %d. %s", e.exit.Code, codalab.Sentence(noNetwork))
		}
	}
	if e.refused > 0 && e.err == nil && e.exit.Code != 0 && out.Cause == spool.CauseUser {
		if out.Failure == "" {
			out.Failure = fmt.Sprintf("Exit code %d.", e.exit.Code)
		}
		out.Failure += " " + processesSentence(spec.MaxProcesses)
	}
	if e.err == nil && e.exit.Code != 0 && out.Cause == spool.CauseUser && !e.terminated {
		out.Failure = e.addOutput(out.Failure)
	}
	if e.uncopied != nil {
		e.addLoss(&out)
	}
	return out
}

// noNetwork returns the reason why a command that requested a network had none, or "". The command may have failed for
// it.
func (e ending) noNetwork(spec spool.Spec) string {
	reason := e.exit.NoNetwork
	if spec.NetworkDenied {
		reason = "this worker gives none"
	}
	if reason == "" {
		return ""
	}
	return "the command had no network: " + reason
}

// joinSentences makes one text of phrases that may be empty.
func joinSentences(phrases ...string) string {
	var sentences []string
	for _, p := range phrases {
		if p != "" {
			sentences = append(sentences, codalab.Sentence(p))
		}
	}
	return strings.Join(sentences, " ")
}

// addLoss adds the loss of results to a verdict. It sets Terminated if the job got TERM during the
// copy: the bridge knows the reason for that.
func (e ending) addLoss(out *spool.Exit) {
	switch {
	case out.Cause == spool.CauseSucceeded:
		out.Cause = spool.CausePlatform
	case out.Failure == "":
		out.Failure = fmt.Sprintf("Exit code %d.", *out.ExitCode)
	}
	out.Failure = strings.TrimSpace(out.Failure + " " + codalab.Sentence(e.uncopied.Error()))
	out.Terminated = out.Terminated || errors.Is(e.uncopied, errTerminated)
}

// notStarted reports whether the command certainly did not begin.
func (e ending) notStarted() bool {
	var host *container.HostError
	var request *container.RequestError
	return e.unprepared || errors.As(e.err, &host) || errors.As(e.err, &request) || errors.Is(e.err, container.ErrNoShell)
}

func (e ending) explainNotRun() (spool.Cause, string) {
	var user *userError
	var request *container.RequestError
	switch {
	case errors.As(e.err, &user):
		return spool.CauseUser, user.sentence
	case errors.Is(e.err, container.ErrNoShell):
		return spool.CauseUser, codalab.Sentence(container.ErrNoShell.Error())
	case errors.As(e.err, &request):
		return spool.CauseUser, codalab.Sentence(request.Error())
	case e.terminated:
		return spool.CausePlatform, "The job was terminated before the command began."
	case e.notStarted():
		return spool.CausePlatform, codalab.Sentence("node " + e.node + ": " + e.err.Error())
	default:
		return spool.CausePlatform, codalab.Sentence(e.err.Error())
	}
}

// explainFullDisk returns the cause and the sentence for a command that failed on a full disk. The command has
// filled the disk if it used more than its limit or, without a limit, more than half of the free space
// that it found. Otherwise the disk is the site's trouble.
func (e ending) explainFullDisk(limit int64) (spool.Cause, string) {
	if limit <= 0 {
		limit = max(e.freeBefore/2, leastRoom)
	}
	if e.diskUsed > limit {
		return spool.CauseUser, fmt.Sprintf("Exit code %d, and the disk of the working directory is full.", e.exit.Code)
	}
	return spool.CausePlatform, fmt.Sprintf("Exit code %d, and the disk of the working directory is full: the run used %s of it.",
		e.exit.Code, codalab.FormatSize(e.diskUsed))
}

// explainLostOutput returns the cause and the sentence for a command that succeeded although a part of its
// output could not be written. The command that fills a disk is at fault itself, as in explainFullDisk.
func (e ending) explainLostOutput(limit int64) (spool.Cause, string) {
	cause := spool.CausePlatform
	if isFull(e.exit.OutputError) {
		cause, _ = e.explainFullDisk(limit)
	}
	return cause, codalab.Sentence("a part of the command's output could not be written: " + e.exit.OutputError.Error())
}

// isFull reports whether a write failed because a disk or a quota is full.
func isFull(err syscall.Errno) bool { return err == syscall.ENOSPC || err == syscall.EDQUOT }

// exitNotExecutable is a shell's exit status for a program that may not be executed.
const exitNotExecutable = 126

// noexecSentence says that programs cannot be executed where the scratch directory is mounted
// noexec.
func (e ending) noexecSentence(spec spool.Spec) string {
	where := "in $TMPDIR"
	if spec.WorkingDirDisk == spool.WorkingDirLocal {
		where = "in the working directory and in $TMPDIR"
	}
	return fmt.Sprintf("on node %s no program %s can be executed, because the queue's scratch directory is mounted noexec there.", e.node, where)
}

// The sentences about limits begin like those of CodaLab's own worker
// (codalab/worker/worker_run_state.py: check_resource_utilization).

// memorySentence accepts a use below the limit, because the kernel may have killed the command
// before the last measurement.
func memorySentence(limit, used int64) string {
	if limit <= 0 {
		return "Memory limit of the job exceeded. Ask for more with --request-memory."
	}
	return fmt.Sprintf("Memory limit %s exceeded (used %s). Ask for more with --request-memory.",
		codalab.FormatSize(limit), codalab.FormatSize(max(limit, used)))
}

// struckSentence is about a kill for memory in a pack, of a run that was not measured above its own limit.
func struckSentence(limit, used int64) string {
	of := ""
	if limit > 0 {
		of = " of its " + codalab.FormatSize(limit)
	}
	return fmt.Sprintf("The kernel killed the run because its job was out of memory. It had used %s%s: another run of the same job may have taken the memory.",
		codalab.FormatSize(used), of)
}

// processesSentence does not say that the limit is the reason of a failure, which only the command knows.
func processesSentence(limit int64) string {
	return fmt.Sprintf("It had as many processes and threads as a run may have here (%d), and the system refused more.", limit)
}

func diskSentence(limit, used int64) string {
	return fmt.Sprintf("Disk limit %s exceeded (used %s). Ask for more with --request-disk.",
		codalab.FormatSize(limit), codalab.FormatSize(used))
}

// roundUp rounds up to the unit of codalab.FormatDuration, so that a time above a limit is printed
// as one.
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
