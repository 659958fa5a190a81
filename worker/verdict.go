package worker

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/spool"
)

// ending is all that is known of how a command ended.
type ending struct {
	exit apptainer.Exit
	// err is why the command was not run, or not to its end.
	err error
	// told is set when the worker was told to stop before the command's end.
	told bool
	// stopped may be the *limitError for which the worker stopped the command.
	stopped error
	// oomKills counts the processes that the kernel killed for the job's
	// memory limit.
	oomKills int64
}

// limitError is a limit that a command has passed, in a sentence.
type limitError struct{ sentence string }

func (e *limitError) Error() string { return e.sentence }

// userError is a fault in what the researcher asked for, in a sentence.
type userError struct{ sentence string }

func (e *userError) Error() string { return e.sentence }

// verdict says whose doing the end was. A limit comes first: a command that
// met one may end in any way, and memory that ran out shows in no exit status
// that could be relied on, so that a command that failed after a kill for
// memory has met its limit. A command that ends by itself with 0 has
// succeeded, whatever it met before.
func (e ending) verdict(spec spool.Spec) spool.Exit {
	out := spool.Exit{Terminated: e.told}
	if e.err == nil {
		code := e.exit.Code
		out.ExitCode = &code
	}
	var limit *limitError
	switch {
	case errors.As(e.stopped, &limit):
		out.Cause, out.Failure = spool.CauseLimit, limit.sentence
	case e.oomKills > 0 && (e.err != nil || e.exit.Code != 0):
		out.Cause, out.Failure = spool.CauseLimit, memorySentence(spec.MemoryBytes)
	case e.err != nil:
		out.Cause, out.Failure = e.notRun()
	case e.exit.Code == 0:
		out.Cause = spool.CauseSucceeded
	case e.told:
		out.Cause, out.Failure = spool.CauseUser, "The job was told to stop before the command had ended."
	case e.exit.Signal != 0:
		out.Cause = spool.CauseUser
		out.Failure = fmt.Sprintf("Exit code %d: %s (signal %d).", e.exit.Code, syscall.Signal(e.exit.Signal), e.exit.Signal)
	default:
		out.Cause = spool.CauseUser
	}
	return out
}

// notRun words why the command did not run.
func (e ending) notRun() (spool.Cause, string) {
	var user *userError
	switch {
	case errors.As(e.err, &user):
		return spool.CauseUser, user.sentence
	case errors.Is(e.err, apptainer.ErrNoShell):
		return spool.CauseUser, sentence(apptainer.ErrNoShell)
	case e.told:
		return spool.CausePlatform, "The job was told to stop before the command began."
	default:
		return spool.CausePlatform, sentence(e.err)
	}
}

// sentence makes a line for a researcher of an error.
func sentence(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	first, size := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(first)) + s[size:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// The sentences of limits begin as those of CodaLab's own worker do
// (codalab/worker/worker_run_state.py: check_resource_utilization).

func timeSentence(uptime, limit time.Duration) string {
	return fmt.Sprintf("Time limit exceeded. (Container uptime %s > time limit %s) Ask for more with --request-time.",
		formatDuration(roundUp(uptime)), formatDuration(limit))
}

func memorySentence(limit int64) string {
	if limit <= 0 {
		return "Memory limit of the job exceeded. Ask for more with --request-memory."
	}
	return fmt.Sprintf("Memory limit %s exceeded. Ask for more with --request-memory.", formatSize(limit))
}

func diskSentence(limit int64) string {
	return fmt.Sprintf("Disk limit %s exceeded. Ask for more with --request-disk.", formatSize(limit))
}

// formatSize prints bytes as CodaLab does
// (codalab/lib/formatting.py: size_str).
func formatSize(n int64) string {
	f := float64(n)
	suffix := ""
	for _, larger := range []string{"k", "m", "g", "t"} {
		if f < 1024 {
			break
		}
		f /= 1024
		suffix = larger
	}
	if f >= 100 || f == float64(int64(f)) {
		return fmt.Sprintf("%d%s", int64(f), suffix)
	}
	return fmt.Sprintf("%.1f%s", f, suffix)
}

// formatDuration prints a duration as CodaLab does
// (codalab/lib/formatting.py: duration_str).
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	default:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
}

// roundUp rounds up to the unit in which formatDuration prints, so that a time
// above a limit reads as above it.
func roundUp(d time.Duration) time.Duration {
	unit := 100 * time.Millisecond
	switch {
	case d >= 24*time.Hour:
		unit = time.Hour
	case d >= time.Hour:
		unit = time.Minute
	case d >= time.Minute:
		unit = time.Second
	}
	return d.Truncate(unit) + unit
}
