package sbatch

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/command"
)

// Error is a failed command of Slurm.
type Error struct {
	// Op says what was tried: "submit cl-ann-…", "observe".
	Op string
	// Message is Slurm's own words, in one line.
	Message string
	// Refused is set for a submission that surely made no job that runs.
	Refused bool
	// Retry is set for a refusal that may be another answer later, without
	// the request being changed: a limit on the number of jobs, a partition
	// that is down.
	Retry bool
	// Err is the cause.
	Err error
}

// Error prints what was tried and Slurm's words.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Op, e.Message) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient says whether the same request may succeed later.
func (e *Error) Transient() bool { return !e.Refused || e.Retry }

// failedWords begin sbatch's last line when a submission failed: what follows
// is either the controller's answer, which is a refusal, or why there was none
// (Slurm src/sbatch/sbatch.c: main).
const failedWords = "Batch job submission failed: "

// refusals are the answers with which slurmctld refuses a submission (Slurm
// 22.05, src/common/slurm_errno.c: slurm_errtab). What is not listed is not
// known to be a refusal: errors of communication above all, and those of libc,
// which may be left over from an answer that never came.
var refusals = []struct { //nolint:gochecknoglobals // a table, never written
	text  string
	retry bool
}{
	{text: "Invalid partition name specified"},
	{text: "No partition specified or system default partition"},
	{text: "User's group not permitted to use this partition"},
	{text: "Requested partition configuration not available now"},
	{text: "Multiple partition job request not supported when a partition is set in the association"},
	{text: "Access/permission denied"},
	{text: "Invalid user id"},
	{text: "Invalid group id"},
	{text: "Invalid account or account/partition combination specified"},
	{text: "Invalid qos specification"},
	{text: "Invalid wckey specification"},
	{text: "Invalid license specification"},
	{text: "Invalid feature specification"},
	{text: "Invalid preferred feature specification"},
	{text: "Invalid cluster feature specification"},
	{text: "Invalid node name specified"},
	{text: "Requested nodes not in this partition"},
	{text: "Requested node configuration is not available"},
	{text: "Invalid generic resource (gres) specification"},
	{text: "Duplicate generic resource (gres) specification"},
	{text: "Invalid GRES specification (with and without type identification)"},
	{text: "Invalid Trackable RESource (TRES) specification"},
	{text: "Requested GRES option unsupported by configured SelectType plugin"},
	{text: "Memory required by task is not available"},
	{text: "More processors requested than permitted"},
	{text: "CPU count specification invalid"},
	{text: "Node count specification invalid"},
	{text: "Task count specification invalid"},
	{text: "Invalid job array specification"},
	{text: "Invalid time specified"},
	{text: "Requested time limit is invalid"},
	{text: "Time limit specification required, but not provided"},
	{text: "Invalid time-min specification"},
	{text: "Invalid --nice value"},
	{text: "Invalid mcs_label specified"},
	{text: "Job dependency problem"},
	{text: "Requested reservation is invalid"},
	{text: "Access denied to requested reservation"},
	{text: "Burst Buffer permission denied"},
	{text: "Burst Buffer request invalid"},
	{text: "Pathname of a file, directory or other parameter too long"},
	{text: "Requested operation not supported on this system"},
	{text: "Requested operation is presently disabled"},
	{text: "Unspecified error"}, // a site's job_submit plugin said no
	{text: "Job violates accounting/QOS policy", retry: true},
	{text: "Required partition not available (inactive or drain)", retry: true},
	{text: "Required node not available (down, drained or reserved)", retry: true},
	{text: "Requested reservation not usable now", retry: true},
	{text: "Unable to create job record, try again", retry: true},
	{text: "I/O error writing script/environment to file", retry: true},
	{text: "System submissions disabled", retry: true},
	{text: "Slurm backup controller in standby mode", retry: true},
	{text: "Controller is in standby mode, try a different controller", retry: true},
}

// objections are what sbatch itself says before it asks the controller for
// anything, with exit status 1.
var objections = []string{ //nolint:gochecknoglobals // a table, never written
	"Batch script is empty!",
	"Batch script contains only whitespace!",
	"Batch script contains DOS line breaks",
	"This does not look like a batch script",
	"Invalid generic resource (gres) specification",
	"Invalid numeric value",
	"cli_filter plugin terminated with error",
}

// judge says whether what a failed sbatch wrote, and the status it exited
// with, mean that surely no job of the submission will run, and whether the
// same request may find another answer later.
//
// Only the last word of the controller counts: before it sbatch may have said
// that Slurm is "temporarily unable to accept job", and tried again.
func judge(stderr string, exit int) (refused, retry bool) {
	if i := strings.LastIndex(stderr, failedWords); i >= 0 {
		answer := stderr[i+len(failedWords):]
		for _, r := range refusals {
			if strings.HasPrefix(answer, r.text) {
				return true, r.retry && !tooLarge(stderr[:i])
			}
		}
		return false, false
	}
	for _, line := range ownLine.FindAllStringSubmatch(stderr, -1) {
		// 255 is the status of sbatch's option parser, and also of an ssh
		// that lost its connection in a site's wrapper.
		if exit == 255 {
			return true, false
		}
		for _, o := range objections {
			if strings.HasPrefix(line[1], o) {
				return true, false
			}
		}
	}
	return false, false
}

// ownLine is a line that sbatch wrote itself: getopt(3) names the program by
// its path.
var ownLine = regexp.MustCompile(`(?m)^(?:/\S*/)?sbatch: (?:error: )?(.*)$`)

// limitLine is the name of the limit, alone on a line, that a refused
// submission would have broken.
var limitLine = regexp.MustCompile(`(?m)^sbatch: error: ([A-Z]\w+)$`)

// tooLarge says whether the limit is one on a job's size, such as
// QOSMaxCpuPerJobLimit, and not on the number of jobs: the same job breaks it
// tomorrow as well. Those on the number are AssocMaxSubmitJobLimit,
// AssocGrpSubmitJobsLimit, QOSMaxSubmitJobPerUserLimit, QOSGrpSubmitJobsLimit
// and MaxSubmitJobsPerAccount (Slurm src/common/slurm_protocol_defs.c:
// job_reason_string).
func tooLarge(said string) bool {
	limit := limitLine.FindStringSubmatch(said)
	return limit != nil && !strings.Contains(limit[1], "SubmitJob")
}

// message is why a command failed, in Slurm's words where it had any.
func message(err error) string {
	var failed *command.Error
	if errors.As(err, &failed) && failed.Stderr != "" {
		return words(failed.Stderr)
	}
	if errors.As(err, &failed) {
		return failed.Err.Error()
	}
	return err.Error()
}

// keptLines is how many lines of a command's standard error are told on: a
// site's wrappers and plugins can be talkative.
const keptLines = 4

// words is what a command of Slurm wrote to its standard error, in one line:
// the answer first and then what was said on the way to it.
//
//	sbatch: error: Memory specification can not be satisfied
//	sbatch: error: Batch job submission failed: Requested node configuration is not available
//
// becomes "Requested node configuration is not available (Memory specification
// can not be satisfied)".
func words(stderr string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(stderr)) {
		line = strings.TrimSpace(line)
		if before, after, ok := strings.Cut(line, ": "); ok && !strings.Contains(before, " ") {
			// the program's name is left out, and how bad it is
			line = strings.TrimPrefix(strings.TrimPrefix(after, "error: "), "fatal: ")
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	last := len(lines) - 1
	before := lines[max(0, last-keptLines):last]
	if answer, ok := strings.CutPrefix(lines[last], failedWords); ok {
		if len(before) == 0 {
			return answer
		}
		return answer + " (" + strings.Join(before, "; ") + ")"
	}
	return strings.Join(append(before, lines[last]), "; ")
}
